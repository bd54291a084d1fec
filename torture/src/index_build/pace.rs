//! Writes at fixed times, and how long they took from when they were due: a write that waits behind a
//! slow one is slow too.

use std::thread;
use std::time::{Duration, Instant};

/// The times at which one writer writes.
pub(super) struct Pace {
    next: Instant,
    between: Duration,
}

impl Pace {
    pub(super) fn new(in_a_second: u64) -> Pace {
        let between = Duration::from_secs_f64(1.0 / in_a_second as f64);
        Pace { next: Instant::now(), between }
    }

    /// Waits for the next time; returns it. It may be long past.
    pub(super) fn wait(&mut self) -> Instant {
        let due = self.next;
        self.next += self.between;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    }
}

/// The time that one in a hundred is longer than; zero of nothing.
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
