//! Stalls of logs that make no progress, on this server and on others. Decision 0037.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use io::{Nanos, task};
use log::{GroupId, Stall, StallCause};
use parking_lot::Mutex;

use crate::config::ServerId;

/// How long a disk is full before that counts as a stall.
const FULL_DISK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long one step of the log, or an fsync, takes before it counts as a stall: it may never end.
const LOG_STEP_TIMEOUT: Duration = Duration::from_secs(4);
/// A step of the log that takes this long keeps a stall from ending.
const SLOW_STEP_TIMEOUT: Duration = Duration::from_millis(100);
/// A stall ends after this long without a new one.
const RECOVERY_INTERVAL: Duration = Duration::from_millis(1500);
/// How long the end of a stall is announced to other servers.
const RECOVERY_ANNOUNCEMENT: Duration = Duration::from_millis(1500);
/// A step that takes this long may be a disk that hangs: a server that is asked does not say that its log is well.
const DOUBTFUL_STEP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the report of another server counts: that its log has stalled, or that it knows no later term.
const REPORT_LIFETIME: Duration = Duration::from_secs(3);

/// The stalls of this server and of others.
#[derive(Default)]
pub(crate) struct DiskStalls {
    own: Mutex<OwnLog>,
    /// The stalls of other servers, and when they reported them last.
    others: Mutex<BTreeMap<ServerId, (StallCause, Instant)>>,
    /// When an fsync of this server began that has not returned, while its log makes progress.
    sync: Mutex<Option<Nanos>>,
}

/// The log of this server at the last check.
#[derive(Default)]
struct OwnLog {
    stall: Option<Stall>,
    /// When the cause of the stall was gone.
    healthy_since: Option<Nanos>,
    /// Until when its end is announced.
    announced_until: Option<Nanos>,
    /// When the stall was noticed.
    noticed: Nanos,
    /// What other servers said of their own logs since then.
    reported: BTreeMap<ServerId, Option<StallCause>>,
    /// When servers said last, since then, that they know no later term of a group than this server does.
    confirmed: BTreeMap<(GroupId, ServerId), Nanos>,
}

/// The result of a check of the own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// It makes progress, and no stall has ended recently.
    Healthy,
    /// It has stalled; `is_new` if it had not at the last check, or for another cause.
    Stalled { stall: Stall, is_new: bool },
    /// It makes progress again, which is to be announced; `is_new` if it had not at the last check.
    Recovered { is_new: bool },
}

impl DiskStalls {
    /// Checks the own log, which reports `found` now.
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
            Some(held_up)
                if held_up.cause == StallCause::Full || now.since(held_up.since) >= SLOW_STEP_TIMEOUT =>
            {
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

    /// The cause of a stall of the own log, or of a beginning one, for another server whose log has stalled: it steps down
    /// from groups that this server can lead.
    pub(crate) fn stall_or_doubt(&self, found: Option<Stall>, now: Nanos) -> Option<StallCause> {
        let is_doubtful = |stall: &Stall| {
            stall.cause != StallCause::Slow || now.since(stall.since) >= DOUBTFUL_STEP_TIMEOUT
        };
        found.filter(is_doubtful).or(self.own()).map(|stall| stall.cause)
    }

    /// Takes the response of `server` to the report of a stall: the cause of a stall of its own. While the own log is
    /// stalled, `step_down` is called with the servers whose logs are well.
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

    /// `server` knows no later term of these groups than this server does. While the own log is stalled, `step_down` is
    /// called, for the other groups.
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

    /// The servers that said, since the stall began, that their logs are well.
    pub(crate) fn healthy_servers(&self) -> BTreeSet<ServerId> {
        self.own.lock().healthy_servers()
    }

    /// For which groups which servers said recently, during the stall, that they know no later term; `None` as long as their
    /// responses may be on their way.
    pub(crate) fn recently_confirmed(&self, now: Nanos) -> Option<BTreeSet<(GroupId, ServerId)>> {
        let own = self.own.lock();
        let lately = || own.confirmed.iter().filter(|(_, said)| now.since(**said) < REPORT_LIFETIME);
        (now.since(own.noticed) >= REPORT_LIFETIME)
            .then(|| lately().map(|(confirmed, _)| *confirmed).collect())
    }

    /// Checks an fsync beside the steps of the log, which began at `found` and has not returned. Returns the known hang
    /// before and after the check.
    pub(crate) fn check_sync(&self, found: Option<Nanos>, now: Nanos) -> (Option<Nanos>, Option<Nanos>) {
        let hangs = found.filter(|since| now.since(*since) >= LOG_STEP_TIMEOUT);
        (std::mem::replace(&mut *self.sync.lock(), hangs), hangs)
    }

    /// When an fsync began that hangs, while the log makes progress.
    pub(crate) fn sync(&self) -> Option<Nanos> {
        *self.sync.lock()
    }

    /// Takes the report of `server` about a stall of its log, or about its end. Whether that is news.
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
        self.others.lock().get(&server).is_some_and(|(_, said)| task::now() - *said < REPORT_LIFETIME)
    }

    /// Whether the own log takes no step: a thread that waits for one waits for long, or for ever.
    pub(crate) fn log_hangs(&self) -> bool {
        self.own().is_some_and(|stall| stall.cause != StallCause::Full)
    }

