//! Notifier for threads that wait for them: of indexes, and since when those are being built; of how
//! replicas are.

use std::collections::HashMap;
use std::time::Duration;

use io::Nanos;
use io::task::{self, Condvar};
use parking_lot::Mutex;
use shard::IndexId;
use storage::TableId;

/// Counts news, so that nobody sleeps through any.
#[derive(Default)]
pub struct Notifier {
    count: Mutex<u64>,
    came: Condvar,
    begun: Mutex<HashMap<(TableId, IndexId), Nanos>>,
}

impl Notifier {
    /// The news so far, to be given to [`Notifier::wait`] after looking at the state they are about.
    #[must_use]
    pub fn seen(&self) -> u64 {
        *self.count.lock()
    }

    /// Notes that `builds`, and no others, are under way `now`.
    pub(crate) fn under_way(&self, builds: &[(TableId, IndexId)], now: Nanos) {
        let mut begun = self.begun.lock();
        begun.retain(|build, _| builds.contains(build));
        for build in builds {
            begun.entry(*build).or_insert(now);
        }
    }

    /// Since when an index is being built, if it is.
    pub(crate) fn begun(&self, table: TableId, index: IndexId) -> Option<Nanos> {
        self.begun.lock().get(&(table, index)).copied()
    }

    /// Wakes everybody.
    pub fn tell(&self) {
        *self.count.lock() += 1;
        self.came.notify_all();
    }

    /// Returns when there is more news than was `seen`, or after `patience`.
    pub fn wait(&self, seen: u64, patience: Duration) {
        let deadline = task::now() + patience;
        let mut count = self.count.lock();
        while *count == seen {
            if self.came.wait_until(&mut count, deadline).timed_out() {
                return;
            }
        }
    }
}
