//! What is known of logs that do not get on: decision 0037.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use io::{Nanos, task};
use log::{Stall, StallCause};
use parking_lot::Mutex;

use crate::ServerId;

/// So often nothing is wrong before a stall is over.
const LOOKS_WELL: u32 = 3;
/// So often the others are told that it is.
const LOOKS_TOLD: u32 = 3;
/// Who does not say again for so long that its log does not get on has another trouble, or none.
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

/// The log of this server, when it was last looked.
#[derive(Default)]
struct Own {
    stall: Option<Stall>,
    /// How often nothing was wrong since; none where nothing ever was.
    well: Option<u32>,
}

/// What a look at the own log has found.
pub(crate) struct Look {
    /// What was wrong before it.
    pub(crate) before: Option<Stall>,
    /// What is wrong now. What is over is so only after some looks: the log has to hear first who leads now.
    pub(crate) stall: Option<Stall>,
    /// Whether the others are to be told: that it is over, too, some times.
    pub(crate) is_told: bool,
}

impl Stalls {
    /// Takes note of what was found wrong with the own log, if anything was.
    pub(crate) fn look(&self, found: Option<Stall>) -> Look {
        let mut own = self.own.lock();
        let before = own.stall;
        own.well = match found {
            Some(_) => Some(0),
            None => own.well.map(|well| well + 1).filter(|well| *well < LOOKS_WELL + LOOKS_TOLD),
        };
        if found.is_some() || own.well.is_none_or(|well| well >= LOOKS_WELL) {
            own.stall = found;
        }
        Look { before, stall: own.stall, is_told: own.well.is_some() }
    }

    /// What is wrong with the own log.
    pub(crate) fn own(&self) -> Option<Stall> {
        self.own.lock().stall
    }

    /// Takes note of since when an fsync beside the log's turns does not return. What was known before.
    pub(crate) fn look_at_sync(&self, found: Option<Nanos>) -> Option<Nanos> {
        std::mem::replace(&mut *self.sync.lock(), found)
    }

    /// Since when an fsync has not returned, while the log goes on.
    pub(crate) fn sync(&self) -> Option<Nanos> {
        *self.sync.lock()
    }

    /// `server` says why its log does not get on, or that it does again.
    pub(crate) fn heard(&self, server: ServerId, cause: Option<StallCause>) {
        let mut others = self.others.lock();
        match cause {
            Some(cause) => drop(others.insert(server, (cause, task::now()))),
            None => drop(others.remove(&server)),
        }
    }

    /// Whether `server` has said lately that its log does not get on.
    pub(crate) fn of(&self, server: ServerId) -> bool {
        self.others.lock().get(&server).is_some_and(|(_, said)| task::now() - *said < HEARSAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_so_after_some_looks_and_is_told_some_times() {
        let stalls = Stalls::default();
        assert!(!stalls.look(None).is_told, "nothing was ever wrong");
        let stall = Stall { since: Nanos(7), cause: StallCause::Full };
        let first = stalls.look(Some(stall));
        assert!(first.before.is_none() && first.stall == Some(stall) && first.is_told);
        for _ in 1..LOOKS_WELL {
            let look = stalls.look(None);
            assert!(look.stall == Some(stall) && look.is_told, "the log has to hear who leads");
        }
        let over = stalls.look(None);
        assert!(over.before == Some(stall) && over.stall.is_none() && over.is_told);
        let told = (0..10).take_while(|_| stalls.look(None).is_told).count() as u32;
        assert_eq!((told + 1, stalls.own()), (LOOKS_TOLD, None));
    }
}
