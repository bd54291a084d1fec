//! Progress of a long command: a line on standard error every few seconds.

use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(3);

/// Counts steps of a phase and prints how far it is.
pub struct Progress {
    is_shown: bool,
    phase: String,
    done: u64,
    last: Instant,
}

impl Progress {
    #[must_use]
    pub fn new(is_shown: bool) -> Progress {
        Progress { is_shown, phase: String::new(), done: 0, last: Instant::now() }
    }

    /// Prints the name of the next phase, and counts from zero.
    pub fn begin(&mut self, phase: &str) {
        self.phase = phase.to_owned();
        self.done = 0;
        self.last = Instant::now();
        if self.is_shown {
            eprintln!("{phase}");
        }
    }

    /// Adds one step.
    pub fn step(&mut self) {
        self.done += 1;
        // The clock is read rarely: there are millions of steps.
        if self.is_shown && self.done.is_multiple_of(1024) && self.last.elapsed() >= INTERVAL {
            self.last = Instant::now();
            eprintln!("{}: {}", self.phase, self.done);
        }
    }
}
