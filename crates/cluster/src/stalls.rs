//! What is known of logs that do not get on: decision 0037.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use io::task;
use log::{Stall, StallCause};
use parking_lot::Mutex;

use crate::ServerId;

/// So often nothing is wrong before a stall is over.
const LOOKS_WELL: u32 = 3;
/// Who does not say again for so long that its log does not get on has another trouble, or none.
const HEARSAY: Duration = Duration::from_secs(3);

/// Whose logs do not get on.
#[derive(Default)]
pub(crate) struct Stalls {
    pub(crate) own: Mutex<Own>,
    /// Those of others, and when they said so last.
    others: Mutex<BTreeMap<ServerId, (StallCause, Instant)>>,
}

/// The log of this server, when it was last looked.
#[derive(Default)]
pub(crate) struct Own {
    pub(crate) stall: Option<Stall>,
    /// How often nothing was wrong since.
    well: u32,
}

impl Own {
    /// What is wrong now, and what was before. What is over is so only after some looks: the log has to hear first
    /// who leads now.
    pub(crate) fn look(&mut self, found: Option<Stall>) -> (Option<Stall>, Option<Stall>) {
        let before = self.stall;
        self.well = if found.is_some() { 0 } else { self.well.saturating_add(1) };
        if found.is_some() || self.well >= LOOKS_WELL {
            self.stall = found;
        }
        (before, self.stall)
    }
}

impl Stalls {
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
