//! Which server leads a group, as this node knows it.
//!
//! The log of this node is the best source where it has a replica that makes progress. Otherwise other servers say it, and
//! what they say may be old.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use io::task;
use parking_lot::Mutex;

use crate::config::ServerId;

/// The longest that an election takes.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a leader that another server named is asked, although the log of this node names one.
const NAMED_LEADER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a named server that denied that it leads is not asked again, whichever server names it.
const DENIED_LEADER_BACKOFF: Duration = Duration::from_millis(200);
/// How long a server that had no rows to read is not asked, if another can be.
pub(super) const WITHOUT_ROWS_BACKOFF: Duration = Duration::from_secs(5);

/// The leader of one group, as far as this node knows it: shared by every handle of the group.
pub struct KnownLeader {
    known: Mutex<Known>,
    /// The log of this node makes no progress and hears nothing of any group.
    log_is_stalled: Arc<AtomicBool>,
}

struct Known {
    leader: Option<ServerId>,
    /// The log of this node named it; otherwise another server did, or it is a guess.
    is_from_log: bool,
    /// When the log began to name it.
    since: Instant,
    /// What another server said since then.
    hint: Option<Hint>,
    /// A server that had no rows to read, and when it said so.
    without_rows: Option<(ServerId, Instant)>,
}

/// Another server named this one as the leader, or this one denied that it leads.
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

    /// `wrong` does not lead; `leader` does, by another server. The log of this node will report it, and may be late.
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
    /// No leader is known yet.
    pub(crate) fn new(log_is_stalled: Arc<AtomicBool>) -> KnownLeader {
        KnownLeader { known: Mutex::new(Known::no_leader(task::now())), log_is_stalled }
    }

    /// Whether the log of this node reports the leader: it makes progress and names one, or did until an election
    /// timeout ago.
    pub(crate) fn is_from_local_log(&self) -> bool {
        !self.log_is_stalled.load(Ordering::Acquire) && self.known.lock().is_from_local_log(task::now())
    }

    /// The server that leads, if one is known.
    #[must_use]
    pub fn leader(&self) -> Option<ServerId> {
        self.known.lock().leader(task::now())
    }

    /// The log of this node reports the leader; `None` when there is none.
    pub(crate) fn report(&self, leader: Option<ServerId>) {
        self.known.lock().report(leader, task::now());
    }

    /// Notes a leader that the log does not report: one that another server named, or a guess; `None` when none is known.
    pub(crate) fn set_named(&self, leader: Option<ServerId>) {
        self.known.lock().set_named(leader);
    }

    /// As [`KnownLeader::find`], unless another server than `wrong` is known to lead.
    pub(super) fn correct(&self, wrong: ServerId, leader: Option<ServerId>) {
        let mut known = self.known.lock();
        if known.leader(task::now()).is_none_or(|leader| leader == wrong) {
            known.set_named(leader);
        }
    }

    /// As [`KnownLeader::correct`], where the log reports the leader: the log is believed again after a second.
    pub(super) fn correct_log(&self, wrong: ServerId, leader: Option<ServerId>) {
        self.known.lock().correct_log(wrong, leader, task::now());
    }

    /// Notes that `server` has no rows to read now.
    pub(super) fn set_without_rows(&self, server: ServerId) {
        self.known.lock().without_rows = Some((server, task::now()));
    }

    #[cfg(test)]
    pub(super) fn set_without_rows_at(&self, server: ServerId, at: Instant) {
        self.known.lock().without_rows = Some((server, at));
    }

    /// Whether `server` can be asked for rows: it had some when it was last asked, or that was a while ago.
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
    fn a_named_leader_is_asked_until_it_denies_it_or_the_log_reports_the_leader() {
        let now = task::now();
        let mut known = Known::no_leader(now);
        let at_once = Duration::ZERO;
        known.correct_log(server(1), Some(server(2)), now);
        assert_eq!(known.leader(now), None, "a late answer does not count while there is no leader");
        known.report(Some(server(1)), now);
        let mut then = |wrong: u64, named: Option<u64>, after: Duration| {
            known.correct_log(server(wrong), named.map(server), now + after);
            known.leader(now + after)
        };
        assert_eq!(then(1, None, at_once), Some(server(1)), "the log will say so");
        assert_eq!(then(1, Some(2), at_once), Some(server(2)));
        assert_eq!(then(1, Some(3), at_once), Some(server(2)), "an answer that came late");
        assert_eq!(then(2, None, at_once), Some(server(1)), "it denies it");
        assert_eq!(
            then(1, Some(2), at_once),
            Some(server(1)),
            "two servers that name each other do not send requests to and fro"
        );
        assert_eq!(then(1, Some(2), DENIED_LEADER_BACKOFF), Some(server(2)), "it may lead by now");
        assert_eq!(
            then(2, Some(1), DENIED_LEADER_BACKOFF),
            Some(server(1)),
            "it names the server that named it"
        );
        assert_eq!(then(1, Some(2), DENIED_LEADER_BACKOFF), Some(server(1)));
        assert_eq!(then(1, Some(3), DENIED_LEADER_BACKOFF), Some(server(3)));
        assert_eq!(
            known.leader(now + DENIED_LEADER_BACKOFF + NAMED_LEADER_TIMEOUT),
            Some(server(1)),
            "the log is believed again"
        );
        known.report(Some(server(1)), now + DENIED_LEADER_BACKOFF);
        assert_eq!(known.leader(now + DENIED_LEADER_BACKOFF), Some(server(1)), "the log says so again");
    }

    #[test]
    fn only_reports_of_the_log_count_as_heard() {
        let now = task::now();
        let mut known = Known::no_leader(now);
        assert!(known.is_from_local_log(now), "an election may be under way");
        known.set_named(Some(server(1)));
        assert!(!known.is_from_local_log(now + ELECTION_TIMEOUT));
        known.correct_log(server(1), None, now + ELECTION_TIMEOUT);
        assert_eq!(known.leader(now + ELECTION_TIMEOUT), None, "no other server says that it leads");
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
