//! What the catalog says of databases, tables, shards, servers and users, as plain values.
//!
//! Nothing here reads or writes: [`crate::Catalog`] is one version of all of it, `catalog::row` its stored form.

use std::cmp::Ordering;
use std::fmt;

use datum::{Bytes, Text};
use uuid::Uuid;

use log::Durability;
pub use log::{GroupId, PeerId};
use reql::StoredFunc;
use storage::TableId;

pub(crate) mod boundaries;
#[cfg(test)]
pub(crate) mod fixture;
mod ids;
mod indexes;
mod shard_history;
mod temporary;
mod users;

pub(crate) use ids::Ids;
pub use indexes::{IndexConfig, TableIndexes};
pub use temporary::Temporary;
pub use users::{Grant, PasswordChange, Permissions, Scope, User};

/// The group of the catalog, and its table.
pub(crate) const CATALOG_GROUP: GroupId = GroupId(0);
pub(crate) const CATALOG_TABLE: Uuid = Uuid::nil();

/// Names a database for as long as it exists, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DbId(pub Uuid);

/// Names a server for good; written into its data directory when that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerId(pub Uuid);

/// The order of its bytes, compared as one number: servers are found in maps for every message between them.
impl Ord for ServerId {
    fn cmp(&self, other: &ServerId) -> Ordering {
        self.0.as_u128().cmp(&other.0.as_u128())
    }
}

impl PartialOrd for ServerId {
    fn partial_cmp(&self, other: &ServerId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for DbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbConfig {
    /// Its identity.
    pub id: DbId,
    /// Its present name, unique among databases.
    pub name: Text,
}

/// How many voting replicas must hold a write before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAcks {
    /// More than half of them.
    Majority,
    /// One.
    Single,
}

impl WriteAcks {
    /// The same for the log.
    pub(crate) fn acks(self) -> log::Acks {
        match self {
            WriteAcks::Majority => log::Acks::Majority,
            WriteAcks::Single => log::Acks::One,
        }
    }

    /// The word used in `table_config`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WriteAcks::Majority => "majority",
            WriteAcks::Single => "single",
        }
    }
}

/// One replica of a shard: on which server, and its name among the members of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// The server that holds it.
    pub server: ServerId,
    /// Its name in the group, drawn when it is placed and never used again.
    pub peer: PeerId,
    /// Whether it counts in majorities and may lead.
    pub voting: bool,
}

/// One key range of a table and the log group that orders its writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// The group, never used again once the shard is gone.
    pub group: GroupId,
    /// The first encoded primary key of the range; empty for the first shard. The range
    /// ends where the next shard starts.
    pub start: Bytes,
    /// Its replicas, each on another server. Empty in catalogs written before there were several
    /// servers: the only server has the only replica.
    pub replicas: Vec<ReplicaConfig>,
    /// Replicas on their way out: they serve until the others have everything.
    pub leaving: Vec<ReplicaConfig>,
    /// What some of the replicas have only until a division is done, or given up.
    pub added: Vec<Temporary>,
    /// The server that leads when it can.
    pub primary: ServerId,
    /// The voters that the group began with; whoever comes later joins them.
    pub founders: Vec<PeerId>,
}

/// A server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its identity.
    pub id: ServerId,
    /// Its present name.
    pub name: Text,
    /// Its tags, in the order they were given.
    pub tags: Vec<Text>,
    /// Its cache in megabytes; `None` chooses by the machine's memory.
    pub cache_size_mb: Option<u64>,
    /// Where its cluster port can be reached, `host:port`, the best first.
    pub addresses: Vec<Text>,
    /// Its replica of the catalog.
    pub catalog: ReplicaConfig,
    /// Whether it only answers clients: it holds nothing, and is forgotten when it goes.
    pub is_proxy: bool,
}

/// A table as `table_config` describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableConfig {
    /// Its identity, under which its rows are stored.
    pub id: TableId,
    /// The database it belongs to.
    pub db: DbId,
    /// Its present name, unique in its database.
    pub name: Text,
    /// The field that holds the primary key.
    pub primary_key: Text,
    /// What a write waits for unless its query says otherwise.
    pub durability: Durability,
    /// How many replicas must hold a write.
    pub write_acks: WriteAcks,
    /// Its secondary indexes.
    pub indexes: TableIndexes,
    /// What every write of a row is shown to, and may change: `(context, old, new) => row`.
    pub write_hook: Option<StoredFunc>,
    /// The shards in key order, at least one; together they cover every key.
    pub shards: Vec<ShardConfig>,
    /// How it came by them.
    pub lineage: ShardHistory,
}

/// What a table keeps of its shards before the present ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardHistory {
    /// How often the table got other shards, or an attempt at that was given up.
    pub epoch: u64,
    /// The groups before, while somebody waits for what they have.
    pub sealed: Vec<SealedShard>,
    /// The servers that found shards and have not yet said that they have everything.
    pub waiting: Vec<ServerId>,
}

/// A key range and the group that ordered its writes until it was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedShard {
    /// The group.
    pub group: GroupId,
    /// The first encoded primary key of the range; empty for the first.
    pub start: Bytes,
    /// The first key after the range; `None` for the last.
    pub end: Option<Bytes>,
    /// The members that the catalog knew of.
    pub replicas: Vec<ReplicaConfig>,
    /// The table's epoch in which it was sealed.
    pub epoch: u64,
}

impl ShardConfig {
    /// All replicas, those that are leaving too.
    pub(crate) fn all_replicas(&self) -> impl Iterator<Item = &ReplicaConfig> {
        self.replicas.iter().chain(&self.leaving)
    }

    /// The replica on `server`, wanted or leaving.
    pub(crate) fn replica_on(&self, server: ServerId) -> Option<&ReplicaConfig> {
        self.replicas.iter().chain(&self.leaving).find(|replica| replica.server == server)
    }

    /// The same, if it is one of those that the group begins with.
    pub(crate) fn founder_on(&self, server: ServerId) -> Option<&ReplicaConfig> {
        self.replica_on(server).filter(|replica| self.founders.contains(&replica.peer))
    }

    /// The server that stands for election first: the primary if the group begins with a replica there.
    pub(crate) fn first_candidate(&self) -> Option<ServerId> {
        self.candidates().first().copied()
    }

    /// The servers that the group begins on, in the order in which they stand for its first election.
    pub(crate) fn candidates(&self) -> Vec<ServerId> {
        let founders = self.replicas.iter().chain(&self.leaving).filter(|r| self.founders.contains(&r.peer));
        let mut servers: Vec<ServerId> = founders.map(|replica| replica.server).collect();
        servers.sort_by_key(|server| *server != self.primary);
        servers
    }
}

/// The word used in `table_config` for a durability.
#[must_use]
pub fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Hard => "hard",
        Durability::Soft => "soft",
    }
}
