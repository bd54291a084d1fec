//! What is known of logs that do not get on, the own one and those of other servers: decision 0037.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use io::{Nanos, task};
use log::{GroupId, Stall, StallCause};
use parking_lot::Mutex;

use crate::ServerId;

/// A disk that is full for so long is not full for a moment only.
const FULL: Duration = Duration::from_secs(1);
/// A turn of the log that takes so long may never end.
const SLOW: Duration = Duration::from_secs(4);
/// A turn that takes so long keeps others waiting.
const HELD_UP: Duration = Duration::from_millis(100);
/// For so long nothing is wrong before a stall is over.
const WELL: Duration = Duration::from_millis(1500);
/// For so long the others are told that it is.
const TOLD: Duration = Duration::from_millis(1500);
/// A turn that takes so long may be a disk that hangs: who says how it is does not say that it is well.
const DOUBTFUL: Duration = Duration::from_secs(1);
/// What was said counts for so long: that a log does not get on, and that no later term is known.
const HEARSAY: Duration = Duration::from_secs(3);

/// Whose logs do not get on.
#[derive(Default)]
pub(crate) struct Stalls {
    own: Mutex<Own>,
    /// Those of others, and when they said so last.
    others: Mutex<BTreeMap<ServerId, (StallCause, Instant)>>,
    /// Since when an fsync of this server has not returned, while its log goes on.
    sync: Mutex<Option<Nanos>>,
}

/// The log of this server, as it was when it was last looked at.
#[derive(Default)]
struct Own {
    stall: Option<Stall>,
    /// Since when nothing is wrong that was.
    well_since: Option<Nanos>,
    /// Until when the others are told that nothing is.
    told_until: Option<Nanos>,
    /// When it was found that something is wrong.
    noticed: Nanos,
    /// Who was told since, and how it said that its own log is.
    said: BTreeMap<ServerId, Option<StallCause>>,
    /// When servers said last, since then, that they know no later term of a group than this one.
    confirmed: BTreeMap<(GroupId, ServerId), Nanos>,
}

/// What a look at the own log has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It gets on, as everybody knows.
    Well,
    /// It does not; whether nobody knew that, or why.
    Stalled { stall: Stall, is_news: bool },
    /// It gets on again; whether nobody knew that. The others are to be told.
    Over { is_news: bool },
}

impl Stalls {
    /// Takes note of what keeps the own log from getting on just now, if anything does.
    pub(crate) fn look(&self, found: Option<Stall>, now: Nanos) -> Look {
        let mut own = self.own.lock();
        let before = own.stall;
        if let Some(stall) = found.filter(|stall| is_long(stall, now)) {
            if before.is_none() {
                own.said.clear();
                own.confirmed.clear();
                own.noticed = now;
            }
            own.stall = Some(stall);
            (own.well_since, own.told_until) = (None, None);
            return Look::Stalled { stall, is_news: before.is_none_or(|before| before.cause != stall.cause) };
        }
        let Some(stall) = before else {
            own.told_until.take_if(|until| *until <= now);
            return if own.told_until.is_some() { Look::Over { is_news: false } } else { Look::Well };
        };
        own.well_since = match found {
            Some(held_up) if held_up.cause == StallCause::Full || now.since(held_up.since) >= HELD_UP => None,
            _ => own.well_since.or(Some(now)),
        };
        if own.well_since.is_none_or(|since| now.since(since) < WELL) {
            return Look::Stalled { stall, is_news: false };
        }
        (own.stall, own.well_since, own.told_until) = (None, None, Some(now.after(TOLD)));
        Look::Over { is_news: true }
    }

    /// What is wrong with the own log.
    pub(crate) fn own(&self) -> Option<Stall> {
        self.own.lock().stall
    }

    /// Why the own log may not get on, for another server that asks because its own does not. More is said than that it
    /// has been so for long: whoever asks gives up what this server can lead.
    pub(crate) fn doubt(&self, found: Option<Stall>, now: Nanos) -> Option<StallCause> {
        let is_doubtful =
            |stall: &Stall| stall.cause != StallCause::Slow || now.since(stall.since) >= DOUBTFUL;
        found.filter(is_doubtful).or(self.own()).map(|stall| stall.cause)
    }

