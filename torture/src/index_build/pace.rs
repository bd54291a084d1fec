//! Writes at fixed times. A write is measured from the time when it was due, so that one that waits behind a slow write
//! is slow, too.

use std::thread;
use std::time::{Duration, Instant};

/// The schedule of one writer.
pub(super) struct Pace {
    next: Instant,
    between: Duration,
}

impl Pace {
    pub(super) fn new(in_a_second: u64) -> Pace {
        let between = Duration::from_secs_f64(1.0 / in_a_second as f64);
        Pace { next: Instant::now(), between }
    }

    /// Waits until the next write is due; returns that time, which may be long past.
    pub(super) fn wait(&mut self) -> Instant {
        let due = self.next;
        self.next += self.between;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    }
}

/// The 99th percentile; zero without times.
pub(super) fn p99(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() * 99 / 100).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::p99;

    #[test]
    fn one_in_a_hundred_is_longer() {
        let times: Vec<Duration> = (0..1000).rev().map(Duration::from_millis).collect();
        assert_eq!(p99(&times), Duration::from_millis(990));
        assert_eq!(p99(&[]), Duration::ZERO);
    }
}
