//! Time: a monotonic clock and the wall clock.

use std::time::Duration;

/// A reading of the monotonic clock, in nanoseconds since an arbitrary start.
///
/// Only differences are meaningful, and only between readings of the same [`Clock`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The time from `earlier` to this reading; zero if `earlier` is later.
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The reading `wait` after this one.
    pub fn after(self, wait: Duration) -> Nanos {
        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Nanos(self.0.saturating_add(wait_ns))
    }
}

/// The two clocks of a machine.
pub trait Clock: Send + Sync {
    /// The monotonic clock: never goes back, unaffected by changes to the date.
    fn now(&self) -> Nanos;

    /// Time since 1970-01-01T00:00:00Z by the wall clock, which may jump either way.
    fn unix(&self) -> Duration;
}
