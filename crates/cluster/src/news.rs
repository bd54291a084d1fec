//! Something that threads wait for: that there is news.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Counts news, so that nobody sleeps through any.
#[derive(Default)]
pub struct News {
    count: Mutex<u64>,
    came: Condvar,
}

impl News {
    /// The news so far, to be given to [`News::wait`] after looking at the state they are about.
    #[must_use]
    pub fn seen(&self) -> u64 {
        *self.count.lock()
    }

    /// Wakes everybody.
    pub fn tell(&self) {
        *self.count.lock() += 1;
        self.came.notify_all();
    }

    /// Returns when there is more news than was `seen`, or after `patience`.
    pub fn wait(&self, seen: u64, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut count = self.count.lock();
        while *count == seen {
            if self.came.wait_until(&mut count, deadline).timed_out() {
                return;
            }
        }
    }
}
