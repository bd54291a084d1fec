//! Stalled logs, which make no progress, on this server and on others. Decision 0037.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use io::{Nanos, task};
use log::{GroupId, Stall, StallCause};

use crate::config::ServerId;
use crate::locks::{BriefMutex, Rank};

/// How long a disk must be full before it counts as a stall.
const FULL_DISK_TIMEOUT: Duration = Duration::from_secs(1);
/// A step of the log that takes longer than this is a stall. Such a step may never end. An `fsync` in parallel to the
/// steps that takes as long is reported, but is no stall.
const LOG_STEP_TIMEOUT: Duration = Duration::from_secs(4);
/// A stall does not end while a step of the log takes this long or longer.
const SLOW_STEP_TIMEOUT: Duration = Duration::from_millis(100);
/// A stall ends after this long without a new one.
const RECOVERY_INTERVAL: Duration = Duration::from_millis(1500);
/// How long the end of a stall is announced to other servers.
const RECOVERY_ANNOUNCEMENT: Duration = Duration::from_millis(1500);
/// If a step takes this long, the disk may hang: a server does not report its log as healthy.
const DOUBTFUL_STEP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a report of another server is valid: that its log has stalled, or that it knows no later term.
const REPORT_LIFETIME: Duration = Duration::from_secs(3);

/// The stalls of this server and of others.
pub(crate) struct DiskStalls {
    own: BriefMutex<OwnLog>,
    /// The stalls of other servers, and the times of their last reports.
    others: BriefMutex<BTreeMap<ServerId, (StallCause, Instant)>>,
    /// When a hanging fsync of this server began, while its log makes progress.
    sync: BriefMutex<Option<Nanos>>,
}

/// The log of this server at the last check.
#[derive(Default)]
struct OwnLog {
    stall: Option<Stall>,
    /// Since when the cause of the stall is gone.
    healthy_since: Option<Nanos>,
    /// Until when the end of the stall is announced.
    announced_until: Option<Nanos>,
    /// When the stall was noticed.
    noticed: Nanos,
    /// The health that other servers reported of their logs since then.
    reported: BTreeMap<ServerId, Option<StallCause>>,
    /// When servers last confirmed, since then, that they know no later term of a group than this server does.
    confirmed: BTreeMap<(GroupId, ServerId), Nanos>,
}

/// The result of a check of the own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// It makes progress, and no stall has ended recently.
    Healthy,
    /// It has stalled. `is_new`: at the last check it had not, or had another cause.
    Stalled { stall: Stall, is_new: bool },
    /// It makes progress again, and that is to be announced. `is_new`: it was still stalled at the last check.
    Recovered { is_new: bool },
}

impl Default for DiskStalls {
    /// No stalls.
    fn default() -> DiskStalls {
        DiskStalls {
            own: BriefMutex::new(Rank::OwnLog, OwnLog::default()),
            others: BriefMutex::default(),
            sync: BriefMutex::default(),
        }
    }
}

impl DiskStalls {
    /// Checks the own log, which now reports the stall `found`.
    pub(crate) fn check(&self, found: Option<Stall>, now: Nanos) -> Check {
        let mut own = self.own.lock();
        let before = own.stall;
        if let Some(stall) = found.filter(|stall| is_long(stall, now)) {
            if before.is_none() {
                own.reported.clear();
                own.confirmed.clear();
                own.noticed = now;
            }
            own.stall = Some(stall);
            (own.healthy_since, own.announced_until) = (None, None);
            return Check::Stalled { stall, is_new: before.is_none_or(|before| before.cause != stall.cause) };
        }
        let Some(stall) = before else {
            own.announced_until.take_if(|until| *until <= now);
            return if own.announced_until.is_some() {
                Check::Recovered { is_new: false }
            } else {
                Check::Healthy
            };
        };
        own.healthy_since = match found {
            Some(found) if found.cause == StallCause::Full || now.since(found.since) >= SLOW_STEP_TIMEOUT => {
                None
            }
            _ => own.healthy_since.or(Some(now)),
        };
        if own.healthy_since.is_none_or(|since| now.since(since) < RECOVERY_INTERVAL) {
            return Check::Stalled { stall, is_new: false };
        }
        (own.stall, own.healthy_since, own.announced_until) =
            (None, None, Some(now.after(RECOVERY_ANNOUNCEMENT)));
        Check::Recovered { is_new: true }
    }

    /// The stall of the own log.
    pub(crate) fn own(&self) -> Option<Stall> {
        self.own.lock().stall
    }

    /// The cause of a stall of the own log, or of a step that may become one. This is the response to a server whose
    /// log has stalled, which steps down from groups that this server can lead.
    pub(crate) fn stall_or_doubt(&self, found: Option<Stall>, now: Nanos) -> Option<StallCause> {
        let is_doubtful = |stall: &Stall| {
            stall.cause != StallCause::Slow || now.since(stall.since) >= DOUBTFUL_STEP_TIMEOUT
        };
        found.filter(is_doubtful).or(self.own()).map(|stall| stall.cause)
    }

