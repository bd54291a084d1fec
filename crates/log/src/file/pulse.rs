//! Whether the log still gets on, for whoever must not wait for its turn to find out.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use io::Nanos;

use crate::contract::{Stall, StallCause};
use crate::error::Interruption;

const NOTHING: u64 = u64::MAX;

/// Since when what is under way has been so.
pub(super) struct Pulse {
    turn: AtomicU64,
    full: AtomicU64,
    sync: AtomicU64,
    /// The log has stopped for good.
    stopped: OnceLock<(Nanos, Interruption)>,
}

impl Default for Pulse {
    fn default() -> Pulse {
        let nothing = || AtomicU64::new(NOTHING);
        Pulse { turn: nothing(), full: nothing(), sync: nothing(), stopped: OnceLock::new() }
    }
}

impl Pulse {
    /// Somebody has a turn since then, or nobody has one.
    pub fn turn(&self, since: Option<Nanos>) {
        set(&self.turn, since);
    }

    /// The disk is full since then, or is not.
    pub fn full(&self, since: Option<Nanos>) {
        set(&self.full, since);
    }

    /// An fsync beside the turns is under way since then, or none is.
    pub fn sync(&self, since: Option<Nanos>) {
        set(&self.sync, since);
    }

    /// Since when an fsync beside the turns is under way.
    pub fn sync_since(&self) -> Option<Nanos> {
        get(&self.sync)
    }

    /// The log has stopped, and never goes on. Only the first cause counts.
    pub fn stop(&self, now: Nanos, cause: &Interruption) {
        self.stopped.get_or_init(|| (now, cause.clone()));
    }

    /// Why the log has stopped for good.
    pub fn stopped(&self) -> Option<&Interruption> {
        self.stopped.get().map(|(_, cause)| cause)
    }

    /// What keeps the log from getting on.
    pub fn stall(&self) -> Option<Stall> {
        if let Some((since, _)) = self.stopped.get() {
            return Some(Stall { since: *since, cause: StallCause::Stopped });
        }
        if let Some(since) = get(&self.full) {
            return Some(Stall { since, cause: StallCause::Full });
        }
        let since = get(&self.turn)?;
        Some(Stall { since, cause: StallCause::Slow })
    }
}

fn set(place: &AtomicU64, since: Option<Nanos>) {
    place.store(since.map_or(NOTHING, |since| since.0), Ordering::Relaxed);
}

fn get(place: &AtomicU64) -> Option<Nanos> {
    Some(place.load(Ordering::Relaxed)).filter(|since| *since != NOTHING).map(Nanos)
}
