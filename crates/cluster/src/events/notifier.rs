//! A condition variable with a counter: wakes threads that wait for a change of state kept elsewhere.

use std::time::Duration;

use io::task::{self, Condvar};
use parking_lot::Mutex;

/// Counts changes, so that a waiting thread misses none.
#[derive(Default)]
pub struct Notifier {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Notifier {
    /// The number of changes so far. Read it before the state, then pass it to [`Notifier::wait`].
    #[must_use]
    pub fn seen(&self) -> u64 {
        *self.count.lock()
    }

    /// Counts a change and wakes all waiting threads.
    pub fn notify(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }

    /// Returns once there are more changes than `seen`, or after `timeout`.
    pub fn wait(&self, seen: u64, timeout: Duration) {
        let deadline = task::now() + timeout;
        let mut count = self.count.lock();
        while *count == seen {
            if self.changed.wait_until(&mut count, deadline).timed_out() {
                return;
            }
        }
    }
}
