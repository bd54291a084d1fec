//! Where the log of a copied replica begins: behind rows that are committed, or that cannot be without the copy.

use raft::StateRole;

use super::Group;
use crate::contract::LogBaseDone;
use crate::error::{LogError, Refusal};
use crate::log_base::LogBase;
use crate::lsn::{Lsn, Term};
use crate::store::{Store, StoredEntry};
use crate::turn::Turn;

/// So long it is waited until what is in the rows is committed, in ticks.
const COMMIT_TICKS: u64 = 10;
/// Entries that are in the rows and not committed go with a copy up to about so many bytes. Soft ones are those of a
/// moment; where one replica is enough for an acknowledgement there may be more, and no copy until they are committed.
const AHEAD_BYTES_MAX: usize = 16 << 20;

/// Questions where the logs of copies begin.
#[derive(Default)]
pub(super) struct Origins(Vec<Asked>);

struct Asked {
    /// The position of the rows.
    at: u64,
    /// When it was asked, in ticks.
    since: u64,
    done: LogBaseDone,
}

impl Origins {
    /// Everyone who waits; they wait no more.
    pub fn drain(&mut self) -> impl Iterator<Item = LogBaseDone> {
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
    pub fn ask_origin(&mut self, at: Lsn, done: LogBaseDone) {
        if self.void || self.node.raft.state != StateRole::Leader {
            return done(Err(Refusal::NotLeader { leader: self.leader() }.into()));
        }
        if at.0 > self.node.store().last() {
            return done(Err(Refusal::Invalid.into()));
        }
        self.origins.0.push(Asked { at: at.0, since: self.ticks, done });
        self.answer_origins();
    }

    /// Answers those whose rows are committed.
    pub(super) fn answer_origins(&mut self) {
        if !self.members_durable_here() {
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
                Some(term) => Ok(LogBase {
                    at: Lsn(at),
                    term: Term(term),
                    members: outline.members.clone(),
                    ahead: Vec::new(),
                }),
                None => Err(Refusal::Invalid.into()),
            });
        }
    }

    /// Answers those who have waited for long: soft entries that are in the rows may have been written by one who votes no
    /// more, and the one who is to write them, too, cannot before it has the copy. They go with it, and whoever gets them
    /// has them as if they had come before: in its log, applied, and not known to be committed.
    pub(super) fn answer_origins_ahead<S: Store>(&mut self, turn: &Turn<'_, S>) -> Result<(), LogError> {
        let (ticks, committed) = (self.ticks, self.committed());
        let is_due = |asked: &Asked| asked.since + COMMIT_TICKS <= ticks && asked.at > committed;
        // What one who votes alone has ordered in a term that is not durable may be other entries after a power loss.
        let may_tell = self.members_durable_here() && self.term_append <= turn.synced;
        if !may_tell || !self.origins.0.iter().any(is_due) {
            return Ok(());
        }
        let Some(term) = self.node.store().term_at(committed).map(Term) else { return Ok(()) };
        let ahead = self.durable_ahead(committed, turn.store)?;
        let reach = ahead.last().map_or(committed, |last| last.index);
        let members = self.members().clone();
        for Asked { at, done, .. } in self.origins.0.extract_if(.., |asked| is_due(asked)) {
            done(match at <= reach {
                true => {
                    let (group, count) = (self.id.0, at - committed);
                    tracing::debug!(
                        group,
                        committed,
                        count,
                        "a copy goes with entries that are not committed"
                    );
                    let ahead = ahead[..count as usize].to_vec();
                    Ok(LogBase { at: Lsn(committed), term, members: members.clone(), ahead })
                }
                // Too much for one copy, or not on the disk yet: the next one may find it otherwise.
                false => Err(Refusal::Invalid.into()),
            });
        }
        Ok(())
    }

    /// The entries after `committed` that are durable here, as many as may go with a copy.
    fn durable_ahead(&self, committed: u64, store: &impl Store) -> Result<Vec<StoredEntry>, LogError> {
        let durable = self.written.min(self.node.raft.raft_log.persisted);
        let mut ahead = store.read(self.id, committed, AHEAD_BYTES_MAX)?;
        ahead.retain(|entry| entry.index <= durable);
        Ok(ahead)
    }
}
