//! The copies of replicas' rows that a node gives and gets at this moment.

use std::collections::HashMap;
use std::time::Instant;

use log::GroupId;
use parking_lot::Mutex;
use storage::TableSnapshot;

use crate::ServerId;

/// The copies that this node gives, and the groups it is getting.
#[derive(Default)]
pub(crate) struct Copies {
    pub(crate) given: Mutex<HashMap<u64, Given>>,
    pub(crate) getting: Mutex<HashMap<GroupId, Getting>>,
}

/// A copy that is being given.
pub(crate) struct Given {
    pub(crate) snapshot: TableSnapshot,
    /// When it was last asked for.
    pub(crate) used: Instant,
}

/// How far a copy has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Getting {
    /// Where the rows come from; nobody at first.
    pub source: Option<ServerId>,
    /// Rows that arrived.
    pub rows: u64,
    /// Rows there will be, about.
    pub rows_total: u64,
}
