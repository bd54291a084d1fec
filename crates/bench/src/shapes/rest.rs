//! Waits until servers are quiet: their background flushes and compactions would be included in the measurement.

use std::time::Duration;

use crate::machine::watch::Watched;

/// Time between two checks.
const PAUSE: Duration = Duration::from_millis(200);
/// Consecutive checks that must find no background work: one compaction often follows another.
const QUIET_LOOKS: u32 = 5;
/// The maximum number of checks, five minutes; then the measurement starts anyway.
const LOOKS_MAX: u32 = 1_500;

/// The outcome of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rest {
    /// The servers are quiet.
    Reached,
    /// There was still background work at the timeout.
    Busy,
    /// A server does not report its background work.
    Unknown,
}

/// Waits until the engines of all servers are quiet.
pub fn wait(servers: &[Watched]) -> Rest {
    let look = || {
        let running = servers.iter().map(|server| server.sample().background_running);
        running.sum::<Option<u64>>().filter(|_| !servers.is_empty())
    };
    wait_by(look, || std::thread::sleep(PAUSE))
}

fn wait_by(mut look: impl FnMut() -> Option<u64>, mut pause: impl FnMut()) -> Rest {
    let mut quiet = 0;
    for _ in 0..LOOKS_MAX {
        match look() {
            None => return Rest::Unknown,
            Some(0) => quiet += 1,
            Some(_) => quiet = 0,
        }
        if quiet >= QUIET_LOOKS {
            return Rest::Reached;
        }
        pause();
    }
    Rest::Busy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_quiet_for_a_while() {
        let mut running = [1, 0, 0, 2, 0, 0, 0, 0, 0, 9].into_iter();
        let mut looks = 0;
        let rest = wait_by(|| running.next(), || looks += 1);
        assert_eq!((rest, looks, running.next()), (Rest::Reached, 8, Some(9)));
    }

    #[test]
    fn who_never_rests_or_does_not_say_is_not_waited_for() {
        assert_eq!(wait_by(|| Some(1), || ()), Rest::Busy);
        assert_eq!(wait_by(|| None, || ()), Rest::Unknown);
    }
}
