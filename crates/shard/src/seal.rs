//! The seal state of a group: whether it accepts writes.
//!
//! A table's epoch grows when it is resharded and when an attempt to reshard is abandoned. A group is sealed in an
//! epoch and opened again for a later one. The greater state wins, so that late or repeated entries change nothing. See
//! docs/formats/entry.md.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use log::Term;

/// A state set by an entry of a group's log: sealed in an epoch, or open since one. The greater of two is the later
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SealState(u64);

impl SealState {
    /// The greatest number that an engine can store: docs/formats/engine-keys.md.
    pub const NUMBER_MAX: u64 = (1 << 48) - 1;

    /// The greatest epoch that a state can have.
    pub const EPOCH_MAX: u64 = SealState::NUMBER_MAX / 2;

    /// Sealed in `epoch`: no later entry has an effect.
    #[must_use]
    pub fn sealed(epoch: u64) -> SealState {
        SealState(epoch * 2 + 1)
    }

    /// Open since `epoch`: seals of earlier epochs have no effect.
    #[must_use]
    pub fn open(epoch: u64) -> SealState {
        SealState(epoch * 2)
    }

    /// Whether the group is sealed.
    #[must_use]
    pub fn is_sealed(self) -> bool {
        self.0 % 2 == 1
    }

    #[must_use]
    pub fn epoch(self) -> u64 {
        self.0 / 2
    }

    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    #[must_use]
    pub fn of_number(number: u64) -> SealState {
        SealState(number)
    }
}

/// Seals that this replica has proposed as the leader.
#[derive(Default)]
pub(crate) struct SealProposals {
    /// Whether the leader's own copy suffices for a write, unless the group is being sealed.
    pub(crate) acks_one: AtomicBool,
    // The greatest proposed seal, as a number; 0 for none.
    sealing: AtomicU64,
    // The greatest seal that writes are blocked for, as a number; 0 for none.
    writes_blocked: AtomicU64,
    term: AtomicU64,
}

impl SealProposals {
    /// The proposed seal, until it is known to have failed.
    pub(crate) fn proposed_seal(&self) -> Option<SealState> {
        Some(SealState(self.sealing.load(Ordering::Acquire))).filter(|seal| seal.is_sealed())
    }

    /// Whether writes are blocked in a group that has `seal_state`.
    pub(crate) fn blocks_writes(&self, seal_state: SealState) -> bool {
        self.writes_blocked.load(Ordering::Acquire) > seal_state.0
    }

    /// Blocks writes until `seal_state` is applied or its proposal fails.
    pub(crate) fn block_writes(&self, seal_state: SealState) {
        self.writes_blocked.fetch_max(seal_state.0, Ordering::AcqRel);
    }

    /// The term of the last proposal.
    pub(crate) fn term(&self) -> Term {
        Term(self.term.load(Ordering::Acquire))
    }

    /// Notes that `seal_state` is proposed in `term`.
    pub(crate) fn begin(&self, seal_state: SealState, term: Term) {
        self.term.store(term.0, Ordering::Release);
        match seal_state.is_sealed() {
            true => _ = self.sealing.fetch_max(seal_state.0, Ordering::AcqRel),
            // A seal greater than this opening stays.
            false => self.clear_if(|sealing| sealing < seal_state.0),
        }
    }

    /// Forgets a seal that failed.
    pub(crate) fn end(&self, seal_state: SealState) {
        self.clear_if(|sealing| sealing == seal_state.0);
    }

    fn clear_if(&self, is_over: impl Fn(u64) -> bool) {
        let over = |seal| is_over(seal).then_some(0);
        // Unchanged unless it is over.
        let _ = self.sealing.fetch_update(Ordering::AcqRel, Ordering::Acquire, over);
        let _ = self.writes_blocked.fetch_update(Ordering::AcqRel, Ordering::Acquire, over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_entries_change_nothing() {
        let mut seal_state = SealState::default();
        let mut apply = |new: SealState| {
            seal_state = seal_state.max(new);
            (seal_state.is_sealed(), seal_state.epoch())
        };
        assert_eq!(apply(SealState::sealed(0)), (true, 0));
        assert_eq!(apply(SealState::open(1)), (false, 1));
        assert_eq!(apply(SealState::sealed(0)), (false, 1), "the abandoned seal");
        assert_eq!(apply(SealState::sealed(1)), (true, 1));
        assert_eq!(apply(SealState::open(1)), (true, 1), "the earlier opening");
        assert_eq!(apply(SealState::sealed(2)), (true, 2));
        assert_eq!(apply(SealState::open(2)), (true, 2), "the opening of the same epoch");
    }

    #[test]
    fn a_seal_is_on_its_way_until_something_later_is() {
        let seals = SealProposals::default();
        assert_eq!(seals.proposed_seal(), None);
        seals.begin(SealState::sealed(1), Term(4));
        seals.begin(SealState::open(1), Term(4));
        assert_eq!(seals.proposed_seal(), Some(SealState::sealed(1)), "the opening is older");
        seals.begin(SealState::sealed(2), Term(5));
        seals.end(SealState::sealed(1));
        assert_eq!((seals.proposed_seal(), seals.term()), (Some(SealState::sealed(2)), Term(5)));
        seals.block_writes(SealState::sealed(2));
        assert!(seals.blocks_writes(SealState::open(2)) && !seals.blocks_writes(SealState::open(3)));
        seals.begin(SealState::open(3), Term(5));
        assert_eq!((seals.proposed_seal(), seals.blocks_writes(SealState::open(2))), (None, false));
    }
}
