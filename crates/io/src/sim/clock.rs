//! A clock that moves only when told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Clock, Nanos};

/// 2026-01-01T00:00:00Z: where the simulated wall clock starts.
const UNIX_START: Duration = Duration::from_secs(1_767_225_600);

/// A clock under the test's hand. Clones read the same time.
#[derive(Clone, Debug, Default)]
pub struct SimClock {
    nanos: Arc<AtomicU64>,
}

impl SimClock {
    /// A clock at zero.
    pub fn new() -> SimClock {
        SimClock::default()
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
        UNIX_START + Duration::from_nanos(self.now().0)
    }
}
