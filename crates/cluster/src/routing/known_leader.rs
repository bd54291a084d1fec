//! The server that leads a group, as far as this node knows.
//!
//! The local log is the best source if it has a replica of the group and makes progress. Otherwise other servers name the
//! leader, and their information may be outdated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use io::task;

use crate::config::ServerId;
use crate::locks::BriefMutex;

/// The longest that an election takes.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a leader named by another server takes precedence over the one that the local log reported.
const NAMED_LEADER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a server that denied to be the leader is not asked again, even if another server names it.
const DENIED_LEADER_BACKOFF: Duration = Duration::from_millis(200);
/// How long a server without rows to read is not asked if another can be.
pub(super) const WITHOUT_ROWS_BACKOFF: Duration = Duration::from_secs(5);

/// The leader of one group, as far as this node knows. Shared by all handles of the group.
pub struct KnownLeader {
    known: BriefMutex<Known>,
    /// The local log makes no progress, so it receives no reports of any group.
    log_is_stalled: Arc<AtomicBool>,
}

struct Known {
    leader: Option<ServerId>,
    /// Whether the local log reported the leader; otherwise another server named it, or it is a guess.
    is_from_log: bool,
    /// Since when the local log reports this leader, or that there is none.
    since: Instant,
    /// The last hint of another server since then.
    hint: Option<Hint>,
    /// A server without rows to read, and the time of its response.
    without_rows: Option<(ServerId, Instant)>,
}

/// A hint of another server: it named `server` as the leader (`leads`), or `server` itself denied to be the leader.
struct Hint {
    server: ServerId,
    leads: bool,
    at: Instant,
}

impl Known {
    fn no_leader(now: Instant) -> Known {
        Known { leader: None, is_from_log: true, since: now, hint: None, without_rows: None }
    }

    fn leader(&self, now: Instant) -> Option<ServerId> {
        let named = self.hint.as_ref().filter(|hint| hint.leads && now - hint.at < NAMED_LEADER_TIMEOUT);
        named.map(|hint| hint.server).or(self.leader)
    }

    fn is_from_local_log(&self, now: Instant) -> bool {
        (self.is_from_log && self.leader.is_some()) || now - self.since < ELECTION_TIMEOUT
    }

    fn report(&mut self, leader: Option<ServerId>, now: Instant) {
        if !self.is_from_log || self.leader != leader {
            self.since = now;
        }
        (self.leader, self.is_from_log, self.hint) = (leader, true, None);
    }

    fn set_named(&mut self, leader: Option<ServerId>) {
        (self.leader, self.is_from_log, self.hint) = (leader, false, None);
    }

    /// Takes a hint of another server that `wrong` does not lead, and that `leader` does. The local log will report it
    /// too, but may be late.
    fn correct_log(&mut self, wrong: ServerId, leader: Option<ServerId>, now: Instant) {
        if self.leader(now) != Some(wrong) {
            return;
        }
        let denied =
            |hint: &Hint| !hint.leads && now - hint.at < DENIED_LEADER_BACKOFF && leader == Some(hint.server);
        let (server, leads) = match leader {
            Some(leader) if self.leader == Some(leader) => (wrong, false),
            Some(_) if self.hint.as_ref().is_some_and(denied) => return,
            Some(leader) => (leader, true),
            None if self.leader == Some(wrong) && self.is_from_log => return,
            None if self.leader == Some(wrong) => return self.set_named(None),
            None => (wrong, false),
        };
        self.hint = Some(Hint { server, leads, at: now });
    }
}

impl KnownLeader {
    /// A group without a known leader.
    pub(crate) fn new(log_is_stalled: Arc<AtomicBool>) -> KnownLeader {
        KnownLeader { known: BriefMutex::leaf(Known::no_leader(task::now())), log_is_stalled }
    }

    /// Whether the local log reports the leader: it makes progress, and reports a leader now or did within the last
    /// election timeout.
    pub(crate) fn is_from_local_log(&self) -> bool {
        !self.log_is_stalled.load(Ordering::Acquire) && self.known.lock().is_from_local_log(task::now())
    }

    /// The server that leads, if one is known.
    #[must_use]
    pub fn leader(&self) -> Option<ServerId> {
        self.known.lock().leader(task::now())
    }

    /// Records the leader that the local log reports; `None` if there is none.
    pub(crate) fn report(&self, leader: Option<ServerId>) {
        self.known.lock().report(leader, task::now());
    }

