//! Requests for the log base of a copy: the position after which the log of a copied replica begins.

use super::consensus::Consensus;
use super::entries::Entries;
use super::membership::Membership;
use crate::contract::LogBaseDone;
use crate::error::{LogError, Refusal};
use crate::log_base::LogBase;
use crate::lsn::{Lsn, Term};
use crate::store::{Store, StoredEntry};

/// Ticks that a request waits for the rows to be committed.
const COMMIT_WAIT_TICKS: u64 = 10;
/// Limit for the uncommitted entries that go with a copy, in bytes, approximately. Soft entries are uncommitted for a
/// moment only. Where one replica is enough for an acknowledgement there may be more; such a copy waits for the commit.
const AHEAD_BYTES_MAX: usize = 16 << 20;

struct LogBaseRequest {
    /// The position of the rows.
    at: u64,
    /// The tick at which the request arrived.
    since: u64,
    done: LogBaseDone,
}

/// The requests that wait.
#[derive(Default)]
pub(super) struct LogBases(Vec<LogBaseRequest>);

impl LogBases {
    /// Adds a request for the log base of rows at `at`, at tick `since`.
    pub fn push(&mut self, at: u64, since: u64, done: LogBaseDone) {
        self.0.push(LogBaseRequest { at, since, done });
    }

    /// Removes and returns the callbacks of all requests.
    pub fn drain(&mut self) -> impl Iterator<Item = LogBaseDone> {
        self.0.drain(..).map(|request| request.done)
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Answers requests for rows that are committed.
    pub fn answer_committed(&mut self, consensus: &Consensus, membership: &Membership) {
        if !membership.is_durable() {
            // A copy would spread the members in force before they are durable here.
            return;
        }
        let (committed, outline) = (consensus.committed(), consensus.outline());
        for request in self.0.extract_if(.., |request| request.at <= committed) {
            // Rows are as old as the last entry that changed them. The log of the copy begins as late as possible: its
            // receiver may no longer have the entries in between, which did not change rows.
            let at = outline.unchanged_until(request.at, committed);
            (request.done)(match outline.term_at(at) {
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

    /// Answers requests that have waited for long. The rows may contain soft entries whose second writer no longer
    /// votes, while the replica that is to write them needs this copy first. Such entries go with the copy: the
    /// receiver has them in its log, applied, and not known to be committed.
    pub fn answer_overdue(
        &mut self,
        consensus: &Consensus,
        entries: &Entries,
        ticks: u64,
        store: &impl Store,
    ) -> Result<(), LogError> {
        let committed = consensus.committed();
        let is_due =
            |request: &LogBaseRequest| request.since + COMMIT_WAIT_TICKS <= ticks && request.at > committed;
        if !self.0.iter().any(is_due) {
            return Ok(());
        }
        let Some(term) = consensus.outline().term_at(committed).map(Term) else { return Ok(()) };
        let ahead = durable_ahead(consensus, entries, store)?;
        let last = ahead.last().map_or(committed, |last| last.index);
        let members = consensus.members().clone();
        for LogBaseRequest { at, done, .. } in self.0.extract_if(.., |request| is_due(request)) {
            done(match at <= last {
                true => {
                    let (group, count) = (consensus.id.0, at - committed);
                    tracing::debug!(group, committed, count, "the copy includes uncommitted entries");
                    let ahead = ahead[..count as usize].to_vec();
                    Ok(LogBase { at: Lsn(committed), term, members: members.clone(), ahead })
                }
                // Too much for one copy, or not durable here yet. A later request may succeed.
                false => Err(Refusal::Invalid.into()),
            });
        }
        Ok(())
    }
}

/// The uncommitted entries that are durable here, as many as may go with a copy.
fn durable_ahead(
    consensus: &Consensus,
    entries: &Entries,
    store: &impl Store,
) -> Result<Vec<StoredEntry>, LogError> {
    let durable = entries.written.min(consensus.persisted());
    let mut ahead = store.read(consensus.id, consensus.committed(), AHEAD_BYTES_MAX)?;
    ahead.retain(|entry| entry.index <= durable);
    Ok(ahead)
}
