//! The progress of a group through its log: which proposals are missing from the log, and so which entries must not be
//! applied, by the rule of `docs/formats/entry.md`. A pure function of the log's content, the same on every replica and
//! after every restart.

use bytes::{BufMut, Bytes, BytesMut};
use log::Lsn;

use crate::SealState;
use crate::history_position::HistoryPosition;

/// The most separate ranges of missing sequence numbers; beyond this the lowest are merged.
const MISSING_RANGES_MAX: usize = 64;
/// The high bits of an encoded seal state; no sequence number comes near it.
const SEAL_STATE_TAG: u64 = 0x5ea1 << 48;
/// The high bits of the position of an encoded history, which the incarnation of its entry follows.
const HISTORY_TAG: u64 = 0x4157 << 48;
const TAG_BITS: u64 = 0xffff << 48;

/// The progress of a group, stored beside its position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    incarnation: u64,
    // The highest sequence number seen of this incarnation.
    sequence: u64,
    // Numbers up to `sequence` that were not seen or were skipped: ascending ranges that do not touch.
    missing: Vec<(u64, u64)>,
    seal_state: SealState,
    // The last entry of the history; `None` while it is off.
    history: Option<HistoryPosition>,
}

/// Whether an entry is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Apply,
    /// It depends on an entry that was not applied.
    Skip,
}

impl Progress {
    /// Admits the next entry of the log and judges it.
    pub(crate) fn admit(
        &mut self,
        incarnation: u64,
        sequence: u64,
        mut dependencies: impl Iterator<Item = u64>,
    ) -> Verdict {
        if incarnation < self.incarnation {
            return Verdict::Skip;
        }
        if incarnation > self.incarnation {
            let (seal_state, history) = (self.seal_state, self.history);
            *self = Progress { incarnation, seal_state, history, ..Progress::default() };
        }
        if sequence > self.sequence {
            if sequence > self.sequence + 1 {
                self.add_missing(self.sequence + 1, sequence - 1);
            }
            self.sequence = sequence;
        } else {
            self.remove_missing(sequence);
        }
        if dependencies.any(|dependency| self.is_missing(dependency)) {
            self.add_missing(sequence, sequence);
            return Verdict::Skip;
        }
        Verdict::Apply
    }

    /// Notes that an admitted entry is not applied after all.
    pub(crate) fn refuse(&mut self, sequence: u64) {
        self.add_missing(sequence, sequence);
    }

    /// The seal state of the group.
    pub(crate) fn seal_state(&self) -> SealState {
        self.seal_state
    }

    /// Sets the seal state, if it is greater than the present one.
    pub(crate) fn set_seal_state(&mut self, seal_state: SealState) {
        self.seal_state = self.seal_state.max(seal_state);
    }

    /// The last entry of the history; `None` while it is off.
    pub(crate) fn history(&self) -> Option<HistoryPosition> {
        self.history
    }

    /// Sets the last entry of the history, or that it is off.
    pub(crate) fn set_history(&mut self, history: Option<HistoryPosition>) {
        self.history = history;
    }

    /// The progress of a group that is new to the engine. Its history is on if that of a predecessor was, and has no entry
    /// yet.
    pub(crate) fn first(has_history: bool) -> Progress {
        Progress { history: has_history.then(HistoryPosition::default), ..Progress::default() }
    }

