//! The clock of a run: nanoseconds from the start of its measured part, negative in the warm-up.

use std::time::{Duration, Instant};

/// Measures the time of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunClock {
    zero: Instant,
}

impl RunClock {
    /// A clock whose measured part starts at `zero`.
    pub fn new(zero: Instant) -> Self {
        RunClock { zero }
    }

    /// The present time.
    pub fn now_ns(&self) -> i64 {
        let now = Instant::now();
        match now.checked_duration_since(self.zero) {
            Some(after) => nanoseconds(after),
            None => -nanoseconds(self.zero - now),
        }
    }
}

/// A duration as a signed number of nanoseconds, at most 292 years.
pub fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
