//! Failed logins wait longer each time, for each address and user name.
//!
//! An attempt is entered before its proof is looked at, so attempts at the same time wait for one another.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The wait after the first failure; each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The longest wait after one failure.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// An attempt that would have to wait longer is refused.
const ATTEMPT_WAIT_MAX: Duration = Duration::from_secs(30);

/// Failures are forgotten after this time.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// Entries that are kept.
const ENTRIES_MAX: usize = 10_000;

/// The address of a browser and the name it gave.
pub(super) type Visitor = (IpAddr, String);

struct Failures {
    count: u32,
    /// The next attempt is looked at then.
    until: Instant,
}

/// The failed logins of the last time.
#[derive(Default)]
pub(super) struct Throttle(Mutex<HashMap<Visitor, Failures>>);

impl Throttle {
    /// Enters an attempt. Returns how long it has to wait, or, as the error, for how long attempts are refused.
    pub(super) fn attempt(&self, visitor: &Visitor, now: Instant) -> Result<Duration, Duration> {
        let mut entries = self.0.lock();
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, failures| now.saturating_duration_since(failures.until) < MEMORY);
        }
        if entries.len() >= ENTRIES_MAX && !entries.contains_key(visitor) {
            return Err(WAIT_MAX);
        }
        let failures = entries.entry(visitor.clone()).or_insert(Failures { count: 0, until: now });
        if now.saturating_duration_since(failures.until) >= MEMORY {
            failures.count = 0;
        }
        let wait = failures.until.saturating_duration_since(now);
        if wait > ATTEMPT_WAIT_MAX {
            return Err(wait);
        }
        let penalty = FIRST_WAIT.saturating_mul(1 << failures.count.min(10)).min(WAIT_MAX);
        failures.count += 1;
        failures.until = now + wait + penalty;
        Ok(wait)
    }

    /// Forgets the failures of this visitor.
    pub(super) fn succeeded(&self, visitor: &Visitor) {
        self.0.lock().remove(visitor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_end_with_a_success() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let visitor = (IpAddr::from([10, 0, 0, 1]), "admin".to_owned());
        let wait = |now| throttle.attempt(&visitor, now);
        let ms = Duration::from_millis;
        assert_eq!([wait(now), wait(now), wait(now)], [Ok(ms(0)), Ok(ms(250)), Ok(ms(750))]);
        assert_eq!(wait(now + ms(1_750)), Ok(ms(0)), "it came late enough");
        while wait(now).is_ok() {}
        assert!(wait(now).is_err_and(|left| left > ATTEMPT_WAIT_MAX));
        let other = (IpAddr::from([10, 0, 0, 2]), "admin".to_owned());
        assert_eq!(throttle.attempt(&other, now), Ok(ms(0)), "another address");
        throttle.succeeded(&visitor);
        assert_eq!(wait(now), Ok(ms(0)));
    }
}
