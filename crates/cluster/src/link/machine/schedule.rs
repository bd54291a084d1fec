//! The time of the current step, and the times of the next ones.

use std::time::Duration;

use io::Nanos;

use crate::link::contract::LinkTimings;

/// When the machine does the work that depends on time.
pub(super) struct Schedule {
    now: Nanos,
    timings: LinkTimings,
    tick_at: Nanos,
    /// All servers have the same time of the next heartbeat, so that one wake-up serves them all.
    beat_at: Nanos,
}

impl Schedule {
    pub(super) fn new(now: Nanos, timings: LinkTimings) -> Schedule {
        Schedule { now, timings, tick_at: now, beat_at: now }
    }

    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    pub(super) fn timings(&self) -> &LinkTimings {
        &self.timings
    }

    /// When the next tick is due.
    pub(super) fn tick_at(&self) -> Nanos {
        self.tick_at
    }

    /// Starts a step at `now`.
    pub(super) fn set_now(&mut self, now: Nanos) {
        self.now = now;
    }

    /// Uses other timings from now on.
    pub(super) fn set_timings(&mut self, timings: LinkTimings) {
        self.timings = timings;
        self.beat_at = self.now;
        self.tick_by(self.now);
    }

    /// Starts a tick: the next one is due with the next heartbeats, or earlier. Returns true if heartbeats are due in
    /// this one.
    pub(super) fn start_tick(&mut self) -> bool {
        let is_beat = self.now >= self.beat_at;
        if is_beat {
            self.beat_at = self.now.after(self.timings.heartbeat_interval());
        }
        self.tick_at = self.beat_at;
        is_beat
    }

    /// Makes sure that there is a tick at `at` or earlier.
    pub(super) fn tick_by(&mut self, at: Nanos) {
        self.tick_at = self.tick_at.min(at);
    }

    /// Makes sure that there is a tick at the end of this step, or in the next one.
    pub(super) fn tick_now(&mut self) {
        self.tick_by(self.now);
    }

    /// Makes sure that there is a tick after `wait` or earlier.
    pub(super) fn tick_after(&mut self, wait: Duration) {
        self.tick_by(self.now.after(wait));
    }
}