    /// Takes the response of `server` to the report of a stall: `cause` is why its log is stalled, `None` if that is
    /// healthy. While the own log is stalled, calls `step_down` with the servers whose logs are healthy.
    pub(crate) fn take_response(
        &self,
        server: ServerId,
        cause: Option<StallCause>,
        step_down: impl FnOnce(&BTreeSet<ServerId>),
    ) {
        let mut own = self.own.lock();
        if own.stall.is_some() {
            own.reported.insert(server, cause);
            step_down(&own.healthy_servers());
        }
    }

    /// Records that `server` knows no later term of these groups than this server does. While the own log is stalled, calls
    /// `step_down`, in which the caller steps down from groups of which `server` does know a later term.
    pub(crate) fn take_confirmation(
        &self,
        server: ServerId,
        groups: impl IntoIterator<Item = GroupId>,
        now: Nanos,
        step_down: impl FnOnce(),
    ) {
        let mut own = self.own.lock();
        if own.stall.is_some() {
            own.confirmed.extend(groups.into_iter().map(|group| ((group, server), now)));
            step_down();
        }
    }

    /// The servers that have reported healthy logs since the stall began.
    pub(crate) fn healthy_servers(&self) -> BTreeSet<ServerId> {
        self.own.lock().healthy_servers()
    }

    /// The groups and servers of recent confirmations, during the stall, that the server knows no later term of the
    /// group. `None` for [`REPORT_LIFETIME`] after the stall was noticed, because the first responses may be late.
    pub(crate) fn recently_confirmed(&self, now: Nanos) -> Option<BTreeSet<(GroupId, ServerId)>> {
        let own = self.own.lock();
        let recent = || own.confirmed.iter().filter(|(_, at)| now.since(**at) < REPORT_LIFETIME);
        (now.since(own.noticed) >= REPORT_LIFETIME)
            .then(|| recent().map(|(confirmed, _)| *confirmed).collect())
    }

    /// Checks an fsync that runs in parallel to the log's steps, began at `found` and has not returned. Returns when the
    /// fsync that hung at the last check began, and when the one that hangs now began; `None` if none hung or hangs.
    pub(crate) fn check_sync(&self, found: Option<Nanos>, now: Nanos) -> (Option<Nanos>, Option<Nanos>) {
        let hangs = found.filter(|since| now.since(*since) >= LOG_STEP_TIMEOUT);
        (std::mem::replace(&mut *self.sync.lock(), hangs), hangs)
    }

    /// When a hanging fsync began, while the log makes progress.
    pub(crate) fn sync(&self) -> Option<Nanos> {
        *self.sync.lock()
    }

    /// Takes the report of `server` about a stall of its log, or about its end. Returns whether the report changed.
    pub(crate) fn take_report(&self, server: ServerId, cause: Option<StallCause>) -> bool {
        let mut others = self.others.lock();
        let before = match cause {
            Some(cause) => others.insert(server, (cause, task::now())),
            None => others.remove(&server),
        };
        before.map(|(cause, _)| cause) != cause
    }

    /// Whether `server` reported recently that its log has stalled.
    pub(crate) fn has_reported(&self, server: ServerId) -> bool {
        self.others.lock().get(&server).is_some_and(|(_, at)| task::now() - *at < REPORT_LIFETIME)
    }

    /// Whether the own log takes no steps: a thread that waits for one may wait for ever.
    pub(crate) fn log_hangs(&self) -> bool {
        self.own().is_some_and(|stall| stall.cause != StallCause::Full)
    }

    /// Whether the log of `server` has stalled, as far as this server knows; `own` is this server.
    pub(crate) fn is_stalled(&self, server: ServerId, own: ServerId) -> bool {
        self.has_reported(server) || (server == own && self.own().is_some())
    }
}

impl OwnLog {
    fn healthy_servers(&self) -> BTreeSet<ServerId> {
        self.reported.iter().filter(|(_, cause)| cause.is_none()).map(|(server, _)| *server).collect()
    }
}

