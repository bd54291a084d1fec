//! The sizes of caches and of the budget of queries, decided from the memory in use: a pure core without clock and threads.
//!
//! The plan gives every owner its share. But some memory has no fixed size (buffers of compactions, stacks of threads, rows
//! on their way to the disk, gaps between allocations), so the sum may exceed the limit. The caches shrink then, and the
//! budget of queries ends at the limit.

use super::plan::MemoryPlan;

/// Caches shrink when more than all but this fraction of the limit is in use.
const HIGH_DIVISOR: u64 = 16;
/// They shrink, and grow again, until all but this fraction of the limit is in use.
const LOW_DIVISOR: u64 = 8;
/// Freed memory that is less than this fraction of the limit is not returned.
const KEPT_DIVISOR: u64 = 64;
/// Caches keep this fraction of their planned size.
const CACHES_LEAST_DIVISOR: u64 = 8;
/// Queries always have this much, so that an operator can look for the cause.
const QUERY_BYTES_LEAST: u64 = 8 << 20;

/// The memory of the process at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InUse {
    /// Resident memory that is not part of a file, without `kept`.
    pub used: u64,
    /// Freed memory that the allocator keeps.
    pub kept: u64,
    /// Rows and blocks in the caches.
    pub caches: u64,
    /// Reservations of queries, cursors, connections and feeds.
    pub reserved: u64,
}

/// The sizes in force, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub caches: u64,
    pub queries: u64,
}

/// Decides the sizes. [`Pressure::step`] is called several times a second.
#[derive(Debug)]
pub(super) struct Pressure {
    plan: MemoryPlan,
    sizes: Sizes,
}

impl Pressure {
    /// The sizes of `plan`.
    pub(super) fn new(plan: MemoryPlan) -> Pressure {
        Pressure { plan, sizes: Sizes { caches: plan.cache, queries: plan.queries } }
    }

    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The plan is in force, and `resident` bytes leave it so.
    pub(super) fn is_relaxed(&self, resident: u64) -> bool {
        let planned = Sizes { caches: self.plan.cache, queries: self.plan.queries };
        resident <= self.low() && self.sizes == planned
    }

    /// The allocator should return freed pages now. A few of them are kept: the next allocations need them again at once.
    pub(super) fn wants_purge(&self, now: &InUse) -> bool {
        now.used + now.kept > self.high() && now.kept > self.plan.limit / KEPT_DIVISOR
    }

    /// Adjusts the sizes to the memory in use.
    pub(super) fn step(&mut self, now: &InUse) -> Sizes {
        let caches_least = self.plan.cache / CACHES_LEAST_DIVISOR;
        let is_short = now.used > self.high();
        if is_short {
            // A cache that is not full gives back less than its size.
            let held = now.caches.min(self.sizes.caches);
            self.sizes.caches = held.saturating_sub(now.used - self.low()).max(caches_least);
        } else if now.used < self.low() {
            let room = (self.low() - now.used) / 2;
            self.sizes.caches = self.sizes.caches.max(now.caches + room).min(self.plan.cache);
        }
        let left = self.plan.limit.saturating_sub(now.used);
        let least = QUERY_BYTES_LEAST.min(self.plan.queries);
        self.sizes.queries = (now.reserved + left).clamp(least, self.plan.queries);
        self.sizes
    }

    fn high(&self) -> u64 {
        self.plan.limit - self.plan.limit / HIGH_DIVISOR
    }

    fn low(&self) -> u64 {
        self.plan.limit - self.plan.limit / LOW_DIVISOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MemoryLimit;

    const MB: u64 = 1 << 20;

    /// 100 MB of caches, and 172 for queries.
    fn pressure() -> Pressure {
        Pressure::new(MemoryPlan::divide(100 * MB, MemoryLimit::Megabytes(400), 0).unwrap())
    }

    fn in_use(used: u64, caches: u64, reserved: u64) -> InUse {
        InUse { used: used * MB, kept: 0, caches: caches * MB, reserved: reserved * MB }
    }

    #[test]
    fn below_the_limit_the_plan_holds() {
        let mut pressure = pressure();
        let planned = Sizes { caches: 100 * MB, queries: 172 * MB };
        assert!(pressure.is_relaxed(350 * MB) && !pressure.is_relaxed(351 * MB));
        assert_eq!(pressure.step(&in_use(228, 100, 0)), planned);
        assert_eq!(pressure.step(&in_use(350, 100, 122)), planned);
    }

    #[test]
    fn caches_shrink_at_once_and_grow_with_the_room() {
        let mut pressure = pressure();
        assert_eq!(pressure.step(&in_use(390, 80, 150)), Sizes { caches: 40 * MB, queries: 160 * MB });
        assert_eq!(pressure.step(&in_use(360, 40, 150)).caches, 40 * MB, "between the marks nothing changes");
        assert_eq!(pressure.step(&in_use(390, 40, 150)).caches, 100 * MB / CACHES_LEAST_DIVISOR);
        assert!(!pressure.is_relaxed(0));
        assert_eq!(pressure.step(&in_use(330, 20, 150)).caches, 30 * MB);
        assert_eq!(pressure.step(&in_use(200, 30, 20)), Sizes { caches: 100 * MB, queries: 172 * MB });
        assert!(pressure.is_relaxed(200 * MB));
    }

    #[test]
    fn queries_get_what_is_left() {
        let mut pressure = pressure();
        assert_eq!(pressure.step(&in_use(395, 0, 50)).queries, 55 * MB);
        assert_eq!(pressure.step(&in_use(500, 0, 50)).queries, 50 * MB, "no more than they have");
        assert_eq!(pressure.step(&in_use(500, 0, 0)).queries, QUERY_BYTES_LEAST);
    }

    #[test]
    fn freed_memory_is_returned_before_anything_is_taken_away() {
        let mut pressure = pressure();
        let now = InUse { kept: 100 * MB, ..in_use(300, 100, 70) };
        assert!(pressure.wants_purge(&now));
        assert_eq!(pressure.step(&now), Sizes { caches: 100 * MB, queries: 170 * MB });
        assert!(!pressure.wants_purge(&in_use(300, 100, 70)));
        assert!(!pressure.wants_purge(&InUse { kept: 6 * MB, ..in_use(390, 100, 70) }));
    }
}
