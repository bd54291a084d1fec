//! Whether a group takes writes: the mark that the last seal left, or its end.
//!
//! A table's epoch grows when it gets other shards and when an attempt at that is given up. A group is
//! sealed in an epoch, and opened again for a later one; the greater mark counts, so that whatever
//! comes late, or twice, changes nothing. See docs/formats/entry.md.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use log::Term;

/// What the log of a group says of its being sealed. The greater of two is the later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SealState(u64);

impl SealState {
    /// The greatest number of a mark that an engine can hold: docs/formats/engine-keys.md.
    pub const NUMBER_MAX: u64 = (1 << 48) - 1;

    /// The greatest epoch that a mark can name.
    pub const EPOCH_MAX: u64 = SealState::NUMBER_MAX / 2;

    /// Sealed in `epoch`: no later entry has an effect.
    #[must_use]
    pub fn sealed(epoch: u64) -> SealState {
        SealState(epoch * 2 + 1)
    }

    /// Open since `epoch`: seals of earlier epochs are void.
    #[must_use]
    pub fn open(epoch: u64) -> SealState {
        SealState(epoch * 2)
    }

    /// Whether it seals.
    #[must_use]
    pub fn is_sealed(self) -> bool {
        self.0 % 2 == 1
    }

    /// The epoch that it names.
    #[must_use]
    pub fn epoch(self) -> u64 {
        self.0 / 2
    }

    /// The mark as a number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The mark of that number.
    #[must_use]
    pub fn of_number(number: u64) -> SealState {
        SealState(number)
    }
}

/// What a leader has proposed of marks.
#[derive(Default)]
pub(crate) struct SealProposals {
    /// Whether the leader's own copy is enough for a write, unless the group is being sealed.
    pub(crate) acks_one: AtomicBool,
    // The greatest seal on its way, as a number; 0 for none.
    sealing: AtomicU64,
    // The greatest seal for which writes are held back, as a number; 0 for none.
    writes_blocked: AtomicU64,
    term: AtomicU64,
}

impl SealProposals {
    /// The seal that was proposed, as long as nobody knows that nothing comes of it.
    pub(crate) fn proposed_seal(&self) -> Option<SealState> {
        Some(SealState(self.sealing.load(Ordering::Acquire))).filter(|seal| seal.is_sealed())
    }

    /// Whether writes are held back in a group that has `seal_state`.
    pub(crate) fn blocks_writes(&self, seal_state: SealState) -> bool {
        self.writes_blocked.load(Ordering::Acquire) > seal_state.0
    }

    /// Writes are held back until `seal_state` is set, or nothing comes of it.
    pub(crate) fn block_writes(&self, seal_state: SealState) {
        self.writes_blocked.fetch_max(seal_state.0, Ordering::AcqRel);
    }

    /// The term in which that was.
    pub(crate) fn term(&self) -> Term {
        Term(self.term.load(Ordering::Acquire))
    }

    /// A mark is proposed in `term`.
    pub(crate) fn begin(&self, seal_state: SealState, term: Term) {
        self.term.store(term.0, Ordering::Release);
        match seal_state.is_sealed() {
            true => _ = self.sealing.fetch_max(seal_state.0, Ordering::AcqRel),
            // A seal that comes after this opening stays.
            false => self.forget(|sealing| sealing < seal_state.0),
        }
    }

    /// Nothing came of that seal.
    pub(crate) fn end(&self, seal_state: SealState) {
        self.forget(|sealing| sealing == seal_state.0);
    }

    fn forget(&self, is_over: impl Fn(u64) -> bool) {
        let over = |seal| is_over(seal).then_some(0);
        // Unchanged where it is not over.
        let _ = self.sealing.fetch_update(Ordering::AcqRel, Ordering::Acquire, over);
        let _ = self.writes_blocked.fetch_update(Ordering::AcqRel, Ordering::Acquire, over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_late_changes_nothing() {
        let mut seal_state = SealState::default();
        let mut heard = |new: SealState| {
            seal_state = seal_state.max(new);
            (seal_state.is_sealed(), seal_state.epoch())
        };
        assert_eq!(heard(SealState::sealed(0)), (true, 0));
        assert_eq!(heard(SealState::open(1)), (false, 1));
        assert_eq!(heard(SealState::sealed(0)), (false, 1), "a seal that was given up");
        assert_eq!(heard(SealState::sealed(1)), (true, 1));
        assert_eq!(heard(SealState::open(1)), (true, 1), "what opened it before");
        assert_eq!(heard(SealState::sealed(2)), (true, 2));
        assert_eq!(heard(SealState::open(2)), (true, 2), "what the seal before was given up for");
    }

    #[test]
    fn a_seal_is_on_its_way_until_something_later_is() {
        let seals = SealProposals::default();
        assert_eq!(seals.proposed_seal(), None);
        seals.begin(SealState::sealed(1), Term(4));
        seals.begin(SealState::open(1), Term(4));
        assert_eq!(seals.proposed_seal(), Some(SealState::sealed(1)), "the opening comes before it");
        seals.begin(SealState::sealed(2), Term(5));
        seals.end(SealState::sealed(1));
        assert_eq!((seals.proposed_seal(), seals.term()), (Some(SealState::sealed(2)), Term(5)));
        seals.block_writes(SealState::sealed(2));
        assert!(seals.blocks_writes(SealState::open(2)) && !seals.blocks_writes(SealState::open(3)));
        seals.begin(SealState::open(3), Term(5));
        assert_eq!((seals.proposed_seal(), seals.blocks_writes(SealState::open(2))), (None, false));
    }
}
