//! The memory of a queue of changes, as a part of the server's budget.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use io::memory::{Budget, Owner, Reservation};

use crate::context::Cx;
use crate::service::{FeedCounters, FeedGarbage};

/// The queues of all feeds may use the budget divided by this.
const SHARE_DIVISOR: u64 = 4;
/// A queue may always have this much: it is less than a client has in flight.
const QUEUE_BYTES_MIN: u64 = 64 << 10;
/// Memory is reserved in steps of this many bytes, so that not each change goes to the budget.
const STEP_BYTES: u64 = 4 << 10;

/// The reservation of one queue.
#[derive(Debug)]
pub(super) struct QueueMemory {
    reservation: Reservation,
    counters: Arc<FeedCounters>,
    garbage: Arc<FeedGarbage>,
}

impl QueueMemory {
    /// The memory of an empty queue of a query's feed.
    pub fn of(cx: &Cx) -> QueueMemory {
        let service = &cx.service;
        let (counters, garbage) = (service.feed_counters.clone(), service.feed_garbage.clone());
        QueueMemory::new(service.memory.clone(), counters, garbage)
    }

    /// The memory of an empty queue.
    pub fn new(budget: Arc<Budget>, counters: Arc<FeedCounters>, garbage: Arc<FeedGarbage>) -> QueueMemory {
        counters.queues.fetch_add(1, Relaxed);
        QueueMemory { reservation: Reservation::new(budget, Owner::Feeds), counters, garbage }
    }

    /// The queue has this many bytes now. Returns whether it must drop its changes: all queues together have more than their share
    /// of the budget, or the budget is used up, and this queue has more than the average. So a client that is too slow never
    /// costs the changes of one that is not.
    pub fn set(&mut self, bytes: u64) -> bool {
        let steps = bytes.next_multiple_of(STEP_BYTES);
        if steps == self.reservation.bytes() {
            return false;
        }
        if steps < self.reservation.bytes() || steps <= QUEUE_BYTES_MIN {
            self.reservation.set(steps);
            return false;
        }
        let is_granted = self.reservation.grow_to(steps).is_ok();
        let (of_feeds, limit) = self.reservation.share();
        let share = limit / SHARE_DIVISOR;
        if is_granted && of_feeds <= share {
            return false;
        }
        self.reservation.set(steps);
        steps > share / self.counters.queues.load(Relaxed).max(1)
    }

    /// Frees entries of the queue without making the caller wait.
    pub fn free(&self, entries: impl Any + Send) {
        self.garbage.free(entries);
    }

    /// Notes that the queue has dropped this many changes.
    pub fn note_overflow(&self, skipped: u64) {
        self.counters.overflows.fetch_add(1, Relaxed);
        self.note_skipped(skipped);
    }

    /// Adds to the number of dropped changes, without another overflow.
    pub fn note_skipped(&self, skipped: u64) {
        self.counters.skipped.fetch_add(skipped, Relaxed);
    }
}

impl Drop for QueueMemory {
    fn drop(&mut self) {
        self.counters.queues.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_queues_drop_their_changes_when_the_share_is_used_up() {
        let (budget, counters) = (Budget::new(4 << 20), Arc::<FeedCounters>::default());
        let queue = || QueueMemory::new(budget.clone(), counters.clone(), Arc::default());
        let (mut slow, mut fast) = (queue(), queue());
        assert!(!slow.set(900 << 10), "within the share of 1 MiB");
        assert!(!fast.set(200 << 10), "beyond it, but less than the average of two queues");
        assert!(slow.set(904 << 10));
        assert!(!slow.set(0));
        assert_eq!(budget.reserved_by(Owner::Feeds), 200 << 10);
        budget.reserve_unchecked(Owner::Queries, 4 << 20);
        assert!(!slow.set(40 << 10), "a queue may always have a little");
        assert!(slow.set(600 << 10), "the whole budget is used up");
        drop((slow, fast));
        assert_eq!((budget.reserved_by(Owner::Feeds), counters.queues.load(Relaxed)), (0, 0));
    }
}