    /// `server` was told that the own log does not get on, and said how its own is. `give_up` is called with those who
    /// said that theirs are well, if the own one does not get on still.
    pub(crate) fn answered(
        &self,
        server: ServerId,
        cause: Option<StallCause>,
        give_up: impl FnOnce(&BTreeSet<ServerId>),
    ) {
        let mut own = self.own.lock();
        if own.stall.is_some() {
            own.said.insert(server, cause);
            give_up(&own.well());
        }
    }

    /// `server` has said of the groups that it knows no later term than this server. `give_up` is called, for the others, if
    /// the own log does not get on still.
    pub(crate) fn confirmed(
        &self,
        server: ServerId,
        groups: impl IntoIterator<Item = GroupId>,
        now: Nanos,
        give_up: impl FnOnce(),
    ) {
        let mut own = self.own.lock();
        if own.stall.is_some() {
            own.confirmed.extend(groups.into_iter().map(|group| ((group, server), now)));
            give_up();
        }
    }

    /// Who has said, since the own log does not get on, that theirs are well.
    pub(crate) fn well(&self) -> BTreeSet<ServerId> {
        self.own.lock().well()
    }

    /// Of which groups who has said lately, while the own log does not get on, that it knows no later term; none as long as
    /// they may take for it.
    pub(crate) fn confirmed_lately(&self, now: Nanos) -> Option<BTreeSet<(GroupId, ServerId)>> {
        let own = self.own.lock();
        let lately = || own.confirmed.iter().filter(|(_, said)| now.since(**said) < HEARSAY);
        (now.since(own.noticed) >= HEARSAY).then(|| lately().map(|(confirmed, _)| *confirmed).collect())
    }

    /// Takes note of since when an fsync beside the log's turns does not return, if it is long. What was known before,
    /// and what is known now.
    pub(crate) fn look_at_sync(&self, found: Option<Nanos>, now: Nanos) -> (Option<Nanos>, Option<Nanos>) {
        let hangs = found.filter(|since| now.since(*since) >= SLOW);
        (std::mem::replace(&mut *self.sync.lock(), hangs), hangs)
    }

    /// Since when an fsync has not returned, while the log goes on.
    pub(crate) fn sync(&self) -> Option<Nanos> {
        *self.sync.lock()
    }

    /// `server` says why its log does not get on, or that it does again. Whether that is news.
    pub(crate) fn heard(&self, server: ServerId, cause: Option<StallCause>) -> bool {
        let mut others = self.others.lock();
        let before = match cause {
            Some(cause) => others.insert(server, (cause, task::now())),
            None => others.remove(&server),
        };
        before.map(|(cause, _)| cause) != cause
    }

    /// Whether `server` has said lately that its log does not get on.
    pub(crate) fn of(&self, server: ServerId) -> bool {
        self.others.lock().get(&server).is_some_and(|(_, said)| task::now() - *said < HEARSAY)
    }
}

impl Own {
    fn well(&self) -> BTreeSet<ServerId> {
        self.said.iter().filter(|(_, cause)| cause.is_none()).map(|(server, _)| *server).collect()
    }
}

