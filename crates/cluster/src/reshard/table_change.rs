//! A change of a table's configuration.

use datum::Text;
use log::Durability;
use reql::StoredFunc;

use crate::catalog::ShardsWanted;
use crate::config::{DbId, WriteAcks};

/// A change to a table's configuration; `None` leaves a setting as it is.
#[derive(Clone, Debug, Default)]
pub struct TableChange {
    /// Its name.
    pub name: Option<Text>,
    /// The database it is in. Rows and shards stay where they are, and what users were granted on it goes with it.
    pub db: Option<DbId>,
    /// What its writes wait for.
    pub durability: Option<Durability>,
    /// How many replicas must hold a write.
    pub write_acks: Option<WriteAcks>,
    /// Into how many key ranges it is divided, and where their replicas are.
    pub shards: Option<ShardsWanted>,
    /// Its write hook; `Some(None)` takes it away.
    pub write_hook: Option<Option<StoredFunc>>,
}
