//! How far a group is: what a majority has written, what is applied, who may be told.

use std::collections::VecDeque;

use bytes::Bytes;
use raft::StateRole;

use super::lead::Limbo;
use super::{Group, TAIL_BYTES_MAX};
use crate::contract::{Done, Entry};
use crate::error::{Interruption, LogError, Refusal};
use crate::lsn::{Acks, Durability, Lsn};
use crate::record::{EntryKind, Record};
use crate::store::{Store, StoredEntry};
use crate::turn::{Answers, Turn};

/// How much is read at once when entries to be applied are not in memory.
const READ_BYTES: usize = 1 << 20;

impl Group {
    /// A later leader puts another entry at `index`: what was there and after it was not committed.
    pub(super) fn overwrite<S: Store>(&mut self, index: u64, turn: &mut Turn<'_, S>) {
        for (at, held) in self.tail.cut(index) {
            if let Some(done) = held.done {
                self.limbo.push(Limbo { index: at, term: held.term, done });
            }
        }
        self.written = self.written.min(index - 1);
        self.soft = self.soft.min(index - 1);
        #[cfg(any(test, feature = "mutants"))]
        if crate::mutant::is_active(crate::mutant::Mutant::KeepVoidRows) && index <= self.applied {
            self.applied = index - 1;
        }
        if index <= self.applied && !self.void {
            let (group, applied) = (self.id.0, self.applied);
            tracing::error!(group, index, applied, "an applied entry was replaced; a copy is needed");
            self.discard_rows(turn);
        }
    }

    /// From now on, and across restarts, the engine's rows are void.
    pub(super) fn discard_rows<S: Store>(&mut self, turn: &mut Turn<'_, S>) {
        #[cfg(any(test, feature = "mutants"))]
        if crate::mutant::is_active(crate::mutant::Mutant::KeepVoidRows) {
            self.applied = self.applied.min(self.node.store().last());
            return;
        }
        self.void = true;
        turn.store.push(&Record::Rows { group: self.id, void: true });
        turn.effects.urgent = true;
    }

    /// Pushes the commit position, if the log does not know it: rows are never further than that but for soft entries. After a
    /// restart a leader gives copies as far as it knows that entries are committed.
    pub fn note_commit<S: Store>(&mut self, store: &mut S) {
        let (group, commit) = (self.id, self.committed());
        let hard = &mut self.node.mut_store().hard;
        if commit <= hard.commit {
            return;
        }
        hard.commit = commit;
        let (term, vote) = (hard.term, hard.vote);
        #[cfg(any(test, feature = "mutants"))]
        let vote = if crate::mutant::is_active(crate::mutant::Mutant::ForgetVote) { 0 } else { vote };
        store.push(&Record::Vote { group, term, vote, commit });
    }

    /// The log is the leader's of `term` up to `index`.
    pub(super) fn verify(&mut self, term: u64, index: u64) {
        let known = if self.verified.0 == term { self.verified.1 } else { 0 };
        if self.verified.0 <= term {
            self.verified = (term, known.max(index));
        }
    }

    /// Up to where the log is the present leader's, and appended.
    pub(super) fn verified_here(&self) -> u64 {
        match self.verified.0 == self.node.raft.term {
            true => self.verified.1.min(self.written),
            false => 0,
        }
    }

    /// Moves the soft position to what a majority has written, as far as is known here.
    pub(super) fn advance_soft(&mut self, synced: u64) {
        let raft = &self.node.raft;
        #[cfg(any(test, feature = "mutants"))]
        if crate::mutant::is_active(crate::mutant::Mutant::SoftAlone) {
            self.soft = self.written;
        }
        let reached = if self.is_alone() {
            self.written
        } else if raft.state == StateRole::Leader {
            self.written_by_majority()
        } else if self.told.0 == raft.term && self.term_append <= synced {
            self.told.1.min(self.verified_here())
        } else {
            0
        };
        self.soft = self.soft.max(reached);
    }

    /// The last position of this leader's term that a majority has written; zero if there is none.
    fn written_by_majority(&self) -> u64 {
        let raft = &self.node.raft;
        let written = |peer: u64| match peer == self.own {
            true => self.written,
            false => {
                let matched = raft.prs().get(peer).map_or(0, |progress| progress.matched);
                self.fellows.get(&peer).map_or(0, |flight| flight.received).max(matched)
            }
        };
        let mut written: Vec<u64> = self.members().voters.iter().map(|peer| written(peer.0)).collect();
        written.sort_unstable();
        // Of three, what two have; of four, what three have.
        let least = written.len().saturating_sub(1) / 2;
        let reached = written.get(least).copied().unwrap_or(0);
        match self.node.store().term_at(reached) == Some(raft.term) {
            true => reached,
            false => 0,
        }
    }

