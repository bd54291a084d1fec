//! The indexes that a shard's writes maintain: it knows them, and they are registered with its group.
//!
//! A group's log has entries of an index only after the entry that registers the index. So a later leader learns from
//! the applied log that it must maintain the index; if its catalog does not have the index yet, it writes nothing until
//! it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use storage::IndexId;

use super::def::{IndexDef, IndexDefs};
use crate::WriteRefusal;
use crate::replica::Replica;

type Defs = Arc<Vec<Arc<IndexDef>>>;

/// The indexes of a shard.
#[derive(Default)]
pub(crate) struct MaintainedIndexes {
    known: ArcSwap<Vec<Arc<IndexDef>>>,
    highest_assigned: AtomicU32,
    maintained: ArcSwap<Vec<Arc<IndexDef>>>,
    // The number of registrations when `maintained` was built.
    built_at: AtomicU64,
    rebuild_lock: Mutex<()>,
}

impl MaintainedIndexes {
    /// Sets the known indexes; returns whether anything changed.
    pub(crate) fn set(&self, defs: IndexDefs, replica: &Replica) -> bool {
        let same = {
            let _one_at_a_time = self.rebuild_lock.lock();
            let known = self.known.load();
            let ids = |defs: &[Arc<IndexDef>]| defs.iter().map(|def| def.id()).collect::<Vec<_>>();
            // An id stands for one definition.
            let same = ids(&known) == defs.list.iter().map(IndexDef::id).collect::<Vec<_>>();
            if !same {
                self.known.store(Arc::new(defs.list.into_iter().map(Arc::new).collect()));
            }
            self.highest_assigned.store(defs.highest_assigned.0, Ordering::Release);
            same
        };
        self.rebuild(replica);
        !same
    }

    pub(crate) fn known(&self) -> Defs {
        self.known.load_full()
    }

    /// Whether `index` was assigned according to the latest definitions, whether it still exists or not.
    pub(crate) fn has_seen_index(&self, index: IndexId) -> bool {
        index <= IndexId(self.highest_assigned.load(Ordering::Acquire))
    }

    /// The indexes whose entries a write must include. Called under the latches of the write.
    pub(crate) fn maintained(&self, replica: &Replica) -> Result<Guard<Defs>, WriteRefusal> {
        if replica.registrations() != self.built_at.load(Ordering::Acquire) {
            self.rebuild(replica);
        }
        if replica.highest_index() > IndexId(self.highest_assigned.load(Ordering::Acquire)) {
            return Err(WriteRefusal::IndexesBehind { group: replica.group });
        }
        Ok(self.maintained.load())
    }

    fn rebuild(&self, replica: &Replica) {
        let _one_at_a_time = self.rebuild_lock.lock();
        let registrations = replica.registrations();
        let known = self.known.load();
        let maintained = known.iter().filter(|def| replica.has_index(def.id())).cloned().collect();
        self.maintained.store(Arc::new(maintained));
        self.built_at.store(registrations, Ordering::Release);
    }
}
