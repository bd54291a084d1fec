//! Where the log of a copied replica begins: behind rows that are committed, or that cannot be without the copy.

use raft::StateRole;

use super::Group;
use crate::contract::OriginDone;
use crate::error::{LogError, Refusal};
use crate::lsn::{Lsn, Term};
use crate::origin::Origin;
use crate::store::{Store, StoredEntry};

/// So long it is waited until what is in the rows is committed, in ticks.
const COMMIT_TICKS: u64 = 10;
/// Entries that are in the rows and not committed go with a copy up to so many bytes. They are those of a moment: nothing
/// soft is given to the engine any more when no majority writes.
const AHEAD_BYTES_MAX: usize = 16 << 20;

/// Questions where the logs of copies begin.
#[derive(Default)]
pub(super) struct Origins(Vec<Asked>);

struct Asked {
    /// The position of the rows.
    at: u64,
    /// When it was asked, in ticks.
    since: u64,
    done: OriginDone,
}

impl Origins {
    /// Everyone who waits; they wait no more.
    pub fn drain(&mut self) -> impl Iterator<Item = OriginDone> {
        self.0.drain(..).map(|asked| asked.done)
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Group {
    /// Takes a question where the log of a copy of the rows at `at` begins.
    ///
    /// Also on one that is elected and not in office yet: it may be that the copy makes the majority.
    pub fn ask_origin(&mut self, at: Lsn, done: OriginDone) {
        if self.void || self.node.raft.state != StateRole::Leader {
            return done(Err(Refusal::NotLeader { leader: self.leader() }.into()));
        }
        if at.0 > self.node.store().last() {
            return done(Err(Refusal::Unfit.into()));
        }
        self.origins.0.push(Asked { at: at.0, since: self.ticks, done });
        self.answer_origins();
    }

    /// Answers those whose rows are committed.
    pub(super) fn answer_origins(&mut self) {
        if !self.members_are_kept() {
            // A copy would make others believe in them at once.
            return;
        }
        let committed = self.committed();
        for asked in self.origins.0.extract_if(.., |asked| asked.at <= committed) {
            let outline = self.node.store();
            // Rows are as old as the last entry that changed them. Who gets them may have forgotten, with what came
            // before, entries after it that were not about rows.
            let at = outline.unchanged_until(asked.at, committed);
            (asked.done)(match outline.term_at(at) {
                Some(term) => Ok(Origin {
                    at: Lsn(at),
                    term: Term(term),
                    members: outline.members.clone(),
                    ahead: Vec::new(),
                }),
                None => Err(Refusal::Unfit.into()),
            });
        }
    }

    /// Answers those who have waited for long: soft entries that are in the rows may have been written by one who votes no
    /// more, and the one who is to write them, too, cannot before it has the copy. They go with it, and whoever gets them
    /// has them as if they had come before: in its log, applied, and not known to be committed.
    pub(super) fn answer_origins_ahead(&mut self, store: &impl Store) -> Result<(), LogError> {
        let due = self.ticks.saturating_sub(COMMIT_TICKS);
        let is_due = |asked: &Asked| asked.since <= due;
        if !self.members_are_kept() || !self.origins.0.iter().any(is_due) {
            return Ok(());
        }
        let committed = self.committed();
        let Some(term) = self.node.store().term_at(committed) else { return Ok(()) };
        let reach = self.origins.0.iter().filter(|asked| is_due(asked)).map(|asked| asked.at).max();
        let ahead = self.entries_ahead(committed, reach.unwrap_or(committed), store)?;
        let members = self.members().clone();
        let has_all = |at: u64| at <= committed || ahead.last().is_some_and(|last| at <= last.index);
        for asked in self.origins.0.extract_if(.., |asked| is_due(asked) && has_all(asked.at)) {
            tracing::debug!(
                group = self.id.0,
                committed,
                at = asked.at,
                "a copy goes with entries that are not committed"
            );
            let ahead = ahead.iter().filter(|entry| entry.index <= asked.at).cloned().collect();
            (asked.done)(Ok(Origin {
                at: Lsn(committed),
                term: Term(term),
                members: members.clone(),
                ahead,
            }));
        }
        Ok(())
    }

    /// The entries after `committed` up to `reach`, as far as they are written and may go with a copy.
    fn entries_ahead(
        &self,
        committed: u64,
        reach: u64,
        store: &impl Store,
    ) -> Result<Vec<StoredEntry>, LogError> {
        let (mut ahead, mut bytes): (Vec<StoredEntry>, usize) = (Vec::new(), 0);
        let mut at = committed;
        while at < reach.min(self.written) && bytes < AHEAD_BYTES_MAX {
            let read = store.read(self.id, at, AHEAD_BYTES_MAX)?;
            let Some(last) = read.last() else { break };
            at = last.index;
            bytes += read.iter().map(|entry| entry.payload.len()).sum::<usize>();
            ahead.extend(read.into_iter().filter(|entry| entry.index <= reach));
        }
        Ok(ahead)
    }
}
