//! Which indexes a shard keeps: those it knows and its group was told of.
//!
//! Entries of an index are in a group's log only after the entry that tells the group of it. So
//! whoever leads later knows from what it applied that the index must be kept, and one that has not
//! heard of it from the catalog yet writes nothing until it has.

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
    given: AtomicU32,
    kept: ArcSwap<Vec<Arc<IndexDef>>>,
    // What the group had been told when `kept` was made.
    made_at: AtomicU64,
    making: Mutex<()>,
}

impl MaintainedIndexes {
    /// Knows `defs` from now on; whether anything changed.
    pub(crate) fn set(&self, defs: IndexDefs, replica: &Replica) -> bool {
        let same = {
            let _one_at_a_time = self.making.lock();
            let known = self.known.load();
            let ids = |defs: &[Arc<IndexDef>]| defs.iter().map(|def| def.id()).collect::<Vec<_>>();
            // A number stands for one definition.
            let same = ids(&known) == defs.list.iter().map(IndexDef::id).collect::<Vec<_>>();
            if !same {
                self.known.store(Arc::new(defs.list.into_iter().map(Arc::new).collect()));
            }
            self.given.store(defs.given.0, Ordering::Release);
            same
        };
        self.make(replica);
        !same
    }

    /// All that are known.
    pub(crate) fn known(&self) -> Defs {
        self.known.load_full()
    }

    /// Whether `index` was given out in the latest of what is known, whether it is still there or not.
    pub(crate) fn has_seen_index(&self, index: IndexId) -> bool {
        index <= IndexId(self.given.load(Ordering::Acquire))
    }

    /// Those whose entries a write must carry. Asked under the latches of the write.
    pub(crate) fn kept(&self, replica: &Replica) -> Result<Guard<Defs>, WriteRefusal> {
        if replica.registrations() != self.made_at.load(Ordering::Acquire) {
            self.make(replica);
        }
        if replica.highest_index() > IndexId(self.given.load(Ordering::Acquire)) {
            return Err(WriteRefusal::IndexesBehind { group: replica.group });
        }
        Ok(self.kept.load())
    }

    fn make(&self, replica: &Replica) {
        let _one_at_a_time = self.making.lock();
        let told = replica.registrations();
        let known = self.known.load();
        let kept = known.iter().filter(|def| replica.has_index(def.id())).cloned().collect();
        self.kept.store(Arc::new(kept));
        self.made_at.store(told, Ordering::Release);
    }
}
