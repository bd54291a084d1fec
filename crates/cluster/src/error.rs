//! The errors of administrative changes and of opening a node.

use datum::Text;
use shard::WriteError;

use crate::config::ServerId;

/// The full name of an index, for error texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexName {
    /// The database's name.
    pub db: Text,
    /// The table's name.
    pub table: Text,
    /// The index's name.
    pub index: Text,
}

/// The emergency repair that a shard needs once its only voting replica is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairNeeded {
    /// `unsafe_rollback`: there are replicas that do not vote and may have rows.
    Rollback,
    /// `unsafe_rollback_or_erase`: there are no other replicas.
    Erase,
}

impl RepairNeeded {
    /// The mode of the emergency repair. `unsafe_rollback` fails with its own error if the other replicas have no rows.
    fn mode(self) -> &'static str {
        match self {
            RepairNeeded::Rollback => "unsafe_rollback",
            RepairNeeded::Erase => "unsafe_rollback_or_erase",
        }
    }
}

/// The reason why the requested replicas cannot be placed on the cluster's servers. The texts are ReQL's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No replicas are requested.
    #[error(
        "You must set `replicas` to at least one. `replicas` includes the primary replica; if there are zero \
         replicas, there is nowhere to put the data."
    )]
    NoReplicas,
    /// More shards than a table may have.
    #[error("Maximum number of shards is {0}.")]
    TooManyShards(usize),
    /// The tag for primaries has no replicas.
    #[error(
        "Can't use server tag `{0}` for primary replicas because you specified no replicas in server tag `{0}`."
    )]
    NoPrimaries(Text),
    /// A tag for nonvoting replicas has no replicas.
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
        /// One tag.
        first: Text,
        /// The other tag.
        second: Text,
        /// The server with both tags.
        server: Text,
    },
    /// No server has the tag.
    #[error("Could not find any servers with server tag `{0}`.")]
    NoServers(Text),
    /// Fewer servers have the tag than replicas are requested there.
    #[error(
        "Can't put {wanted} replicas on servers with the tag `{tag}` because there are only {servers} servers with \
         the tag `{tag}`. It's impossible to have more replicas of the data than there are servers."
    )]
    TooFewServers {
        /// The number of requested replicas.
        wanted: usize,
        tag: Text,
        /// The number of servers with the tag.
        servers: usize,
    },
}

