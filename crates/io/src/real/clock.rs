//! The clocks of the operating system.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::{Clock, Nanos};

/// The machine's clocks. Readings count from the creation of this value.
#[derive(Clone, Copy, Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// A clock whose first reading is near zero.
    pub fn new() -> RealClock {
        RealClock { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> RealClock {
        RealClock::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Nanos {
        Nanos::default().after(self.start.elapsed())
    }

    fn unix(&self) -> Duration {
        // A clock set to before 1970 reads as 1970: no caller could handle an error better.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}
