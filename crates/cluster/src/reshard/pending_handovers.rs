//! New replicas on this node that are not open yet, or whose groups have no leader yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use io::task;
use log::GroupId;
use storage::TableId;

use crate::locks::{Rank, RankedGuard, RankedMutex};

/// The unfinished steps of handovers.
#[derive(Default)]
pub(crate) struct Handovers {
    /// Tables with replicas that cannot be opened yet, and since when.
    pub(crate) deferred: BTreeMap<TableId, Instant>,
    /// New groups that this server founds and that may have no leader yet, each with the time of this server's first
    /// candidacy.
    pub(crate) starting: BTreeMap<GroupId, Instant>,
    /// New groups that begin here without their rows, because their predecessors do not reach their seals here.
    pub(crate) without_rows: BTreeSet<GroupId>,
}

/// The handovers that are under way on this node.
pub(crate) struct PendingHandovers(RankedMutex<Handovers>);

impl Default for PendingHandovers {
    fn default() -> PendingHandovers {
        PendingHandovers(RankedMutex::new(Rank::PendingHandovers, Handovers::default()))
    }
}

impl PendingHandovers {
    /// The handovers; hold the lock briefly.
    pub(crate) fn lock(&self) -> RankedGuard<'_, Handovers> {
        self.0.lock()
    }

    /// Whether handovers must be checked again soon.
    pub(crate) fn is_busy(&self) -> bool {
        let handovers = self.lock();
        !handovers.deferred.is_empty() || !handovers.starting.is_empty()
    }

    /// Notes whether some replica of the table cannot be opened here yet.
    pub(crate) fn set_deferred(&self, table: TableId, is_deferred: bool) {
        let mut handovers = self.lock();
        match is_deferred {
            true => drop(handovers.deferred.entry(table).or_insert_with(task::now)),
            false => drop(handovers.deferred.remove(&table)),
        }
    }

    /// Whether some replica of the table cannot be opened here yet.
    pub(crate) fn is_deferred(&self, table: TableId) -> bool {
        self.lock().deferred.contains_key(&table)
    }
}
