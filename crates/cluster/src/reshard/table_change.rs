//! A change of a table's configuration.

use datum::Text;
use log::Durability;
use reql::StoredFunc;

use crate::catalog::DesiredShards;
use crate::config::{DbId, TableCompression, WriteAcks};

/// A change to a table's configuration; `None` leaves a setting as it is.
#[derive(Clone, Debug, Default)]
pub struct TableChange {
    pub name: Option<Text>,
    /// The database it is in. Rows and shards stay where they are; permissions on the table move with it.
    pub db: Option<DbId>,
    /// The durability that its writes wait for.
    pub durability: Option<Durability>,
    /// How many replicas must hold a write.
    pub write_acks: Option<WriteAcks>,
    pub compression: Option<TableCompression>,
    /// The number of its shards, and the places of their replicas.
    pub shards: Option<DesiredShards>,
    /// Its write hook; `Some(None)` removes it.
    pub write_hook: Option<Option<StoredFunc>>,
}
