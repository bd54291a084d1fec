//! The memory that changes on their way may hold, all tables together.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::server::Stop;

const LOOK: Duration = Duration::from_millis(200);

/// Bytes that may be held.
#[derive(Debug)]
pub struct ByteBudget {
    left: Mutex<i64>,
    freed: Condvar,
}

impl ByteBudget {
    pub fn new(bytes: i64) -> ByteBudget {
        ByteBudget { left: Mutex::new(bytes), freed: Condvar::new() }
    }

    /// Takes `bytes` once something is left: the last one may take more than that. Returns early when the end is requested.
    pub fn take(&self, bytes: u64, stop: &Stop) {
        let mut left = self.left.lock();
        while *left <= 0 && !stop.is_requested() {
            self.freed.wait_for(&mut left, LOOK);
        }
        *left -= i64::try_from(bytes).unwrap_or(i64::MAX);
    }

    pub fn give_back(&self, bytes: u64) {
        *self.left.lock() += i64::try_from(bytes).unwrap_or(i64::MAX);
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::ByteBudget;
    use crate::server::Stop;

    #[test]
    fn a_thread_waits_until_bytes_are_given_back() {
        let (budget, stop) = (ByteBudget::new(10), Stop::default());
        budget.take(15, &stop);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.take(1, &stop));
            budget.give_back(15);
            waiting.join().unwrap();
        });
        assert_eq!(*budget.left.lock(), 9);
    }
}
