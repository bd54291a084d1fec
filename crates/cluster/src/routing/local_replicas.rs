//! The replicas that are open on this node.

use std::collections::BTreeMap;
use std::sync::Arc;

use datum::KeyRange;
use log::{GroupId, PeerId};
use shard::Shard;
use storage::TableId;

use crate::config::CATALOG_GROUP;
use crate::locks::{Rank, RankedGuard, RankedMutex};

/// A replica that is open here.
pub(crate) struct LocalReplica {
    pub(crate) shard: Arc<Shard>,
    pub(crate) table: TableId,
    pub(crate) range: KeyRange,
    /// The id of this replica in its group.
    pub(crate) own: PeerId,
    /// Whether a version of the catalog shown here has listed it. After a restart, a node may hold replicas of versions
    /// that it does not show yet.
    pub(crate) is_named: bool,
    pub(crate) gate: Arc<Gate>,
}

/// The replicas that are open here, by group. The catalog's own replica is always open.
pub(crate) struct LocalReplicas {
    catalog: Arc<Shard>,
    /// Never closed.
    catalog_gate: Arc<Gate>,
    open: RankedMutex<BTreeMap<GroupId, LocalReplica>>,
}

impl LocalReplicas {
    /// Starts with the replica of the catalog only.
    pub(crate) fn new(catalog: Arc<Shard>) -> LocalReplicas {
        LocalReplicas {
            catalog,
            catalog_gate: Arc::default(),
            open: RankedMutex::new(Rank::LocalReplicas, BTreeMap::new()),
        }
    }

    /// Locks the replicas of tables; hold the lock briefly.
    pub(crate) fn lock(&self) -> RankedGuard<'_, BTreeMap<GroupId, LocalReplica>> {
        self.open.lock()
    }

    /// Whether a replica of this group of a table is open.
    pub(crate) fn contains(&self, group: GroupId) -> bool {
        self.lock().contains_key(&group)
    }

    pub(crate) fn shard_of(&self, group: GroupId) -> Option<Arc<Shard>> {
        if group == CATALOG_GROUP {
            return Some(Arc::clone(&self.catalog));
        }
        self.lock().get(&group).map(|open| Arc::clone(&open.shard))
    }

    /// The replica of a group, and the gate of its rows.
    pub(crate) fn with_gate(&self, group: GroupId) -> Option<(Arc<Shard>, Arc<Gate>)> {
        if group == CATALOG_GROUP {
            return Some((Arc::clone(&self.catalog), Arc::clone(&self.catalog_gate)));
        }
        self.lock().get(&group).map(|open| (Arc::clone(&open.shard), Arc::clone(&open.gate)))
    }

    /// The id of a table's replica in its group.
    pub(crate) fn peer_of(&self, group: GroupId) -> Option<PeerId> {
        self.lock().get(&group).map(|open| open.own)
    }
}

/// Guards the rows of a replica. A copy reads or writes them inside the gate. The gate is closed permanently when the
/// replica is discarded, because the same keys may then belong to another replica.
pub(crate) struct Gate {
    is_closed: RankedMutex<bool>,
}

/// Keeps a gate from being closed.
pub(crate) struct Inside<'a>(#[expect(dead_code, reason = "held, not read")] RankedGuard<'a, bool>);

impl Default for Gate {
    fn default() -> Gate {
        Gate { is_closed: RankedMutex::new(Rank::Gate, false) }
    }
}

impl Gate {
    /// Enters, unless the gate is closed.
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        let is_closed = self.is_closed.lock();
        (!*is_closed).then(|| Inside(is_closed))
    }

    /// Closes the gate, once every thread has left it.
    pub(crate) fn close(&self) {
        *self.is_closed.lock() = true;
    }
}
