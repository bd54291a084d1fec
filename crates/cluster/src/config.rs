//! The facts the catalog keeps about databases, tables and shards.

use std::fmt;

use datum::{Bytes, Text};
use uuid::Uuid;

use log::Durability;
pub use log::{GroupId, PeerId};
use reql::StoredFunc;
use storage::TableId;

use crate::index_config::TableIndexes;

/// Names a database for as long as it exists, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DbId(pub Uuid);

/// Names a server for good; written into its data directory when that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub Uuid);

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
}

/// The word used in `table_config` for a durability.
#[must_use]
pub fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Hard => "hard",
        Durability::Soft => "soft",
    }
}