    /// Moves entries that may be applied to `batch`, and those who wait for them to `answers`.
    pub fn take_applicable(
        &mut self,
        store: &impl Store,
        synced: u64,
        batch: &mut Vec<Entry>,
        answers: &mut Answers,
    ) -> Result<(), LogError> {
        self.advance_soft(synced);
        if !self.void {
            self.take_entries(store, batch, answers)?;
        }
        self.answer_limbo(answers);
        let reached = self.applied.min(self.durable());
        // Consensus waits for changes of members only, and those take place where they are committed.
        let passed = if self.void { self.durable() } else { reached };
        if passed > self.node.raft.raft_log.applied {
            self.node.advance_apply_to(passed);
        }
        for (to, done) in self.syncs.extract_if(.., |(to, _)| *to <= reached) {
            answers.done.push((done, Ok(Lsn(to))));
        }
        if self.members_durable_here() {
            answers.done.extend(self.changing.drain(..).map(|(at, done)| (done, Ok(Lsn(at)))));
        }
        self.reading.answer(self.applied, answers);
        self.answer_origins();
        self.tail.shrink(self.applied, if self.is_solitary() { 0 } else { TAIL_BYTES_MAX });
        Ok(())
    }

    fn take_entries(
        &mut self,
        store: &impl Store,
        batch: &mut Vec<Entry>,
        answers: &mut Answers,
    ) -> Result<(), LogError> {
        let committed = self.committed();
        let mut read = VecDeque::new();
        while self.applied < self.written {
            let index = self.applied + 1;
            let Some((kind, entry, done)) = self.entry_at(index, committed, store, &mut read)? else { break };
            self.applied = index;
            match kind {
                EntryKind::Election => continue,
                EntryKind::Members => {
                    // In force already: members change with the committed position.
                    self.changing.extend(done.map(|done| (index, done)));
                    continue;
                }
                EntryKind::Proposed(Durability::Hard) => answers.hard += u64::from(done.is_some()),
                EntryKind::Proposed(Durability::Soft) => answers.soft += u64::from(done.is_some()),
            }
            batch.push((self.id, Lsn(index), entry));
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

    /// The entry at `index`, if it may be applied.
    fn entry_at(
        &mut self,
        index: u64,
        committed: u64,
        store: &impl Store,
        read: &mut VecDeque<StoredEntry>,
    ) -> Result<Option<(EntryKind, Bytes, Option<Done>)>, LogError> {
        // What the leader alone must have; everything it ordered is of its own term.
        let (own_soft, own_hard) = match self.acks == Acks::One && self.leads().is_some() {
            true => (self.written, self.node.raft.raft_log.persisted),
            false => (0, 0),
        };
        let soft = self.soft.max(committed).max(own_soft);
        let may_apply = |kind| match kind {
            EntryKind::Proposed(Durability::Hard) => index <= committed.max(own_hard),
            EntryKind::Members => index <= committed,
            EntryKind::Proposed(Durability::Soft) | EntryKind::Election => index <= soft,
        };
        if index > soft {
            return Ok(None);
        }
        if let Some(held) = self.tail.get_mut(index) {
            let may_apply = may_apply(held.kind);
            return Ok(may_apply.then(|| (held.kind, held.payload.clone(), held.done.take())));
        }
        if read.is_empty() {
            *read = store.read(self.id, index - 1, READ_BYTES)?.into();
        }
        let found = read.pop_front().filter(|entry| entry.index == index && may_apply(entry.kind));
        Ok(found.map(|entry| (entry.kind, entry.payload, None)))
    }

    /// Tells those whose entries were overwritten, once another entry is committed there, or, if a
    /// still later leader had theirs, that one.
    fn answer_limbo(&mut self, answers: &mut Answers) {
        let (committed, applied) = (self.committed(), self.applied);
        let outline = self.node.store();
        let known = |limbo: &mut Limbo| match outline.term_at(limbo.index) {
            Some(term) if term == limbo.term => limbo.index <= applied,
            _ => limbo.index <= committed,
        };
        for Limbo { index, term, done } in self.limbo.extract_if(.., |limbo| known(limbo)) {
            answers.done.push((
                done,
                match outline.term_at(index) {
                    Some(found) if found == term => Ok(Lsn(index)),
                    Some(_) if index > outline.start() => Err(Refusal::Replaced.into()),
                    _ => Err(Interruption::Deposed.into()),
                },
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use io::sim::{SimFiles, SimRandom};

    use super::*;
    use crate::file::{FileStore, StoreOptions};
    use crate::lsn::GroupId;
    use crate::member::{Members, PeerId};
    use crate::store::StoredGroup;
    use crate::turn::Effects;

    #[test]
    fn entries_that_left_the_log_and_were_not_about_rows_are_not_waited_for() {
        let random = SimRandom::new(1);
        let options = StoreOptions::default();
        let files = Arc::new(SimFiles::new(1));
        let mut store = FileStore::open(files, Arc::new(random.clone()), Path::new("/log"), options).unwrap();
        let mut stored = StoredGroup { peer: 1, ..StoredGroup::default() };
        // The last row changed at 10, then members did; all of it was applied before the restart.
        stored.outline.begin_after(16, 3, 10);
        stored.outline.members = Members::first(vec![PeerId(1), PeerId(2), PeerId(3)]);
        let mut effects = Effects::default();
        let mut turn =
            Turn { store: &mut store, append: 1, synced: 0, random: &random, effects: &mut effects };
        let group = Group::open(GroupId(4), &stored, Lsn(10), &mut turn).unwrap();
        assert_eq!(group.status().applied, Lsn(16));
        assert!(!group.status().needs_rows);
    }
}
