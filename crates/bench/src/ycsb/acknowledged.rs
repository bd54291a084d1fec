//! Numbers of inserted records: allocated in order, and considered existing only when all lower ones are acknowledged,
//! so that `latest` never reads a missing record.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The maximum number of unacknowledged inserts.
const WINDOW: u64 = 1 << 20;

/// A counter shared by all threads of a run.
#[derive(Debug)]
pub struct AcknowledgedCounter {
    next: AtomicU64,
    below: AtomicU64,
    window: Mutex<Vec<bool>>,
}

impl AcknowledgedCounter {
    /// A counter that starts at `start`; all lower numbers exist.
    pub fn new(start: u64) -> Self {
        AcknowledgedCounter {
            next: AtomicU64::new(start),
            below: AtomicU64::new(start),
            window: Mutex::new(vec![false; WINDOW as usize]),
        }
    }

    /// Allocates the next number.
    pub fn allocate(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The number below which all records exist.
    pub fn existing(&self) -> u64 {
        self.below.load(Ordering::Acquire)
    }

    /// Marks `number` as acknowledged.
    pub fn acknowledge(&self, number: u64) {
        let mut window = self.window.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        window[(number % WINDOW) as usize] = true;
        let mut below = self.below.load(Ordering::Relaxed);
        while std::mem::take(&mut window[(below % WINDOW) as usize]) {
            below += 1;
        }
        self.below.store(below, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::AcknowledgedCounter;

    #[test]
    fn only_the_unbroken_beginning_exists() {
        let counter = AcknowledgedCounter::new(100);
        let handed: Vec<u64> = (0..4).map(|_| counter.allocate()).collect();
        assert_eq!(handed, [100, 101, 102, 103]);
        assert_eq!(counter.existing(), 100);
        counter.acknowledge(101);
        counter.acknowledge(103);
        assert_eq!(counter.existing(), 100);
        counter.acknowledge(100);
        assert_eq!(counter.existing(), 102);
        counter.acknowledge(102);
        assert_eq!(counter.existing(), 104);
    }
}
