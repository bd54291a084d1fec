//! The configuration of databases, tables, shards, servers and users, as plain values.
//!
//! Nothing here does I/O or takes a lock. [`crate::Catalog`] holds one version of all of these values; `catalog::row`
//! converts them to rows and back.
//!
//! - [`TableConfig`], [`ShardConfig`], [`ReplicaConfig`]: a table, its key ranges, and their replicas (this file).
//! - [`ServerConfig`], [`ServerId`]: a server (this file).
//! - `temporary`: replicas that a shard has only during a reshard.
//! - `shard_history`: the sealed shards that a table had before a reshard.
//! - `boundaries`: start keys of shards, and the lookup of the shard of a key.
//! - `indexes`, `users`: secondary indexes; accounts and their permissions.
//! - `ids`: generates random ids.

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
pub use users::{Grant, PasswordChange, Permissions, SavedQuery, Scope, User};

/// The log group of the catalog: group zero.
pub(crate) const CATALOG_GROUP: GroupId = GroupId(0);
/// The id of the table that stores the catalog's rows.
pub(crate) const CATALOG_TABLE: Uuid = Uuid::nil();

/// The id of a database. It stays the same when the database is renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DbId(pub Uuid);

/// The permanent id of a server, written into its data directory when that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerId(pub Uuid);

/// The order of the bytes, compared as one number because it is faster: every message between servers looks up a server in
/// a map.
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
    pub id: DbId,
    /// Its current name, unique among databases.
    pub name: Text,
}

/// How many voting replicas must hold a write before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAcks {
    /// More than half of the voting replicas.
    Majority,
    /// One replica.
    Single,
}

impl WriteAcks {
    /// The same setting for the log.
    pub(crate) fn acks(self) -> log::Acks {
        match self {
            WriteAcks::Majority => log::Acks::Majority,
            WriteAcks::Single => log::Acks::One,
        }
    }

    /// The name of the setting in `table_config`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WriteAcks::Majority => "majority",
            WriteAcks::Single => "single",
        }
    }
}

/// One replica of a shard: its server, and its id in the log group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    pub server: ServerId,
    /// Its id in the group, random and never reused.
    pub peer: PeerId,
    /// Whether it counts in quorums and may lead.
    pub voting: bool,
}

/// One key range of a table and the log group that orders its writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// The log group; its number is never reused.
    pub group: GroupId,
    /// The first encoded primary key of the range; empty for the first shard. The range ends where the next shard starts.
    pub start: Bytes,
    /// Its replicas, each on a different server. Empty in catalogs of versions that had only one server: that server has
    /// the only replica.
    pub replicas: Vec<ReplicaConfig>,
    /// Replicas that are being removed. They serve until the other replicas have all rows.
    pub leaving: Vec<ReplicaConfig>,
    /// Which of the replicas, or of their votes, are temporary: they exist only until a reshard succeeds or is abandoned. The
    /// stored name of the field is `added`.
    pub temporary: Vec<Temporary>,
    /// The server of the preferred leader.
    pub primary: ServerId,
    /// The voters that the group began with. Later replicas join the group as learners.
    pub founders: Vec<PeerId>,
}

/// A server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    pub id: ServerId,
    /// Its current name.
    pub name: Text,
    /// Its tags, in the order they were given.
    pub tags: Vec<Text>,
    /// The size of its cache in megabytes; `None` derives it from the machine's memory.
    pub cache_size_mb: Option<u64>,
    /// The addresses of its cluster port, `host:port`, the preferred one first.
    pub addresses: Vec<Text>,
    pub catalog: ReplicaConfig,
    /// Whether it is a proxy: it answers clients, holds no data, and is removed from the catalog when it stops.
    pub is_proxy: bool,
}

/// A table as `table_config` describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableConfig {
    /// Its id, part of the key of every stored row.
    pub id: TableId,
    /// The database it belongs to.
    pub db: DbId,
    /// Its current name, unique in its database.
    pub name: Text,
    /// The field that holds the primary key.
    pub primary_key: Text,
    /// The durability of a write whose query does not set one.
    pub durability: Durability,
    /// How many replicas must hold a write.
    pub write_acks: WriteAcks,
    pub indexes: TableIndexes,
    /// A function that receives every write of a row and may change it: `(context, old, new) => row`.
    pub write_hook: Option<StoredFunc>,
    /// The shards in key order, at least one; together they cover every key.
    pub shards: Vec<ShardConfig>,
    /// Its shards before the last reshard, as far as they are still needed. The stored name of the field is `lineage`.
    pub history: ShardHistory,
}

/// The shards that a table had before its current ones, as far as a server still needs them. Decision 0024.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardHistory {
    /// The number of reshards so far, abandoned ones included.
    pub epoch: u64,
    /// The sealed groups of the previous shards, kept while a server in `waiting` may need their logs.
    pub sealed: Vec<SealedShard>,
    /// The servers that are founders of current shards and have not yet confirmed that they have all rows durably.
    pub waiting: Vec<ServerId>,
    /// Sealed groups that no server needs any more, the latest last. Changefeeds that have come to their ends find the
    /// groups there that continue them.
    pub past: Vec<SealedShard>,
}

/// A key range and the group that ordered its writes until it was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedShard {
    /// The sealed log group.
    pub group: GroupId,
    /// The first encoded primary key of the range; empty for the first range.
    pub start: Bytes,
    /// The first key after the range; `None` for the last range.
    pub end: Option<Bytes>,
    /// The replicas according to the catalog at that time.
    pub replicas: Vec<ReplicaConfig>,
    /// The epoch of the table in which it was sealed.
    pub epoch: u64,
}

impl ShardConfig {
    /// All replicas, including the ones that are being removed.
    pub(crate) fn all_replicas(&self) -> impl Iterator<Item = &ReplicaConfig> {
        self.replicas.iter().chain(&self.leaving)
    }

    /// The replica on `server`, also if it is being removed.
    pub(crate) fn replica_on(&self, server: ServerId) -> Option<&ReplicaConfig> {
        self.replicas.iter().chain(&self.leaving).find(|replica| replica.server == server)
    }

    pub(crate) fn founder_on(&self, server: ServerId) -> Option<&ReplicaConfig> {
        self.replica_on(server).filter(|replica| self.founders.contains(&replica.peer))
    }

    /// The server that stands for election first: the primary if it has a founder.
    pub(crate) fn first_candidate(&self) -> Option<ServerId> {
        self.candidates().first().copied()
    }

    /// The servers of the founders, in the order in which they stand for the group's first election: the primary first.
    pub(crate) fn candidates(&self) -> Vec<ServerId> {
        let founders = self.replicas.iter().chain(&self.leaving).filter(|r| self.founders.contains(&r.peer));
        let mut servers: Vec<ServerId> = founders.map(|replica| replica.server).collect();
        servers.sort_by_key(|server| *server != self.primary);
        servers
    }
}

/// The name of a durability in `table_config`.
#[must_use]
pub fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Hard => "hard",
        Durability::Soft => "soft",
    }
}