    /// Whether the log of `server` has stalled, as far as it is known here; `own` is this server.
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
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    fn slow(ms: u64) -> Option<Stall> {
        Some(Stall { since: at(ms), cause: StallCause::Slow })
    }

    #[test]
    fn what_is_over_is_so_after_a_while_and_is_told_for_a_while() {
        let stalls = DiskStalls::default();
        assert_eq!(stalls.check(None, at(0)), Check::Healthy, "nothing was ever wrong");
        let stall = Stall { since: at(0), cause: StallCause::Full };
        assert_eq!(stalls.check(Some(stall), at(500)), Check::Healthy, "for a moment only");
        for (ms, is_new) in [(1000, true), (1500, false)] {
            assert_eq!(stalls.check(Some(stall), at(ms)), Check::Stalled { stall, is_new });
        }
        // However often it is looked.
        for ms in (2000..3500).step_by(10) {
            assert_eq!(stalls.check(None, at(ms)), Check::Stalled { stall, is_new: false });
        }
        assert_eq!(stalls.check(None, at(3500)), Check::Recovered { is_new: true });
        assert_eq!(stalls.check(None, at(4000)), Check::Recovered { is_new: false });
        assert_eq!((stalls.check(None, at(5000)), stalls.own()), (Check::Healthy, None));
    }

    #[test]
    fn turns_that_take_long_one_after_the_other_are_one_stall() {
        let stalls = DiskStalls::default();
        let stall = slow(0).unwrap();
        assert_eq!(stalls.check(slow(0), at(4000)), Check::Stalled { stall, is_new: true });
        for turn in [5000, 8000, 11_000] {
            for ms in (turn..turn + 3000).step_by(500) {
                let found = slow(turn).filter(|_| ms > turn);
                assert_eq!(stalls.check(found, at(ms)), Check::Stalled { stall, is_new: false });
            }
        }
        // Short ones are as it should be.
        assert_eq!(stalls.check(slow(14_000), at(14_010)), Check::Stalled { stall, is_new: false });
        assert_eq!(stalls.check(slow(15_500), at(15_520)), Check::Recovered { is_new: true });
    }

    #[test]
    fn who_may_be_in_trouble_does_not_say_that_it_is_well() {
        let stalls = DiskStalls::default();
        assert_eq!(stalls.stall_or_doubt(None, at(0)), None);
        let full = Some(Stall { since: at(0), cause: StallCause::Full });
        assert_eq!(stalls.stall_or_doubt(full, at(1)), Some(StallCause::Full));
        assert_eq!(
            (stalls.stall_or_doubt(slow(0), at(900)), stalls.stall_or_doubt(slow(0), at(1000)).is_some()),
            (None, true)
        );
        stalls.check(full, at(1000));
        assert_eq!(stalls.stall_or_doubt(None, at(1001)), Some(StallCause::Full), "it was so a moment ago");
    }

    #[test]
    fn only_those_count_who_say_that_they_are_well_while_the_own_log_is_not() {
        let server = |number: u128| ServerId(uuid::Uuid::from_u128(number));
        let (stalls, given_up) = (DiskStalls::default(), Mutex::new(Vec::new()));
        let answered = |number, cause| {
            stalls.take_response(server(number), cause, |well| given_up.lock().push(well.clone()));
        };
        answered(1, None);
        assert!(given_up.lock().is_empty(), "nothing is wrong here");
        stalls.check(slow(0), at(4000));
        answered(2, None);
        answered(3, None);
        answered(2, Some(StallCause::Full));
        let well = [vec![2], vec![2, 3], vec![3]].map(|well| well.into_iter().map(server).collect());
        assert_eq!(*given_up.lock(), well);
    }

    #[test]
    fn who_leads_on_is_confirmed_again_and_again_while_the_own_log_does_not_get_on() {
        let server = |number: u128| ServerId(uuid::Uuid::from_u128(number));
        let (stalls, given_up) = (DiskStalls::default(), Mutex::new(0));
        let confirmed = |number, groups: &[u64], ms| {
            let groups = groups.iter().copied().map(GroupId);
            stalls.take_confirmation(server(number), groups, at(ms), || *given_up.lock() += 1);
        };
        confirmed(1, &[1], 3900);
        assert_eq!(*given_up.lock(), 0, "nothing is wrong here");
        stalls.check(slow(0), at(4000));
        confirmed(2, &[1, 2], 4100);
        confirmed(3, &[2], 6000);
        confirmed(3, &[], 6500);
        assert_eq!(*given_up.lock(), 3);
        let lately = |ms| {
            stalls.recently_confirmed(at(ms)).map(|confirmed| {
                confirmed.into_iter().map(|(group, server)| (group.0, server.0.as_u128())).collect::<Vec<_>>()
            })
        };
        assert_eq!(lately(6900), None, "they may take some time");
        assert_eq!(lately(7050), Some(vec![(1, 2), (2, 2), (2, 3)]));
        assert_eq!(lately(7200), Some(vec![(2, 3)]));
        // Of the next stall nobody has said anything yet.
        stalls.check(None, at(7500));
        stalls.check(None, at(9500));
        stalls.check(slow(9600), at(13_600));
        assert_eq!(lately(16_600), Some(vec![]));
    }
}
