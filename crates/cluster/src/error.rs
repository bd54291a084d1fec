//! Why an administrative change or the opening of a node failed.

use datum::Text;
use shard::WriteError;

use crate::config::ServerId;

/// An index as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexName {
    /// The database's name.
    pub db: Text,
    /// The table's name.
    pub table: Text,
    /// The index's name.
    pub index: Text,
}

/// Who is left of a shard without its only voting replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairNeeded {
    /// Replicas that do not vote, and may have rows.
    Rollback,
    /// Nobody.
    Erase,
}

impl RepairNeeded {
    /// The mode of an emergency repair to begin with: where others have no rows it says so itself.
    fn mode(self) -> &'static str {
        match self {
            RepairNeeded::Rollback => "unsafe_rollback",
            RepairNeeded::Erase => "unsafe_rollback_or_erase",
        }
    }
}

/// Why the servers there are cannot hold what is wanted. The texts are ReQL's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No replica at all.
    #[error(
        "You must set `replicas` to at least one. `replicas` includes the primary replica; if there are zero \
         replicas, there is nowhere to put the data."
    )]
    NoReplicas,
    /// More shards than a table may have.
    #[error("Maximum number of shards is {0}.")]
    TooManyShards(usize),
    /// Primaries are wanted where no replica is.
    #[error(
        "Can't use server tag `{0}` for primary replicas because you specified no replicas in server tag `{0}`."
    )]
    NoPrimaries(Text),
    /// Nonvoting replicas are wanted where no replica is.
    #[error(
        "You specified that the replicas in server tag `{0}` should be non-voting, but you didn't specify a \
         number of replicas in server tag `{0}`."
    )]
    NoNonvoting(Text),
    /// A server has two of the tags.
    #[error(
        "Server tags `{first}` and `{second}` overlap; the server `{server}` has both tags. The server tags used \
         for replication settings for a given table must be non-overlapping."
    )]
    Overlap {
        /// A tag.
        first: Text,
        /// Another.
        second: Text,
        /// The server with both.
        server: Text,
    },
    /// Nobody has the tag.
    #[error("Could not find any servers with server tag `{0}`.")]
    NoServers(Text),
    /// Fewer servers than replicas.
    #[error(
        "Can't put {wanted} replicas on servers with the tag `{tag}` because there are only {servers} servers with \
         the tag `{tag}`. It's impossible to have more replicas of the data than there are servers."
    )]
    TooFewServers {
        /// How many replicas.
        wanted: usize,
        /// Where.
        tag: Text,
        /// How many servers there are.
        servers: usize,
    },
}

