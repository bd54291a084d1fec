//! The entries of one group on their way to the engine: which are written, and which may be applied.
//!
//! A quorum has written the entries up to the *soft* position, and synced those up to the *committed* position, which
//! is behind it. A soft entry may be applied once the soft position has reached it, a hard one once the committed position
//! has. Entries are applied in their order.

use std::collections::VecDeque;

use bytes::Bytes;

use super::membership::Membership;
use crate::contract::{Done, Entry};
use crate::error::LogError;
use crate::lsn::{Durability, GroupId, Lsn};
use crate::record::EntryKind;
use crate::step::Answers;
use crate::store::{Store, StoredEntry};
use crate::tail::{Held, Tail};

/// Bytes per read of entries that are to be applied and no longer in memory.
const READ_BYTES: usize = 1 << 20;

/// Up to which position entries of each kind may be applied.
pub(super) struct ApplyLimits {
    pub soft: u64,
    pub hard: u64,
    pub members: u64,
}

impl ApplyLimits {
    fn of(&self, kind: EntryKind) -> u64 {
        match kind {
            EntryKind::Proposed(Durability::Hard) => self.hard,
            EntryKind::Members => self.members,
            EntryKind::Proposed(Durability::Soft) | EntryKind::Election => self.soft,
        }
    }
}

/// An entry that may be applied.
struct Applicable {
    kind: EntryKind,
    payload: Bytes,
    done: Option<Done>,
}

/// The newest entries in memory, and the positions that they have reached.
pub(super) struct Entries {
    pub tail: Tail,
    /// The last position given to the applier.
    pub applied: u64,
    /// The last position that is appended here.
    pub written: u64,
    /// The last position known to be appended on a quorum.
    pub soft: u64,
}

impl Entries {
    /// The entries of a log that ends at `last`, in front of an engine that has applied up to `applied`.
    pub fn new(last: u64, applied: u64) -> Entries {
        Entries { tail: Tail::after(last), applied, written: last, soft: applied.min(last) }
    }

    pub fn are_applied(&self) -> bool {
        self.applied >= self.tail.last()
    }

    /// Removes the entries from `index` on, which are replaced. Returns the ones that were in memory, with their positions.
    pub fn cut(&mut self, index: u64) -> Vec<(u64, Held)> {
        let cut = self.tail.cut(index);
        self.written = self.written.min(index - 1);
        self.soft = self.soft.min(index - 1);
        cut
    }

    /// Moves entries that may be applied to `batch`, and the callbacks of their proposers to `answers`.
    pub fn take_applicable(
        &mut self,
        group: GroupId,
        limits: &ApplyLimits,
        store: &impl Store,
        membership: &mut Membership,
        batch: &mut Vec<Entry>,
        answers: &mut Answers,
    ) -> Result<(), LogError> {
        let mut read = VecDeque::new();
        while self.applied < self.written {
            let index = self.applied + 1;
            let Some(entry) = self.applicable_at(index, group, limits, store, &mut read)? else { break };
            let Applicable { kind, payload, done } = entry;
            self.applied = index;
            match kind {
                EntryKind::Election => continue,
                EntryKind::Members => {
                    // In force already: a change takes effect when it is committed.
                    membership.await_durability(index, done);
                    continue;
                }
                EntryKind::Proposed(Durability::Hard) => answers.hard += u64::from(done.is_some()),
                EntryKind::Proposed(Durability::Soft) => answers.soft += u64::from(done.is_some()),
            }
            batch.push(Entry { group, lsn: Lsn(index), payload });
            #[cfg(any(test, feature = "mutants"))]
            if crate::mutant::is_active(crate::mutant::Mutant::ApplyTwice) && index.is_multiple_of(7) {
                batch.extend(batch.last().cloned());
            }
            if let Some(done) = done {
                answers.done.push((done, Ok(Lsn(index))));
            }
        }
        Ok(())
    }

    /// The entry at `index`, if it may be applied. `read` holds entries that were read ahead.
    fn applicable_at(
        &mut self,
        index: u64,
        group: GroupId,
        limits: &ApplyLimits,
        store: &impl Store,
        read: &mut VecDeque<StoredEntry>,
    ) -> Result<Option<Applicable>, LogError> {
        if index > limits.soft {
            return Ok(None);
        }
        if let Some(held) = self.tail.get_mut(index) {
            let may_apply = index <= limits.of(held.kind);
            return Ok(may_apply.then(|| Applicable {
                kind: held.kind,
                payload: held.payload.clone(),
                done: held.done.take(),
            }));
        }
        if read.is_empty() {
            *read = store.read(group, index - 1, READ_BYTES)?.into();
        }
        let found = read.pop_front().filter(|entry| entry.index == index && index <= limits.of(entry.kind));
        Ok(found.map(|entry| Applicable { kind: entry.kind, payload: entry.payload, done: None }))
    }
}
