//! The shape of one group's log: where it begins and ends, and the term of each position.
//!
//! This is all that consensus asks of storage. Payloads are elsewhere: consensus orders entries
//! that are empty, and whoever needs the bytes finds them by position.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::member::{Members, PeerId};
use crate::message::empty_entry;
use crate::record::EntryKind;

/// How many (empty) entries one call returns, so that a replay does not build a huge list.
const ENTRIES_PER_READ: u64 = 16 * 1024;

/// Positions and terms of a group, and what it has promised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    /// The position before the first entry, and its term.
    start: (u64, u64),
    last: u64,
    /// Where each term after the start's begins, ascending in both.
    terms: VecDeque<(u64, u64)>,
    /// Where members change, ascending.
    changes: VecDeque<u64>,
    /// Where leaders were elected, ascending.
    elections: VecDeque<u64>,
    /// The last position of a proposal.
    proposed: u64,
    /// The last such position at or before the start: what the engine must have by itself.
    proposed_start: u64,
    /// Term and vote.
    pub hard: HardState,
    /// Who takes part.
    pub members: Members,
    /// Replicas that consensus wanted to send a copy of the rows to.
    wanted: RefCell<BTreeSet<u64>>,
}

impl Outline {
    /// The position before the first entry.
    pub fn start(&self) -> u64 {
        self.start.0
    }

    /// The last position.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The term of the last position.
    pub fn last_term(&self) -> u64 {
        self.terms.back().map_or(self.start.1, |(_, term)| *term)
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
    pub fn take_wanted(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.wanted.borrow_mut())
    }

    /// Adds the entry at `index`, replacing it and all after it if they are there. Whether it
    /// fits: it may not leave a gap, nor reach before the start.
    pub fn append(&mut self, index: u64, term: u64, kind: EntryKind) -> bool {
        if index <= self.start.0 || index > self.last + 1 {
            return false;
        }
        while self.terms.back().is_some_and(|(first, _)| *first >= index) {
            self.terms.pop_back();
        }
        if term < self.last_term() {
            return false;
        }
        if term > self.last_term() {
            self.terms.push_back((index, term));
        }
        for others in [&mut self.changes, &mut self.elections] {
            while others.back().is_some_and(|other| *other >= index) {
                others.pop_back();
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
    /// Exact: an engine that has applied it has everything up to `index`, whatever was there before
    /// another leader replaced it.
    pub fn proposed_until(&self, index: u64) -> u64 {
        let mut entries = (self.start.0 + 1..=index).rev();
        entries.find(|at| !self.is_other(*at)).unwrap_or(self.proposed_start)
    }

    /// The last position up to `committed` at which rows are as they were at `at`: nothing in between is a proposal.
    pub fn unchanged_until(&self, at: u64, committed: u64) -> u64 {
        if at < self.proposed_start {
            return at;
        }
        let at = at.max(self.start.0);
        let next = (at + 1..=committed.min(self.last)).find(|next| !self.is_other(*next));
        next.map_or(at.max(committed.min(self.last)), |next| next - 1)
    }

    /// Whether the entry at a position in the log is no proposal.
    fn is_other(&self, at: u64) -> bool {
        self.changes.binary_search(&at).is_ok() || self.elections.binary_search(&at).is_ok()
    }

    /// Begins anew after `index`, whatever was there.
    pub fn restart(&mut self, index: u64, term: u64) {
        self.begin_after(index, term, index);
    }

    /// Begins after `index`; the last proposed position up to there was `proposed`.
    pub fn begin_after(&mut self, index: u64, term: u64, proposed: u64) {
        self.start = (index, term);
        self.last = index;
        self.proposed = proposed;
        self.proposed_start = proposed;
        self.terms.clear();
        self.changes.clear();
        self.elections.clear();
    }

    /// Forgets the entries up to `index`, of which `proposed` was the last proposed one.
    pub fn forget(&mut self, index: u64, proposed: u64) {
        if index <= self.start.0 || index > self.last {
            return;
        }
        let term = self.term_at(index).unwrap_or(self.start.1);
        while self.terms.get(1).is_some_and(|(first, _)| *first <= index + 1) {
            self.terms.pop_front();
        }
        if let Some((first, _)) = self.terms.front_mut() {
            *first = (*first).max(index + 1);
        }
        if index == self.last {
            self.terms.clear();
        }
        for others in [&mut self.changes, &mut self.elections] {
            while others.front().is_some_and(|other| *other <= index) {
                others.pop_front();
            }
        }
        self.start = (index, term);
        self.proposed_start = proposed;
    }

    /// The term of the entry at `index`; `None` if it is not in the log, nor just before it.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        if index < self.start.0 || index > self.last {
            return None;
        }
        let run = self.terms.partition_point(|(first, _)| *first <= index);
        let run = run.checked_sub(1).and_then(|run| self.terms.get(run));
        Some(run.map_or(self.start.1, |(_, term)| *term))
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
        if low <= self.start.0 {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let high = high.min(low + ENTRIES_PER_READ);
        let mut run = self.terms.partition_point(|(first, _)| *first <= low);
        let mut changes = self.changes.iter().skip_while(|change| **change < low).peekable();
        let mut entries = Vec::with_capacity((high - low) as usize);
        for index in low..high {
            while self.terms.get(run).is_some_and(|(first, _)| *first <= index) {
                run += 1;
            }
            let term = run.checked_sub(1).and_then(|run| self.terms.get(run));
            let term = term.map_or(self.start.1, |(_, term)| *term);
            let kind = match changes.next_if_eq(&&index) {
                Some(_) => EntryKind::Members,
                None => EntryKind::Election,
            };
            entries.push(empty_entry(index, term, kind));
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let missing = match index < self.start.0 {
            true => StorageError::Compacted,
            false => StorageError::Unavailable,
        };
        self.term_at(index).ok_or(raft::Error::Store(missing))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.start.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last)
    }

    /// Copies of rows do not travel through consensus: it is told to wait, and the owner of the
    /// rows is told to send them.
    fn snapshot(&self, _request_index: u64, to: u64) -> raft::Result<Snapshot> {
        self.wanted.borrow_mut().insert(to);
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
        outline.forget(3, outline.proposed_until(3));
        assert_eq!(outline.proposed_start(), 2, "that is all that an engine must have");
        assert_eq!(outline.proposed_until(4), 2);
    }

    #[test]
    fn rows_are_the_same_until_something_else_is_proposed() {
        let mut outline = Outline::default();
        let kinds = [EntryKind::Election, PROPOSED, EntryKind::Members, EntryKind::Election, PROPOSED];
        for (index, kind) in (1..).zip(kinds) {
            assert!(outline.append(index, 1, kind));
        }
        let until = |outline: &Outline| [0, 2, 3, 5].map(|at| outline.unchanged_until(at, 5));
        assert_eq!(until(&outline), [1, 4, 4, 5]);
        assert_eq!(outline.unchanged_until(2, 3), 3, "what is not committed may go");
        outline.forget(3, outline.proposed_until(3));
        assert_eq!(
            until(&outline),
            [0, 4, 4, 5],
            "what was proposed and is forgotten is not known to be in them"
        );
        outline.forget(4, outline.proposed_until(4));
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
    fn forgetting_keeps_the_terms_of_the_rest() {
        for index in 1..=5 {
            let mut outline = three_terms();
            let expected = terms(&outline)[index as usize..].to_vec();
            outline.forget(index, index);
            assert_eq!(terms(&outline), expected, "forgotten up to {index}");
            assert!(outline.append(6, 4, PROPOSED));
            assert_eq!(outline.last_term(), 4);
        }
    }
}
