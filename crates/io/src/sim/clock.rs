//! A clock that advances only on command.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::{Clock, Nanos};

/// 2026-01-01T00:00:00Z: the start of the simulated wall clock.
const UNIX_START: Duration = Duration::from_secs(1_767_225_600);

/// A clock controlled by the test. Clones read the same time.
#[derive(Clone, Debug, Default)]
pub struct SimClock {
    nanos: Arc<AtomicU64>,
    // The offset of the wall clock.
    skew_ms: Arc<AtomicI64>,
}

impl SimClock {
    /// A clock at zero.
    pub fn new() -> SimClock {
        SimClock::default()
    }

    /// The same time with a separate wall clock, which is correct until it is set.
    pub fn with_own_wall(&self) -> SimClock {
        SimClock { nanos: Arc::clone(&self.nanos), skew_ms: Arc::default() }
    }

    /// Sets the offset of the wall clock, forward or back; the monotonic clock is not affected.
    pub fn set_skew_ms(&self, skew_ms: i64) {
        self.skew_ms.store(skew_ms, Ordering::Relaxed);
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        self.nanos.store(self.now().after(by).0, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Nanos {
        Nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn unix(&self) -> Duration {
        let right = UNIX_START + Duration::from_nanos(self.now().0);
        let skew_ms = self.skew_ms.load(Ordering::Relaxed);
        let skew = Duration::from_millis(skew_ms.unsigned_abs());
        if skew_ms < 0 { right.saturating_sub(skew) } else { right + skew }
    }
}