/// The reason why an administrative change failed, or why its outcome is unknown.
///
/// The text of a variant is ReQL's where ReQL has one, because drivers and users match on it.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The caller's check of permissions refused the change; the caller replaces this error by its own.
    #[error("The change is not permitted.")]
    Forbidden,
    /// A database with this name exists.
    #[error("Database `{0}` already exists.")]
    DbExists(Text),
    /// Another database has the new name.
    #[error("Cannot rename database `{from}` to `{to}` because database `{to}` already exists.")]
    DbRenameTaken {
        /// The current name.
        from: Text,
        /// The new name.
        to: Text,
    },
    /// No database has this name.
    #[error("Database `{0}` does not exist.")]
    DbMissing(Text),
    /// A table with this name exists.
    #[error("Table `{db}.{table}` already exists.")]
    TableExists {
        /// The database's name.
        db: Text,
        /// The table's name.
        table: Text,
    },
    /// No table has this name.
    #[error("Table `{db}.{table}` does not exist.")]
    TableMissing {
        /// The database's name.
        db: Text,
        /// The table's name.
        table: Text,
    },
    /// Another table has the new name.
    #[error("Can't rename table `{from}` to `{to}` because table `{to}` already exists.")]
    RenameTaken {
        /// The database and the current name, `db.table`.
        from: Text,
        /// The database and the new name, `db.table`.
        to: Text,
    },
    #[error("Index `{}` already exists on table `{}.{}`.", .0.index, .0.db, .0.table)]
    IndexExists(Box<IndexName>),
    /// No index has this name.
    #[error("Index `{}` does not exist on table `{}.{}`.", .0.index, .0.db, .0.table)]
    IndexMissing(Box<IndexName>),
    /// The index is missing, or its new name is taken.
    #[error(
        "Index `{}` does not exist or index `{to}` already exists on table `{}.{}`.",
        .from.index, .from.db, .from.table
    )]
    IndexRename {
        from: Box<IndexName>,
        /// Its new name.
        to: Text,
    },
    /// More shards than a table may have.
    #[error("Maximum number of shards is {0}.")]
    TooManyShards(usize),
    /// No user has this name.
    #[error("User `{0}` not found.")]
    UserMissing(Text),
    /// The permissions of `admin` cannot change.
    #[error("The permissions of the user `admin` can't be modified.")]
    AdminFixed,
    /// The user `admin` cannot be deleted.
    #[error("The user `admin` can't be deleted.")]
    AdminStays,
    /// The saved query was changed or deleted since it was read.
    #[error("The saved query `{0}` was changed or deleted meanwhile. Read it again.")]
    SavedQueryChanged(Text),
    /// The name of a saved query is empty, or has more bytes than this.
    #[error("The name of a saved query needs 1 to {0} bytes.")]
    SavedQueryName(usize),
    /// The saved queries of a user would be too large.
    #[error("The saved queries of user `{owner}` may have 1 MiB together. Delete some of them.")]
    SavedQueriesFull { owner: Text },
    /// The saved queries of all users would be too large.
    #[error("The saved queries of all users may have 16 MiB together. Delete some of them.")]
    AllSavedQueriesFull,
    /// The saved query belongs to another user.
    #[error("The saved query `{name}` belongs to user `{owner}`.")]
    SavedQueryOfOther { name: Text, owner: Text },
    /// The requested replicas cannot be placed on the cluster's servers.
    #[error("{0}")]
    Placement(#[from] PlacementError),
    /// The replicas of a shard were not ready for a reshard: they had no leader, or they changed during it.
    #[error(
        "This table could not be resharded, because its replicas changed or did not agree on a leader meanwhile. No row was \
         changed; try again."
    )]
    ReplicasNotReady,
    /// Some shards have no quorum of connected replicas. Nothing was changed.
    #[error(
        "Some shards of this table have no majority of their replicas, because {servers} cannot be reached. Connect them, \
         or if they are permanently lost, use `emergency_repair`."
    )]
    NoQuorum {
        /// The names of the servers.
        servers: String,
    },
    /// A group that is to be closed has pending writes.
    #[error("group {0} has pending writes")]
    Unfinished(log::GroupId),
    /// A server would get a replica while its old replica of the same shard is still being removed.
    #[error("A replica on server `{server}` is still being removed; try again when it is gone.")]
    StillBeingRemoved {
        /// The server's name.
        server: String,
    },
    /// No server has this id.
    #[error("There is no server with UUID `{0}`.")]
    ServerMissing(ServerId),
    /// Another server has the new name.
    #[error("Cannot rename server `{from}` to `{to}` because server `{to}` already exists.")]
    ServerNameTaken {
        /// The current name.
        from: Text,
        /// The new name.
        to: Text,
    },
    /// Every shard has a quorum.
    #[error("This table doesn't need to be repaired.")]
    NothingToRepair,
    /// Some shards have no connected replica.
    #[error(
        "One or more shards of this table have no available replicas. Since there are no available copies of the \
         data that was stored in those shards, those shards cannot be repaired. If you run the command again with \
         `emergency_repair` set to `unsafe_rollback_or_erase`, those shards will be reset to an empty, but \
         writeable state; but if the missing replicas later reconnect, the original data that was stored on them \
         will be lost permanently."
    )]
    NoCopies,
    /// The heartbeat timeout is below the minimum of two seconds.
    #[error("The heartbeat timeout must be at least two seconds")]
    HeartbeatTooShort,
    /// A server that is to be permanently removed is connected.
    #[error("Server `{0}` is connected; stop it before you remove it permanently.")]
    ServerConnected(Text),
    /// A server that is to be permanently removed is connected to other servers, though not to this one.
    #[error(
        "Server {server} is connected to {by}, though not to the server that was asked to remove it; stop it before you \
         remove it permanently."
    )]
    ServerConnectedElsewhere {
        /// The server's name.
        server: String,
        /// The names of the servers that are connected to it.
        by: String,
    },
    /// An emergency repair would treat servers as lost that other servers are connected to.
    #[error(
        "{servers} cannot be reached from the server that was asked, but from {by}. A server that another server is \
         connected to is not lost: use a server that is connected to all of them, or fix the network."
    )]
    ConnectedElsewhere {
        /// The names of the servers that only other servers are connected to.
        servers: String,
        /// The names of the servers that are connected to them.
        by: String,
    },
    /// Connected servers did not respond. They may be connected to a server that an emergency repair would treat as
    /// lost, or that is to be permanently removed.
    #[error(
        "{servers} did not say which servers can be reached from there. A server that another server is connected to is \
         neither lost nor removed: wait until they respond, or stop the servers that hang."
    )]
    ServersSilent {
        /// Their names.
        servers: String,
    },
    /// Connections changed while the lost servers were determined.
    #[error("Servers were connected or lost just now; try again.")]
    ConnectionsChanged,
    /// The catalog has to be repaired first, and the caller has no permission for that.
    #[error("The configuration of the cluster has no majority, and has to be repaired before this table.")]
    CatalogFirst,
    /// The removal of the server would lose rows.
    #[error(
        "Server `{server}` has the only voting replica of a shard of table `{table}`. Bring it back, or if it is \
         permanently lost, use `emergency_repair` with '{}' on that table first.",
        repair.mode()
    )]
    OnlyReplica {
        /// The server's name.
        server: Text,
        /// The database's name and the table's, `db.table`.
        table: String,
        /// The repair that the shard needs first.
        repair: RepairNeeded,
    },
    /// The removal of the server would leave shards without a quorum, and could lose rows.
    #[error(
        "Server `{server}` has replicas of shards of {tables} that have no majority of their replicas without it. Bring \
         it back, or if it is permanently lost, use `emergency_repair` on each of these tables first."
    )]
    NeededForQuorum {
        /// The server's name.
        server: Text,
        /// The names of the tables, or of some of them.
        tables: String,
    },
    /// An emergency repair has forced the members of some groups and then failed.
    #[error(
        "The emergency repair was started but not completed, and its changes so far remain. Use `emergency_repair` again to \
         continue it. The error was: {0}"
    )]
    RepairBegun(String),
    /// The catalog has no leader.
    #[error("The server(s) hosting the catalog have no majority; nothing was changed.")]
    NoCatalog,
    /// The catalog has changed, and this node does not have the change because its log makes no progress.
    #[error(
        "The configuration of the cluster has changed, and the server that was asked does not know how, because its log \
         makes no progress (`current_issues` says why); nothing was changed. Use another server."
    )]
    Outdated,
    /// The catalog has no quorum of connected voters.
    #[error(
        "The server(s) hosting the catalog have no majority, because {servers} cannot be reached; nothing was changed. \
         Connect them, or if they are permanently lost, use `reconfigure` with `emergency_repair` on the database \
         `rethinkdb`."
    )]
    CatalogNoQuorum {
        /// The names of the servers.
        servers: String,
    },
    /// A quorum of the catalog's voters is connected.
    #[error("The configuration of the cluster doesn't need to be repaired.")]
    CatalogHasQuorum,
    /// Servers that are not connected may have founded new shards of the table, with rows that no other server has.
    #[error(
        "the last rows of this table may be on {servers} only, in new shards; connect them, or if they are permanently \
         lost, delete their rows from `server_config`, and repair again"
    )]
    RowsUnreachable {
        /// Their names.
        servers: String,
    },
    /// The leader of the catalog refused the change, or a row of the change could not be read back.
    #[error("the catalog could not be written: {0}")]
    Refused(String),
    /// It is unknown whether the change was made.
    #[error(
        "The server(s) hosting the catalog did not confirm the change, which may or may not have been made ({0})."
    )]
    InDoubt(String),
    /// A shard could not make its writes durable.
    #[error("a shard could not be written: {0}")]
    Write(#[from] WriteError),
    /// The storage engine failed while it read or removed rows.
    #[error("the storage engine failed: {0}")]
    Engine(#[from] engine::EngineError),
    /// A row of the catalog or of a table could not be read.
    #[error("a stored row could not be read: {0}")]
    Read(#[from] shard::ReadError),
    /// The rows of a removed replica could not be deleted.
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
    /// Whether it is unknown if the change was made.
    #[must_use]
    pub fn is_indeterminate(&self) -> bool {
        match self {
            AdminError::Write(error) => !error.is_definite(),
            AdminError::InDoubt(_) | AdminError::RepairBegun(_) => true,
            _ => false,
        }
    }

    /// Whether stored data is damaged.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            AdminError::Engine(cause) | AdminError::Read(shard::ReadError::Engine(cause)) => {
                matches!(cause, engine::EngineError::Corrupt { .. })
            }
            AdminError::Read(cause) => {
                matches!(cause, shard::ReadError::Corrupt { .. } | shard::ReadError::CorruptMeta { .. })
            }
            _ => false,
        }
    }
}

/// The reason why a node could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The identity file is damaged or incomplete.
    #[error("the identity file {path} cannot be read: {why}")]
    Identity {
        /// The path of the file.
        path: String,
        why: String,
    },
    /// A catalog row does not have the expected form.
    #[error("catalog row {key} cannot be read: {why}")]
    CatalogRow {
        /// The row's key.
        key: String,
        why: String,
    },
    /// A file could not be read or written.
    #[error("a file of the data directory could not be read or written: {0}")]
    Io(#[from] std::io::Error),
    /// This server was permanently removed from its cluster.
    #[error(
        "this server was permanently removed from its cluster; a server with a new data directory can join"
    )]
    Removed,
    /// The cluster refused this server, or did not respond.
    #[error("the cluster could not be joined: {0}")]
    Join(String),
    /// An error that administrative changes have too.
    #[error(transparent)]
    Admin(#[from] AdminError),
}
