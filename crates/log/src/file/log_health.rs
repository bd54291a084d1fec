//! Whether the log makes progress, readable without waiting for the log's lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use io::Nanos;

use crate::contract::{Stall, StallCause};
use crate::error::Interruption;

const NOT_RUNNING: u64 = u64::MAX;

/// Why and when the log stopped.
struct Stopped {
    at: Nanos,
    cause: Interruption,
}

/// Start times of running operations and present conditions.
pub(super) struct LogHealth {
    step: AtomicU64,
    full: AtomicU64,
    sync: AtomicU64,
    stopped: OnceLock<Stopped>,
}

impl Default for LogHealth {
    fn default() -> LogHealth {
        let not_running = || AtomicU64::new(NOT_RUNNING);
        LogHealth { step: not_running(), full: not_running(), sync: not_running(), stopped: OnceLock::new() }
    }
}

impl LogHealth {
    /// A step has been running since then; `None` if none is.
    pub fn set_step(&self, since: Option<Nanos>) {
        set(&self.step, since);
    }

    /// The disk has been full since then; `None` if it is not.
    pub fn set_full(&self, since: Option<Nanos>) {
        set(&self.full, since);
    }

    /// An fsync has been running beside the steps since then; `None` if none is.
    pub fn set_sync(&self, since: Option<Nanos>) {
        set(&self.sync, since);
    }

    /// The time since which an fsync has been running beside the steps.
    pub fn sync_since(&self) -> Option<Nanos> {
        get(&self.sync)
    }

    /// The log has stopped permanently. Only the first cause counts.
    pub fn stop(&self, at: Nanos, cause: &Interruption) {
        self.stopped.get_or_init(|| Stopped { at, cause: cause.clone() });
    }

    /// Why the log has stopped, if it has.
    pub fn stopped(&self) -> Option<&Interruption> {
        self.stopped.get().map(|stopped| &stopped.cause)
    }

    /// The reason why the log makes no progress, if there is one.
    pub fn stall(&self) -> Option<Stall> {
        if let Some(Stopped { at, .. }) = self.stopped.get() {
            return Some(Stall { since: *at, cause: StallCause::Stopped });
        }
        if let Some(since) = get(&self.full) {
            return Some(Stall { since, cause: StallCause::Full });
        }
        let since = get(&self.step)?;
        Some(Stall { since, cause: StallCause::Slow })
    }
}

fn set(time: &AtomicU64, since: Option<Nanos>) {
    time.store(since.map_or(NOT_RUNNING, |since| since.0), Ordering::Relaxed);
}

fn get(time: &AtomicU64) -> Option<Nanos> {
    Some(time.load(Ordering::Relaxed)).filter(|since| *since != NOT_RUNNING).map(Nanos)
}