fn is_long(stall: &Stall, now: Nanos) -> bool {
    let timeout = match stall.cause {
        StallCause::Stopped => Duration::ZERO,
        StallCause::Full => FULL_DISK_TIMEOUT,
        StallCause::Slow => LOG_STEP_TIMEOUT,
    };
    now.since(stall.since) >= timeout
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    fn slow(ms: u64) -> Option<Stall> {
        Some(Stall { since: at(ms), cause: StallCause::Slow })
    }

    #[test]
    fn a_stall_ends_after_an_interval_and_its_end_is_announced_for_another() {
        let stalls = DiskStalls::default();
        assert_eq!(stalls.check(None, at(0)), Check::Healthy, "there was no stall");
        let stall = Stall { since: at(0), cause: StallCause::Full };
        assert_eq!(stalls.check(Some(stall), at(500)), Check::Healthy, "the disk is full for a moment only");
        for (ms, is_new) in [(1000, true), (1500, false)] {
            assert_eq!(stalls.check(Some(stall), at(ms)), Check::Stalled { stall, is_new });
        }
        // The number of checks does not matter.
        for ms in (2000..3500).step_by(10) {
            assert_eq!(stalls.check(None, at(ms)), Check::Stalled { stall, is_new: false });
        }
        assert_eq!(stalls.check(None, at(3500)), Check::Recovered { is_new: true });
        assert_eq!(stalls.check(None, at(4000)), Check::Recovered { is_new: false });
        assert_eq!((stalls.check(None, at(5000)), stalls.own()), (Check::Healthy, None));
    }

    #[test]
    fn consecutive_slow_steps_are_one_stall() {
        let stalls = DiskStalls::default();
        let stall = slow(0).unwrap();
        assert_eq!(stalls.check(slow(0), at(4000)), Check::Stalled { stall, is_new: true });
        for step in [5000, 8000, 11_000] {
            for ms in (step..step + 3000).step_by(500) {
                let found = slow(step).filter(|_| ms > step);
                assert_eq!(stalls.check(found, at(ms)), Check::Stalled { stall, is_new: false });
            }
        }
        // Short steps do not extend the stall.
        assert_eq!(stalls.check(slow(14_000), at(14_010)), Check::Stalled { stall, is_new: false });
        assert_eq!(stalls.check(slow(15_500), at(15_520)), Check::Recovered { is_new: true });
    }

    #[test]
    fn a_server_with_a_doubtful_log_does_not_report_it_as_healthy() {
        let stalls = DiskStalls::default();
        assert_eq!(stalls.stall_or_doubt(None, at(0)), None);
        let full = Some(Stall { since: at(0), cause: StallCause::Full });
        assert_eq!(stalls.stall_or_doubt(full, at(1)), Some(StallCause::Full));
        assert_eq!(
            (stalls.stall_or_doubt(slow(0), at(900)), stalls.stall_or_doubt(slow(0), at(1000)).is_some()),
            (None, true)
        );
        stalls.check(full, at(1000));
        assert_eq!(
            stalls.stall_or_doubt(None, at(1001)),
            Some(StallCause::Full),
            "the stall has not ended yet"
        );
    }

    #[test]
    fn only_healthy_responses_during_the_own_stall_count() {
        let server = |number: u128| ServerId(uuid::Uuid::from_u128(number));
        let (stalls, calls) = (DiskStalls::default(), Mutex::new(Vec::new()));
        let respond = |number, cause| {
            stalls.take_response(server(number), cause, |healthy| calls.lock().push(healthy.clone()));
        };
        respond(1, None);
        assert!(calls.lock().is_empty(), "the own log is healthy");
        stalls.check(slow(0), at(4000));
        respond(2, None);
        respond(3, None);
        respond(2, Some(StallCause::Full));
        let healthy = [vec![2], vec![2, 3], vec![3]].map(|healthy| healthy.into_iter().map(server).collect());
        assert_eq!(*calls.lock(), healthy);
    }

    #[test]
    fn confirmations_expire_during_a_stall() {
        let server = |number: u128| ServerId(uuid::Uuid::from_u128(number));
        let (stalls, calls) = (DiskStalls::default(), Mutex::new(0));
        let confirm = |number, groups: &[u64], ms| {
            let groups = groups.iter().copied().map(GroupId);
            stalls.take_confirmation(server(number), groups, at(ms), || *calls.lock() += 1);
        };
        confirm(1, &[1], 3900);
        assert_eq!(*calls.lock(), 0, "the own log is healthy");
        stalls.check(slow(0), at(4000));
        confirm(2, &[1, 2], 4100);
        confirm(3, &[2], 6000);
        confirm(3, &[], 6500);
        assert_eq!(*calls.lock(), 3);
        let recent = |ms| {
            stalls.recently_confirmed(at(ms)).map(|confirmed| {
                confirmed.into_iter().map(|(group, server)| (group.0, server.0.as_u128())).collect::<Vec<_>>()
            })
        };
        assert_eq!(recent(6900), None, "the first responses may be late");
        assert_eq!(recent(7050), Some(vec![(1, 2), (2, 2), (2, 3)]));
        assert_eq!(recent(7200), Some(vec![(2, 3)]));
        // There are no confirmations of the next stall yet.
        stalls.check(None, at(7500));
        stalls.check(None, at(9500));
        stalls.check(slow(9600), at(13_600));
        assert_eq!(recent(16_600), Some(vec![]));
    }
}
