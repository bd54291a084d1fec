//! Whether a group takes writes: the mark that the last seal left, or its end.
//!
//! A table's epoch grows when it gets other shards and when an attempt at that is given up. A group is
//! sealed in an epoch, and opened again for a later one; the greater mark counts, so that whatever
//! comes late, or twice, changes nothing. See docs/formats/entry.md.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use log::Term;

/// What the log of a group says of its being sealed. The greater of two is the later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SealMark(u64);

impl SealMark {
    /// The greatest number of a mark that an engine can hold: docs/formats/engine-keys.md.
    pub const NUMBER_MAX: u64 = (1 << 48) - 1;

    /// The greatest epoch that a mark can name.
    pub const EPOCH_MAX: u64 = SealMark::NUMBER_MAX / 2;

    /// Sealed in `epoch`: no later entry has an effect.
    #[must_use]
    pub fn sealed(epoch: u64) -> SealMark {
        SealMark(epoch * 2 + 1)
    }

    /// Open since `epoch`: seals of earlier epochs are void.
    #[must_use]
    pub fn open(epoch: u64) -> SealMark {
        SealMark(epoch * 2)
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
    pub fn of_number(number: u64) -> SealMark {
        SealMark(number)
    }
}

/// What a leader has proposed of marks.
#[derive(Default)]
pub(crate) struct Marking {
    /// Whether the leader's own copy is enough for a write, unless the group is being sealed.
    pub(crate) acks_one: AtomicBool,
    // The greatest seal on its way, as a number; 0 for none.
    sealing: AtomicU64,
    // The greatest seal for which writes are held back, as a number; 0 for none.
    held_back: AtomicU64,
    term: AtomicU64,
}

impl Marking {
    /// The seal that was proposed, as long as nobody knows that nothing comes of it.
    pub(crate) fn on_its_way(&self) -> Option<SealMark> {
        Some(SealMark(self.sealing.load(Ordering::Acquire))).filter(|seal| seal.is_sealed())
    }

    /// Whether writes are held back in a group that has `mark`.
    pub(crate) fn holds_back(&self, mark: SealMark) -> bool {
        self.held_back.load(Ordering::Acquire) > mark.0
    }

    /// Writes are held back until `mark` is set, or nothing comes of it.
    pub(crate) fn hold_back(&self, mark: SealMark) {
        self.held_back.fetch_max(mark.0, Ordering::AcqRel);
    }

    /// The term in which that was.
    pub(crate) fn term(&self) -> Term {
        Term(self.term.load(Ordering::Acquire))
    }

    /// A mark is proposed in `term`.
    pub(crate) fn begin(&self, mark: SealMark, term: Term) {
        self.term.store(term.0, Ordering::Release);
        match mark.is_sealed() {
            true => _ = self.sealing.fetch_max(mark.0, Ordering::AcqRel),
            // A seal that comes after this opening stays.
            false => self.forget(|sealing| sealing < mark.0),
        }
    }

    /// Nothing came of that seal.
    pub(crate) fn end(&self, mark: SealMark) {
        self.forget(|sealing| sealing == mark.0);
    }

    fn forget(&self, is_over: impl Fn(u64) -> bool) {
        let over = |seal| is_over(seal).then_some(0);
        // Unchanged where it is not over.
        let _ = self.sealing.fetch_update(Ordering::AcqRel, Ordering::Acquire, over);
        let _ = self.held_back.fetch_update(Ordering::AcqRel, Ordering::Acquire, over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_late_changes_nothing() {
        let mut mark = SealMark::default();
        let mut heard = |new: SealMark| {
            mark = mark.max(new);
            (mark.is_sealed(), mark.epoch())
        };
        assert_eq!(heard(SealMark::sealed(0)), (true, 0));
        assert_eq!(heard(SealMark::open(1)), (false, 1));
        assert_eq!(heard(SealMark::sealed(0)), (false, 1), "a seal that was given up");
        assert_eq!(heard(SealMark::sealed(1)), (true, 1));
        assert_eq!(heard(SealMark::open(1)), (true, 1), "what opened it before");
        assert_eq!(heard(SealMark::sealed(2)), (true, 2));
        assert_eq!(heard(SealMark::open(2)), (true, 2), "what the seal before was given up for");
    }

    #[test]
    fn a_seal_is_on_its_way_until_something_later_is() {
        let marking = Marking::default();
        assert_eq!(marking.on_its_way(), None);
        marking.begin(SealMark::sealed(1), Term(4));
        marking.begin(SealMark::open(1), Term(4));
        assert_eq!(marking.on_its_way(), Some(SealMark::sealed(1)), "the opening comes before it");
        marking.begin(SealMark::sealed(2), Term(5));
        marking.end(SealMark::sealed(1));
        assert_eq!((marking.on_its_way(), marking.term()), (Some(SealMark::sealed(2)), Term(5)));
        marking.hold_back(SealMark::sealed(2));
        assert!(marking.holds_back(SealMark::open(2)) && !marking.holds_back(SealMark::open(3)));
        marking.begin(SealMark::open(3), Term(5));
        assert_eq!((marking.on_its_way(), marking.holds_back(SealMark::open(2))), (None, false));
    }
}