/// A change to databases, tables or users that did not happen, or may not have.
///
/// The text of a variant is ReQL's where ReQL has one; drivers and people match on it.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Whoever asks may not do that; why not, is known where it was asked.
    #[error("The change is not permitted.")]
    Forbidden,
    /// A database of that name is there already.
    #[error("Database `{0}` already exists.")]
    DbExists(Text),
    /// Renaming would hide another database.
    #[error("Cannot rename database `{from}` to `{to}` because database `{to}` already exists.")]
    DbRenameTaken {
        /// The name it has.
        from: Text,
        /// The name that is taken.
        to: Text,
    },
    /// No database of that name.
    #[error("Database `{0}` does not exist.")]
    DbMissing(Text),
    /// A table of that name is there already.
    #[error("Table `{db}.{table}` already exists.")]
    TableExists {
        /// The database's name.
        db: Text,
        /// The table's name.
        table: Text,
    },
    /// No table of that name.
    #[error("Table `{db}.{table}` does not exist.")]
    TableMissing {
        /// The database's name.
        db: Text,
        /// The table's name.
        table: Text,
    },
    /// Renaming would hide another table.
    #[error("Can't rename table `{from}` to `{to}` because table `{to}` already exists.")]
    RenameTaken {
        /// The database and the name it has, with a point between.
        from: Text,
        /// Those that are taken.
        to: Text,
    },
    /// An index of that name is there already.
    #[error("Index `{}` already exists on table `{}.{}`.", .0.index, .0.db, .0.table)]
    IndexExists(Box<IndexName>),
    /// No index of that name.
    #[error("Index `{}` does not exist on table `{}.{}`.", .0.index, .0.db, .0.table)]
    IndexMissing(Box<IndexName>),
    /// The index is missing, or its new name is taken.
    #[error(
        "Index `{}` does not exist or index `{to}` already exists on table `{}.{}`.",
        .from.index, .from.db, .from.table
    )]
    IndexRename {
        /// The index.
        from: Box<IndexName>,
        /// The name it was to get.
        to: Text,
    },
    /// More shards than a table may have.
    #[error("Maximum number of shards is {0}.")]
    TooManyShards(usize),
    /// No such account.
    #[error("User `{0}` not found.")]
    UserMissing(Text),
    /// `admin` is fixed.
    #[error("The permissions of the user `admin` can't be modified.")]
    AdminFixed,
    /// `admin` stays.
    #[error("The user `admin` can't be deleted.")]
    AdminStays,
    /// What is wanted cannot be placed on the servers there are.
    #[error("{0}")]
    Placement(#[from] PlacementError),
    /// The shards of the table have no leaders, or changed meanwhile.
    #[error(
        "The shards of this table could not be brought together to divide it anew, because its replicas changed \
         or did not agree on a leader meanwhile. No row was changed; try again."
    )]
    ReplicasNotReady,
    /// Too few of the replicas of some shards can be reached. Nothing was changed.
    #[error(
        "Some shards of this table have no majority of their replicas, because {servers} cannot be reached. Connect what \
         is missing, or if it is gone for good, use `emergency_repair`."
    )]
    NoMajority {
        /// The names of the servers.
        servers: String,
    },
    /// A group that is to go has not finished what was written to it.
    #[error("group {0} has not finished what was written to it")]
    Unfinished(log::GroupId),
    /// A replica is wanted where another of the same shard is on its way out.
    #[error("A replica on server `{server}` is still being removed; try again when it has gone.")]
    StillBeingRemoved {
        /// The server's name.
        server: String,
    },
    /// No such server.
    #[error("There is no server with UUID `{0}`.")]
    ServerMissing(ServerId),
    /// Another server has the name.
    #[error("Cannot rename server `{from}` to `{to}` because server `{to}` already exists.")]
    ServerNameTaken {
        /// The name it has.
        from: Text,
        /// The name that is taken.
        to: Text,
    },
    /// Every shard has a majority.
    #[error("This table doesn't need to be repaired.")]
    NothingToRepair,
    /// No replica of some shards can be reached.
    #[error(
        "One or more shards of this table have no available replicas. Since there are no available copies of the \
         data that was stored in those shards, those shards cannot be repaired. If you run the command again with \
         `emergency_repair` set to `unsafe_rollback_or_erase`, those shards will be reset to an empty, but \
         writeable state; but if the missing replicas later reconnect, the original data that was stored on them \
         will be lost permanently."
    )]
    NoCopies,
    /// Links could not be as impatient.
    #[error("The heartbeat timeout must be at least two seconds")]
    HeartbeatTooShort,
    /// A server that is there cannot be removed for good.
    #[error("Server `{0}` is connected; stop it before it is removed for good.")]
    ServerConnected(Text),
    /// A server that is to be removed for good is connected to others.
    #[error(
        "Server {server} is connected to {by}, though not to the server that was asked to remove it; stop it before it is \
         removed for good."
    )]
    ServerConnectedElsewhere {
        /// The server's name.
        server: String,
        /// The names of those that see it.
        by: String,
    },
    /// An emergency repair would give up servers that others see.
    #[error(
        "{servers} cannot be reached from the server that was asked, but from {by}. Nobody is given up whom another server \
         sees: ask a server that is connected to all of them, or mend the network."
    )]
    ConnectedElsewhere {
        /// The names of those that are seen by others alone.
        servers: String,
        /// The names of those that see them.
        by: String,
    },
    /// Servers are connected and may see others whom an emergency repair would give up, or one that is to be removed for
    /// good.
    #[error(
        "{servers} did not say which servers can be reached from there. Nobody is given up or removed whom another server \
         sees: wait until there is an answer, or stop what hangs."
    )]
    ServersSilent {
        /// Their names.
        servers: String,
    },
    /// Connections came or went while it was found out who is lost.
    #[error("Servers were connected or lost just now; try again.")]
    ConnectionsChanged,
    /// The catalog would have to be repaired as well, which whoever asks may not do.
    #[error("The configuration of the cluster has no majority, and has to be repaired before this table.")]
    CatalogFirst,
    /// Rows would be lost with the server.
    #[error(
        "Server `{server}` has the only voting replica of a shard of table `{table}`. Bring it back, or if it is gone for \
         good, use `emergency_repair` with '{}' on that table first.",
        rest.mode()
    )]
    OnlyReplica {
        /// The server's name.
        server: Text,
        /// The database's name and the table's, with a point between.
        table: String,
        /// Who is left.
        rest: RepairNeeded,
    },
    /// Shards would be left without a majority, and rows be lost with the server.
    #[error(
        "Server `{server}` has replicas of shards of {tables} that have no majority of their replicas without it. Bring \
         it back, or if it is gone for good, use `emergency_repair` on each of these tables first."
    )]
    NeededForMajority {
        /// The server's name.
        server: Text,
        /// The tables' names, or those of some of them.
        tables: String,
    },
    /// An emergency repair has set members of groups by force, and did not come to its end.
    #[error(
        "The emergency repair has begun and is not finished, and what it did stays. Use `emergency_repair` again to go \
         on with it. What happened: {0}"
    )]
    RepairBegun(String),
    /// Nobody leads the catalog: fewer than half of its voters are connected.
    #[error("The server(s) hosting the catalog have no majority; nothing was changed.")]
    NoCatalog,
    /// The catalog has changed, and the log of this node, which does not get on, has not heard how.
    #[error(
        "The configuration of the cluster has changed, and the server that was asked does not know how, because its log \
         does not get on (`current_issues` says why); nothing was changed. Ask another server."
    )]
    Outdated,
    /// The catalog has lost its majority.
    #[error(
        "The server(s) hosting the catalog have no majority, because {servers} cannot be reached; nothing was changed. \
         Connect what is missing, or if it is gone for good, use `reconfigure` with `emergency_repair` on the database \
         `rethinkdb`."
    )]
    CatalogNoMajority {
        /// The names of the servers.
        servers: String,
    },
    /// Most who vote on the catalog are connected.
    #[error("The configuration of the cluster doesn't need to be repaired.")]
    CatalogHasMajority,
    /// Servers that are away may have begun new shards of the table with rows that nobody else has.
    #[error(
        "the last rows of this table may be with {servers} alone, in shards that have just begun; connect them, or if \
         they are gone for good, delete their rows from `server_config`, and repair again"
    )]
    RowsUnreachable {
        /// Their names.
        servers: String,
    },
    /// The leader of the catalog did not take the change, or a row of it could not be read by anyone.
    #[error("the catalog could not be written: {0}")]
    Refused(String),
    /// It is not known whether the change took place.
    #[error(
        "The server(s) hosting the catalog did not confirm the change, which may or may not have been made ({0})."
    )]
    InDoubt(String),
    /// A shard could not make its writes durable.
    #[error("a shard could not be written: {0}")]
    Write(#[from] WriteError),
    /// The engine failed while rows or catalog were read or removed.
    #[error("the storage engine failed: {0}")]
    Engine(#[from] engine::EngineError),
    /// A row of the catalog or of a table could not be read.
    #[error("a stored row could not be read: {0}")]
    Read(#[from] shard::ReadError),
    /// Rows of a replica that is not here any more could not be removed.
    #[error("the rows of a shard could not be removed: {0}")]
    Clear(#[from] shard::RestoreError),
    /// A shard could not be opened.
    #[error("a shard could not be opened: {0}")]
    Open(#[from] shard::OpenError),
    /// A log group could not be closed.
    #[error("a shard's log could not be closed: {0}")]
    Close(#[from] log::LogError),
}

impl AdminError {
    /// Whether it is unknown if the change took effect.
    #[must_use]
    pub fn is_indeterminate(&self) -> bool {
        match self {
            AdminError::Write(error) => !error.is_definite(),
            AdminError::InDoubt(_) | AdminError::RepairBegun(_) => true,
            _ => false,
        }
    }
}

/// A node that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The identity file is missing parts or damaged.
    #[error("the identity file {path} cannot be read: {why}")]
    Identity {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// A catalog row does not have the expected form.
    #[error("catalog row {key} cannot be read: {why}")]
    CatalogRow {
        /// The row's key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file could not be read or written.
    #[error("a file of the data directory could not be read or written: {0}")]
    Io(#[from] std::io::Error),
    /// The cluster has removed this server for good.
    #[error(
        "this server was permanently removed from its cluster; a server with a new data directory can join"
    )]
    Removed,
    /// The cluster did not let this server in.
    #[error("the cluster could not be joined: {0}")]
    Join(String),
    /// Something an administrative change can meet as well.
    #[error(transparent)]
    Admin(#[from] AdminError),
}