    /// Records a leader that the local log did not report: one that another server named, or a guess; `None` if none is
    /// known.
    pub(crate) fn set_named(&self, leader: Option<ServerId>) {
        self.known.lock().set_named(leader);
    }

    /// As [`KnownLeader::set_named`], unless the known leader is another server than `wrong`.
    pub(super) fn correct(&self, wrong: ServerId, leader: Option<ServerId>) {
        let mut known = self.known.lock();
        if known.leader(task::now()).is_none_or(|leader| leader == wrong) {
            known.set_named(leader);
        }
    }

    /// As [`KnownLeader::correct`], for a group whose leader the local log reports: the hint is used for a second, then
    /// the log's report again.
    pub(super) fn correct_log(&self, wrong: ServerId, leader: Option<ServerId>) {
        self.known.lock().correct_log(wrong, leader, task::now());
    }

    /// Records that `server` has no rows to read now.
    pub(super) fn set_without_rows(&self, server: ServerId) {
        self.known.lock().without_rows = Some((server, task::now()));
    }

    #[cfg(test)]
    pub(super) fn set_without_rows_at(&self, server: ServerId, at: Instant) {
        self.known.lock().without_rows = Some((server, at));
    }

    /// Whether `server` may have rows to read: false for [`WITHOUT_ROWS_BACKOFF`] after it responded that it has none.
    pub(super) fn has_rows(&self, server: ServerId) -> bool {
        let without = self.known.lock().without_rows;
        without.is_none_or(|(other, since)| other != server || task::now() - since > WITHOUT_ROWS_BACKOFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::server;

    #[test]
    fn a_named_leader_is_used_until_it_denies_or_the_log_reports() {
        let now = task::now();
        let mut known = Known::no_leader(now);
        let immediately = Duration::ZERO;
        known.correct_log(server(1), Some(server(2)), now);
        assert_eq!(known.leader(now), None, "a late response does not count while there is no leader");
        known.report(Some(server(1)), now);
        let mut then = |wrong: u64, named: Option<u64>, after: Duration| {
            known.correct_log(server(wrong), named.map(server), now + after);
            known.leader(now + after)
        };
        assert_eq!(then(1, None, immediately), Some(server(1)), "the log will report it");
        assert_eq!(then(1, Some(2), immediately), Some(server(2)));
        assert_eq!(then(1, Some(3), immediately), Some(server(2)), "a late response");
        assert_eq!(then(2, None, immediately), Some(server(1)), "it denied to be the leader");
        assert_eq!(
            then(1, Some(2), immediately),
            Some(server(1)),
            "requests do not alternate between two servers that name each other"
        );
        assert_eq!(then(1, Some(2), DENIED_LEADER_BACKOFF), Some(server(2)), "the backoff is over");
        assert_eq!(then(2, Some(1), DENIED_LEADER_BACKOFF), Some(server(1)), "it names the other server");
        assert_eq!(then(1, Some(2), DENIED_LEADER_BACKOFF), Some(server(1)));
        assert_eq!(then(1, Some(3), DENIED_LEADER_BACKOFF), Some(server(3)));
        assert_eq!(
            known.leader(now + DENIED_LEADER_BACKOFF + NAMED_LEADER_TIMEOUT),
            Some(server(1)),
            "the hint has expired"
        );
        known.report(Some(server(1)), now + DENIED_LEADER_BACKOFF);
        assert_eq!(known.leader(now + DENIED_LEADER_BACKOFF), Some(server(1)), "the log reports again");
    }

    #[test]
    fn only_reports_of_the_local_log_count_as_its_own() {
        let now = task::now();
        let mut known = Known::no_leader(now);
        assert!(known.is_from_local_log(now), "an election may be under way");
        known.set_named(Some(server(1)));
        assert!(!known.is_from_local_log(now + ELECTION_TIMEOUT));
        known.correct_log(server(1), None, now + ELECTION_TIMEOUT);
        assert_eq!(known.leader(now + ELECTION_TIMEOUT), None, "no other server is named");
        known.set_named(Some(server(1)));
        known.report(Some(server(1)), now + ELECTION_TIMEOUT);
        assert!(known.is_from_local_log(now + 9 * ELECTION_TIMEOUT));
        known.report(None, now + 9 * ELECTION_TIMEOUT);
        assert!(
            known.is_from_local_log(now + 9 * ELECTION_TIMEOUT)
                && !known.is_from_local_log(now + 10 * ELECTION_TIMEOUT)
        );
    }
}
