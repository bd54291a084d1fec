//! The clocks of the operating system.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::{Clock, Nanos};

/// The machine's clocks; readings count from when this value was made.
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
        // A machine set to before 1970 reads as 1970: no caller can do better with an error.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}
