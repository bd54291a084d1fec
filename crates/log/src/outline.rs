//! The outline of one group's log: where it begins and ends, and the term of each position.
//!
//! Consensus needs nothing else from storage. It orders empty entries; payloads are kept elsewhere, by position.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::member::{Members, PeerId};
use crate::message::empty_entry;
use crate::record::EntryKind;

/// Limit for the (empty) entries that one call returns, so that a replay does not build a huge list.
const ENTRIES_PER_READ: u64 = 16 * 1024;

/// The position before the first entry.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    index: u64,
    term: u64,
}

/// Consecutive entries of one term.
#[derive(Clone, Copy, Debug)]
struct TermRun {
    /// The first position.
    first: u64,
    term: u64,
}

/// Positions and terms of a group, its vote and its members.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    start: Start,
    last: u64,
    /// Terms after the one of the start, ascending.
    terms: VecDeque<TermRun>,
    /// Positions of membership changes, ascending.
    changes: VecDeque<u64>,
    /// Positions of elections, ascending.
    elections: VecDeque<u64>,
    /// The last position of a proposal.
    proposed: u64,
    /// The last position of a proposal at or before the start: the engine must have it, since the log no longer does.
    proposed_start: u64,
    /// Term, vote and commit position.
    pub hard: HardState,
    /// The members in force.
    pub members: Members,
    /// Replicas to which consensus wanted to send a copy of the rows.
    snapshot_requests: RefCell<BTreeSet<u64>>,
}

impl Outline {
    /// The position before the first entry.
    pub fn start(&self) -> u64 {
        self.start.index
    }

    /// The last position.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The term of the last position.
    pub fn last_term(&self) -> u64 {
        self.terms.back().map_or(self.start.term, |run| run.term)
    }

    /// The last position of a proposal.
    pub fn proposed(&self) -> u64 {
        self.proposed
    }

    /// Entries up to here were proposed and are no longer in the log.
    pub fn proposed_start(&self) -> u64 {
        self.proposed_start
    }

    /// The first change of members after position `after` and not after `through`.
    pub fn next_change(&self, after: u64, through: u64) -> Option<u64> {
        self.changes.iter().copied().find(|index| *index > after && *index <= through)
    }

    /// The last change of members but one; zero if there are not two.
    pub fn change_before_last(&self) -> u64 {
        self.changes.iter().nth_back(1).copied().unwrap_or(0)
    }