    /// The bytes that follow the position, see `docs/formats/engine-keys.md`.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(16 + 16 * self.missing.len());
        bytes.put_u64_le(self.incarnation);
        bytes.put_u64_le(self.sequence);
        for (first, last) in &self.missing {
            bytes.put_u64_le(*first);
            bytes.put_u64_le(*last);
        }
        if self.seal_state != SealState::default() {
            bytes.put_u64_le(SEAL_STATE_TAG | self.seal_state.number());
        }
        if let Some(HistoryPosition { lsn, incarnation }) = self.history {
            bytes.put_u64_le(HISTORY_TAG | lsn.0);
            bytes.put_u64_le(incarnation);
        }
        bytes.freeze()
    }

    /// The progress in these bytes, or `None` if they are malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Progress> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let (incarnation, sequence) = (numbers.next()?, numbers.next()?);
        let (mut missing, mut seal_state, mut history) = (Vec::new(), SealState::default(), None);
        while let Some(first) = numbers.next() {
            match first & TAG_BITS {
                SEAL_STATE_TAG => seal_state = SealState::of_number(first & !TAG_BITS),
                HISTORY_TAG => {
                    let (lsn, incarnation) = (Lsn(first & !TAG_BITS), numbers.next()?);
                    history = Some(HistoryPosition { lsn, incarnation });
                }
                _ => missing.push((first, numbers.next()?)),
            }
        }
        rest.is_empty().then_some(Progress { incarnation, sequence, missing, seal_state, history })
    }

    fn is_missing(&self, sequence: u64) -> bool {
        let after = self.missing.partition_point(|(first, _)| *first <= sequence);
        let inside = after > 0 && sequence <= self.missing[after - 1].1;
        inside || sequence > self.sequence
    }

    fn add_missing(&mut self, first: u64, last: u64) {
        let at = self.missing.partition_point(|(start, _)| *start < first);
        self.missing.insert(at, (first, last));
        // Merges ranges that touch.
        if at + 1 < self.missing.len() && last + 1 >= self.missing[at + 1].0 {
            self.missing[at].1 = last.max(self.missing[at + 1].1);
            self.missing.remove(at + 1);
        }
        if at > 0 && self.missing[at - 1].1 + 1 >= first {
            self.missing[at - 1].1 = self.missing[at].1.max(self.missing[at - 1].1);
            self.missing.remove(at);
        }
        if self.missing.len() > MISSING_RANGES_MAX {
            self.missing[0].1 = self.missing[1].1;
            self.missing.remove(1);
        }
    }

    fn remove_missing(&mut self, sequence: u64) {
        let after = self.missing.partition_point(|(first, _)| *first <= sequence);
        let Some(at) = after.checked_sub(1) else { return };
        let (first, last) = self.missing[at];
        if sequence > last {
            return;
        }
        self.missing.remove(at);
        if sequence < last {
            self.missing.insert(at, (sequence + 1, last));
        }
        if first < sequence {
            self.missing.insert(at, (first, sequence - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(progress: &mut Progress, sequence: u64, dependencies: &[u64], expected: Verdict) {
        assert_eq!(progress.admit(1, sequence, dependencies.iter().copied()), expected);
    }

    #[test]
    fn a_chain_falls_with_its_first_link() {
        let mut progress = Progress::default();
        check(&mut progress, 1, &[], Verdict::Apply);
        // 2 was refused by the log.
        check(&mut progress, 3, &[1], Verdict::Apply);
        check(&mut progress, 4, &[2], Verdict::Skip);
        check(&mut progress, 5, &[4, 3], Verdict::Skip);
        check(&mut progress, 6, &[3], Verdict::Apply);
        assert_eq!(progress.missing, [(2, 2), (4, 5)]);
    }

    #[test]
    fn overtaken_proposals_are_not_missed_for_long() {
        let mut progress = Progress::default();
        check(&mut progress, 4, &[], Verdict::Apply);
        assert_eq!(progress.missing, [(1, 3)]);
        check(&mut progress, 2, &[], Verdict::Apply);
        assert_eq!(progress.missing, [(1, 1), (3, 3)]);
        check(&mut progress, 3, &[2], Verdict::Apply);
        check(&mut progress, 1, &[], Verdict::Apply);
        check(&mut progress, 5, &[1, 2, 3, 4], Verdict::Apply);
        assert_eq!(progress.missing, []);
    }

    #[test]
    fn another_incarnation_starts_over() {
        let mut progress = Progress::default();
        check(&mut progress, 9, &[3], Verdict::Skip);
        assert_eq!(progress.admit(2, 1, std::iter::empty()), Verdict::Apply);
        assert_eq!(progress, Progress { incarnation: 2, sequence: 1, ..Progress::default() });
    }

    #[test]
    fn an_older_incarnation_is_skipped() {
        let mut progress = Progress::default();
        assert_eq!(progress.admit(3, 1, std::iter::empty()), Verdict::Apply);
        assert_eq!(progress.admit(2, 9, std::iter::empty()), Verdict::Skip);
        assert_eq!(progress, Progress { incarnation: 3, sequence: 1, ..Progress::default() });
    }

    #[test]
    fn a_seal_state_is_stored_beside_the_missing_numbers() {
        let mut progress = Progress::default();
        check(&mut progress, 3, &[], Verdict::Apply);
        progress.set_seal_state(SealState::sealed(5));
        progress.set_seal_state(SealState::open(5));
        check(&mut progress, 4, &[], Verdict::Apply);
        progress.refuse(4);
        check(&mut progress, 5, &[4], Verdict::Skip);
        assert_eq!(progress.missing, [(1, 2), (4, 5)]);
        assert_eq!(Progress::decode(&progress.encode()), Some(progress.clone()));
        assert_eq!(progress.admit(7, 1, std::iter::empty()), Verdict::Apply);
        assert_eq!(progress.seal_state(), SealState::sealed(5));
        assert_eq!(Progress::decode(&progress.encode()), Some(progress));
    }

    #[test]
    fn a_history_is_stored_after_the_seal_state() {
        let mut progress = Progress::first(true);
        assert_eq!(progress.history(), Some(HistoryPosition::default()));
        check(&mut progress, 3, &[], Verdict::Apply);
        let last = HistoryPosition { lsn: Lsn(70), incarnation: 1 << 63 | 5 };
        progress.set_history(Some(last));
        for seal_state in [SealState::default(), SealState::sealed(5)] {
            progress.set_seal_state(seal_state);
            assert_eq!(Progress::decode(&progress.encode()), Some(progress.clone()));
        }
        assert_eq!(progress.admit(7, 1, std::iter::empty()), Verdict::Apply);
        assert_eq!(progress.history(), Some(last));
        assert_eq!(Progress::decode(&progress.encode()), Some(progress.clone()));
        let bytes = progress.encode();
        assert_eq!(Progress::decode(&bytes[..bytes.len() - 8]), None, "the incarnation is missing");
        progress.set_history(None);
        assert_eq!(Progress::decode(&progress.encode()), Some(progress));
    }

    #[test]
    fn the_record_stays_small_and_errs_on_refusing() {
        let mut progress = Progress::default();
        for sequence in (2..1000).step_by(2) {
            check(&mut progress, sequence, &[], Verdict::Apply);
        }
        assert_eq!(progress.missing.len(), MISSING_RANGES_MAX);
        check(&mut progress, 999, &[997], Verdict::Skip);
        check(&mut progress, 1000, &[998], Verdict::Apply);
        check(&mut progress, 1001, &[2], Verdict::Skip);
        assert_eq!(Progress::decode(&progress.encode()), Some(progress.clone()));
        assert_eq!(Progress::decode(&progress.encode()[1..]), None);
        assert_eq!(Progress::decode(&progress.encode()[8..]), None);
    }
}
