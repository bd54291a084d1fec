//! Waits until servers are quiet: their background flushes and compactions would be included in the measurement.

use std::time::Duration;

use crate::machine::watch::Watched;

/// Time between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Consecutive checks that must find no background work: one compaction often follows another.
const QUIET_POLLS: u32 = 5;
/// The maximum number of checks, five minutes; then the measurement starts anyway.
const POLLS_MAX: u32 = 1_500;

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
    wait_with(poll, || std::thread::sleep(POLL_INTERVAL))
}

fn wait_with(mut poll: impl FnMut() -> Option<u64>, mut wait: impl FnMut()) -> Quiescence {
    let mut quiet = 0;
    for _ in 0..POLLS_MAX {
        match poll() {
            None => return Quiescence::Unknown,
            Some(0) => quiet += 1,
            Some(_) => quiet = 0,
        }
        if quiet >= QUIET_POLLS {
            return Quiescence::Reached;
        }
        wait();
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
        let rest = wait_with(|| running.next(), || looks += 1);
        assert_eq!((rest, looks, running.next()), (Quiescence::Reached, 8, Some(9)));
    }

    #[test]
    fn a_busy_or_unobservable_server_is_not_awaited() {
        assert_eq!(wait_with(|| Some(1), || ()), Quiescence::Busy);
        assert_eq!(wait_with(|| None, || ()), Quiescence::Unknown);
    }
}