fn is_long(stall: &Stall, now: Nanos) -> bool {
    let patience = match stall.cause {
        StallCause::Stopped => Duration::ZERO,
        StallCause::Full => FULL,
        StallCause::Slow => SLOW,
    };
    now.since(stall.since) >= patience
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
        let stalls = Stalls::default();
        assert_eq!(stalls.look(None, at(0)), Look::Well, "nothing was ever wrong");
        let stall = Stall { since: at(0), cause: StallCause::Full };
        assert_eq!(stalls.look(Some(stall), at(500)), Look::Well, "for a moment only");
        for (ms, is_news) in [(1000, true), (1500, false)] {
            assert_eq!(stalls.look(Some(stall), at(ms)), Look::Stalled { stall, is_news });
        }
        // However often it is looked.
        for ms in (2000..3500).step_by(10) {
            assert_eq!(stalls.look(None, at(ms)), Look::Stalled { stall, is_news: false });
        }
        assert_eq!(stalls.look(None, at(3500)), Look::Over { is_news: true });
        assert_eq!(stalls.look(None, at(4000)), Look::Over { is_news: false });
        assert_eq!((stalls.look(None, at(5000)), stalls.own()), (Look::Well, None));
    }

    #[test]
    fn turns_that_take_long_one_after_the_other_are_one_stall() {
        let stalls = Stalls::default();
        let stall = slow(0).unwrap();
        assert_eq!(stalls.look(slow(0), at(4000)), Look::Stalled { stall, is_news: true });
        for turn in [5000, 8000, 11_000] {
            for ms in (turn..turn + 3000).step_by(500) {
                let found = slow(turn).filter(|_| ms > turn);
                assert_eq!(stalls.look(found, at(ms)), Look::Stalled { stall, is_news: false });
            }
        }
        // Short ones are as it should be.
        assert_eq!(stalls.look(slow(14_000), at(14_010)), Look::Stalled { stall, is_news: false });
        assert_eq!(stalls.look(slow(15_500), at(15_520)), Look::Over { is_news: true });
    }

    #[test]
    fn who_may_be_in_trouble_does_not_say_that_it_is_well() {
        let stalls = Stalls::default();
        assert_eq!(stalls.doubt(None, at(0)), None);
        let full = Some(Stall { since: at(0), cause: StallCause::Full });
        assert_eq!(stalls.doubt(full, at(1)), Some(StallCause::Full));
        assert_eq!((stalls.doubt(slow(0), at(900)), stalls.doubt(slow(0), at(1000)).is_some()), (None, true));
        stalls.look(full, at(1000));
        assert_eq!(stalls.doubt(None, at(1001)), Some(StallCause::Full), "it was so a moment ago");
    }

    #[test]
    fn only_those_count_who_say_that_they_are_well_while_the_own_log_is_not() {
        let server = |number: u128| ServerId(uuid::Uuid::from_u128(number));
        let (stalls, given_up) = (Stalls::default(), Mutex::new(Vec::new()));
        let answered = |number, cause| {
            stalls.answered(server(number), cause, |well| given_up.lock().push(well.clone()));
        };
        answered(1, None);
        assert!(given_up.lock().is_empty(), "nothing is wrong here");
        stalls.look(slow(0), at(4000));
        answered(2, None);
        answered(3, None);
        answered(2, Some(StallCause::Full));
        let well = [vec![2], vec![2, 3], vec![3]].map(|well| well.into_iter().map(server).collect());
        assert_eq!(*given_up.lock(), well);
    }

    #[test]
    fn who_leads_on_is_confirmed_again_and_again_while_the_own_log_does_not_get_on() {
        let server = |number: u128| ServerId(uuid::Uuid::from_u128(number));
        let (stalls, given_up) = (Stalls::default(), Mutex::new(0));
        let confirmed = |number, groups: &[u64], ms| {
            let groups = groups.iter().copied().map(GroupId);
            stalls.confirmed(server(number), groups, at(ms), || *given_up.lock() += 1);
        };
        confirmed(1, &[1], 3900);
        assert_eq!(*given_up.lock(), 0, "nothing is wrong here");
        stalls.look(slow(0), at(4000));
        confirmed(2, &[1, 2], 4100);
        confirmed(3, &[2], 6000);
        confirmed(3, &[], 6500);
        assert_eq!(*given_up.lock(), 3);
        let lately = |ms| {
            stalls.confirmed_lately(at(ms)).map(|confirmed| {
                confirmed.into_iter().map(|(group, server)| (group.0, server.0.as_u128())).collect::<Vec<_>>()
            })
        };
        assert_eq!(lately(6900), None, "they may take some time");
        assert_eq!(lately(7050), Some(vec![(1, 2), (2, 2), (2, 3)]));
        assert_eq!(lately(7200), Some(vec![(2, 3)]));
        // Of the next stall nobody has said anything yet.
        stalls.look(None, at(7500));
        stalls.look(None, at(9500));
        stalls.look(slow(9600), at(13_600));
        assert_eq!(lately(16_600), Some(vec![]));
    }
}
