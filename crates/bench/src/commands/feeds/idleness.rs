//! Whether servers on this machine work on something.

use std::time::{Duration, Instant};

use crate::machine::watch::{Watched, difference};

/// Below this use of a core, all servers together are idle.
const IDLE_CORE_SHARE: f64 = 0.05;
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Consecutive polls that must find idle servers: on a busy machine they may wait for a core.
const IDLE_POLLS: u32 = 8;
/// After this time the measurement goes on anyway.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1_200);

/// Waits until the servers are idle; returns how long they worked, `None` if their processor time is unknown.
pub(super) fn wait(servers: &[Watched]) -> Option<f64> {
    let started = Instant::now();
    let mut idle_since = started;
    let mut idle_polls = 0;
    while idle_polls < IDLE_POLLS && started.elapsed() < IDLE_TIMEOUT {
        let is_idle = core_share(servers)? < IDLE_CORE_SHARE;
        idle_polls = if is_idle { idle_polls + 1 } else { 0 };
        if !is_idle {
            idle_since = Instant::now();
        }
    }
    Some((idle_since - started).as_secs_f64())
}

/// Whether the servers use their processors in any of the next polls; `false` if that is unknown.
pub(super) fn is_working(servers: &[Watched]) -> bool {
    (0..IDLE_POLLS).any(|_| core_share(servers).is_some_and(|share| share >= IDLE_CORE_SHARE))
}

/// Processor time of all servers in a short time, as a share of one core.
fn core_share(servers: &[Watched]) -> Option<f64> {
    let used = || servers.iter().map(|server| server.sample().cpu_seconds).sum::<Option<f64>>();
    let (since, before) = (Instant::now(), used());
    std::thread::sleep(POLL_INTERVAL);
    Some(difference(before, used())? / since.elapsed().as_secs_f64())
}