    /// Replicas that need a copy of the rows, as consensus found since the last call.
    pub fn take_snapshot_requests(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.snapshot_requests.borrow_mut())
    }

    /// Adds the entry at `index`, replacing it and all after it if they exist. Returns whether it fits: it must not leave a
    /// gap, nor be at or before the start, and terms do not decrease.
    pub fn append(&mut self, index: u64, term: u64, kind: EntryKind) -> bool {
        if index <= self.start.index || index > self.last + 1 {
            return false;
        }
        while self.terms.back().is_some_and(|run| run.first >= index) {
            self.terms.pop_back();
        }
        if term < self.last_term() {
            return false;
        }
        if term > self.last_term() {
            self.terms.push_back(TermRun { first: index, term });
        }
        for positions in [&mut self.changes, &mut self.elections] {
            while positions.back().is_some_and(|position| *position >= index) {
                positions.pop_back();
            }
        }
        if self.proposed >= index {
            self.proposed = self.proposed_until(index - 1);
        }
        match kind {
            EntryKind::Members => self.changes.push_back(index),
            EntryKind::Election => self.elections.push_back(index),
            EntryKind::Proposed(_) => self.proposed = index,
        }
        self.last = index;
        true
    }

    /// The last position of a proposal that is not after `index`, which is in the log or just before it.
    ///
    /// Exact even after another leader replaced entries: an engine that has applied this position has everything up to
    /// `index`.
    pub fn proposed_until(&self, index: u64) -> u64 {
        let mut entries = (self.start.index + 1..=index).rev();
        entries.find(|at| !self.is_internal(*at)).unwrap_or(self.proposed_start)
    }

    /// The last position up to `committed` at which rows equal those at `at`: no entry in between is a proposal.
    pub fn unchanged_until(&self, at: u64, committed: u64) -> u64 {
        if at < self.proposed_start {
            return at;
        }
        let at = at.max(self.start.index);
        let next = (at + 1..=committed.min(self.last)).find(|next| !self.is_internal(*next));
        next.map_or(at.max(committed.min(self.last)), |next| next - 1)
    }

    /// Whether the entry at a position in the log is not a proposal.
    fn is_internal(&self, at: u64) -> bool {
        self.changes.binary_search(&at).is_ok() || self.elections.binary_search(&at).is_ok()
    }

    /// Restarts the log after `index`, discarding every entry.
    pub fn restart(&mut self, index: u64, term: u64) {
        self.begin_after(index, term, index);
    }

    /// Restarts the log after `index`; the last proposal up to there was at `proposed`.
    pub fn begin_after(&mut self, index: u64, term: u64, proposed: u64) {
        self.start = Start { index, term };
        self.last = index;
        self.proposed = proposed;
        self.proposed_start = proposed;
        self.terms.clear();
        self.changes.clear();
        self.elections.clear();
    }

    /// Removes the entries up to `index`, whose last proposal was at `proposed`.
    pub fn compact(&mut self, index: u64, proposed: u64) {
        if index <= self.start.index || index > self.last {
            return;
        }
        let term = self.term_at(index).unwrap_or(self.start.term);
        while self.terms.get(1).is_some_and(|run| run.first <= index + 1) {
            self.terms.pop_front();
        }
        if let Some(run) = self.terms.front_mut() {
            run.first = run.first.max(index + 1);
        }
        if index == self.last {
            self.terms.clear();
        }
        for positions in [&mut self.changes, &mut self.elections] {
            while positions.front().is_some_and(|position| *position <= index) {
                positions.pop_front();
            }
        }
        self.start = Start { index, term };
        self.proposed_start = proposed;
    }

    /// The term of the entry at `index`; `None` if it is neither in the log nor just before it.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        if index < self.start.index || index > self.last {
            return None;
        }
        Some(self.term_before_run(self.terms.partition_point(|run| run.first <= index)))
    }

    /// The term of the entries before the run of this number.
    fn term_before_run(&self, number: usize) -> u64 {
        let run = number.checked_sub(1).and_then(|number| self.terms.get(number));
        run.map_or(self.start.term, |run| run.term)
    }
}

impl Storage for Outline {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let peers = |peers: &[PeerId]| peers.iter().map(|peer| peer.0).collect();
        let (voters, learners) = (peers(&self.members.voters), peers(&self.members.learners));
        let members = ConfState { voters, learners, ..ConfState::default() };
        Ok(RaftState::new(self.hard.clone(), members))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        _max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.start.index {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let high = high.min(low + ENTRIES_PER_READ);
        let mut run = self.terms.partition_point(|run| run.first <= low);
        let mut changes = self.changes.iter().skip_while(|change| **change < low).peekable();
        let mut entries = Vec::with_capacity((high - low) as usize);
        for index in low..high {
            while self.terms.get(run).is_some_and(|run| run.first <= index) {
                run += 1;
            }
            let term = self.term_before_run(run);
            let kind = match changes.next_if_eq(&&index) {
                Some(_) => EntryKind::Members,
                None => EntryKind::Election,
            };
            entries.push(empty_entry(index, term, kind));
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let missing = match index < self.start.index {
            true => StorageError::Compacted,
            false => StorageError::Unavailable,
        };
        self.term_at(index).ok_or(raft::Error::Store(missing))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.start.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last)
    }

    /// Consensus does not transfer copies of rows: it is made to wait, and the request is noted for the owner of the rows.
    fn snapshot(&self, _request_index: u64, to: u64) -> raft::Result<Snapshot> {
        self.snapshot_requests.borrow_mut().insert(to);
        Err(StorageError::SnapshotTemporarilyUnavailable.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsn::Durability;

    const PROPOSED: EntryKind = EntryKind::Proposed(Durability::Soft);

    fn terms(outline: &Outline) -> Vec<u64> {
        (outline.start()..=outline.last()).map(|index| outline.term(index).unwrap()).collect()
    }

    fn three_terms() -> Outline {
        let mut outline = Outline::default();
        for (index, term) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 4)] {
            assert!(outline.append(index, term, PROPOSED));
        }
        outline
    }

