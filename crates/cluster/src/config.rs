//! The facts the catalog keeps about databases, tables and shards.

use std::fmt;

use datum::{Bytes, Text};
use uuid::Uuid;

use log::Durability;
pub use log::GroupId;
use reql::StoredFunc;
use storage::TableId;

use crate::indexes::TableIndexes;

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
    /// The word used in `table_config`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WriteAcks::Majority => "majority",
            WriteAcks::Single => "single",
        }
    }
}

/// One key range of a table and the log group that orders its writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// The group, never used again once the shard is gone.
    pub group: GroupId,
    /// The first encoded primary key of the range; empty for the first shard. The range
    /// ends where the next shard starts.
    pub start: Bytes,
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
