//! Waits until servers are quiet: their background flushes and compactions would be included in the measurement. Sizes are
//! measured once rows have settled, too: they are compressed again in the background.

use std::time::Duration;

use crate::machine::watch::Watched;

/// How a wait proceeds.
struct Polling {
    /// Time between two checks.
    interval: Duration,
    /// Consecutive checks that must find no work.
    quiet_polls: u32,
    /// The maximum number of checks; then the measurement starts anyway.
    polls_max: u32,
}

/// One flush or compaction often follows another. For at most five minutes.
const QUIET: Polling = Polling { interval: Duration::from_millis(200), quiet_polls: 5, polls_max: 1_500 };
/// A server looks every five seconds whether a table has settled. For at most two hours: an archive takes a second or two for
/// each megabyte.
const SETTLED: Polling = Polling { interval: Duration::from_secs(1), quiet_polls: 15, polls_max: 7_200 };
/// The number of tables whose rows are yet to be compressed again.
const UNSETTLED_TABLES: &str = "rekindle_compression_unsettled_tables";

/// The outcome of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quiescence {
    /// The servers are quiet.
    Reached,
    /// There was still background work at the timeout.
    Busy,
    /// A server does not report its background work.
    Unknown,
}

/// Waits until the engines of all servers are quiet.
pub fn wait(servers: &[Watched]) -> Quiescence {
    let poll = || {
        let running = servers.iter().map(|server| server.sample().background_running);
        running.sum::<Option<u64>>().filter(|_| !servers.is_empty())
    };
    wait_with(&QUIET, poll, std::thread::sleep)
}

/// Waits until no server has rows that it is yet to compress again.
pub fn wait_until_settled(servers: &[Watched]) -> Quiescence {
    let poll = || {
        let unsettled = servers.iter().map(|server| server.metric(UNSETTLED_TABLES));
        unsettled.sum::<Option<f64>>().filter(|_| !servers.is_empty()).map(|tables| tables as u64)
    };
    wait_with(&SETTLED, poll, std::thread::sleep)
}

fn wait_with(
    polling: &Polling,
    mut poll: impl FnMut() -> Option<u64>,
    mut wait: impl FnMut(Duration),
) -> Quiescence {
    let mut quiet = 0;
    for _ in 0..polling.polls_max {
        match poll() {
            None => return Quiescence::Unknown,
            Some(0) => quiet += 1,
            Some(_) => quiet = 0,
        }
        if quiet >= polling.quiet_polls {
            return Quiescence::Reached;
        }
        wait(polling.interval);
    }
    Quiescence::Busy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_quiet_for_a_while() {
        let mut running = [1, 0, 0, 2, 0, 0, 0, 0, 0, 9].into_iter();
        let mut looks = 0;
        let rest = wait_with(&QUIET, || running.next(), |_| looks += 1);
        assert_eq!((rest, looks, running.next()), (Quiescence::Reached, 8, Some(9)));
    }

    #[test]
    fn a_busy_or_unobservable_server_is_not_awaited() {
        assert_eq!(wait_with(&QUIET, || Some(1), |_| ()), Quiescence::Busy);
        assert_eq!(wait_with(&QUIET, || None, |_| ()), Quiescence::Unknown);
    }
}