    #[test]
    fn terms_are_kept_by_position() {
        let outline = three_terms();
        assert_eq!(terms(&outline), [0, 1, 1, 2, 2, 4]);
        let entries = outline.entries(2, 6, None, GetEntriesContext::empty(false)).unwrap();
        let pairs: Vec<_> = entries.iter().map(|entry| (entry.index, entry.term)).collect();
        assert_eq!(pairs, [(2, 1), (3, 2), (4, 2), (5, 4)]);
    }

    #[test]
    fn entries_in_the_term_of_the_start_have_it() {
        let mut outline = Outline::default();
        outline.restart(5, 3);
        assert!(outline.append(6, 3, PROPOSED));
        assert!(outline.append(7, 4, PROPOSED));
        assert_eq!(terms(&outline), [3, 3, 4]);
    }

    #[test]
    fn an_overwrite_takes_everything_after_it() {
        let mut outline = three_terms();
        assert!(outline.append(2, 5, EntryKind::Election));
        assert_eq!(terms(&outline), [0, 1, 5]);
        assert_eq!(outline.proposed(), 1);
    }

    #[test]
    fn a_proposal_that_was_replaced_does_not_count_and_those_before_it_do() {
        let mut outline = Outline::default();
        for (index, kind) in [(1, EntryKind::Election), (2, PROPOSED), (3, EntryKind::Members), (4, PROPOSED)]
        {
            assert!(outline.append(index, 1, kind));
        }
        assert_eq!(outline.proposed(), 4);
        assert!(outline.append(4, 2, EntryKind::Election));
        assert_eq!((outline.proposed(), outline.proposed_until(3)), (2, 2));
        outline.compact(3, outline.proposed_until(3));
        assert_eq!(outline.proposed_start(), 2, "an engine must have no more than that");
        assert_eq!(outline.proposed_until(4), 2);
    }

    #[test]
    fn rows_are_the_same_until_the_next_proposal() {
        let mut outline = Outline::default();
        let kinds = [EntryKind::Election, PROPOSED, EntryKind::Members, EntryKind::Election, PROPOSED];
        for (index, kind) in (1..).zip(kinds) {
            assert!(outline.append(index, 1, kind));
        }
        let until = |outline: &Outline| [0, 2, 3, 5].map(|at| outline.unchanged_until(at, 5));
        assert_eq!(until(&outline), [1, 4, 4, 5]);
        assert_eq!(outline.unchanged_until(2, 3), 3, "an uncommitted entry may be replaced");
        outline.compact(3, outline.proposed_until(3));
        assert_eq!(until(&outline), [0, 4, 4, 5], "a proposal that left the log is not known to be in them");
        outline.compact(4, outline.proposed_until(4));
        assert_eq!(outline.unchanged_until(2, 4), 4);
    }

    #[test]
    fn changes_of_members_are_known_and_go_with_their_entries() {
        let mut outline = three_terms();
        assert!(outline.append(6, 4, EntryKind::Members));
        assert!(outline.append(7, 4, PROPOSED));
        assert_eq!((outline.next_change(0, 7), outline.next_change(0, 5)), (Some(6), None));
        assert_eq!((outline.next_change(6, 7), outline.change_before_last()), (None, 0));
        let mut two = outline.clone();
        assert!(two.append(8, 4, EntryKind::Members));
        assert_eq!(two.change_before_last(), 6, "known to be committed");
        let entries = outline.entries(5, 8, None, GetEntriesContext::empty(false)).unwrap();
        let changes: Vec<_> = entries.iter().map(|entry| entry.entry_type).collect();
        assert_eq!(changes, [0, 1, 0]);
        assert!(outline.append(6, 5, PROPOSED));
        assert_eq!(outline.next_change(0, 7), None, "overwritten");
    }

    #[test]
    fn gaps_and_falling_terms_do_not_fit() {
        let mut outline = three_terms();
        assert!(!outline.append(7, 4, PROPOSED));
        assert!(!outline.append(0, 4, PROPOSED));
        assert!(!outline.append(6, 3, PROPOSED));
    }

    #[test]
    fn compaction_keeps_the_terms_of_the_remaining_entries() {
        for index in 1..=5 {
            let mut outline = three_terms();
            let expected = terms(&outline)[index as usize..].to_vec();
            outline.compact(index, index);
            assert_eq!(terms(&outline), expected, "compacted up to {index}");
            assert!(outline.append(6, 4, PROPOSED));
            assert_eq!(outline.last_term(), 4);
        }
    }
}
