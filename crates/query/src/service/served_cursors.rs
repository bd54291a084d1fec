//! Cursors that other nodes have open here. Idle ones are closed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::ServerId;
use io::Nanos;
use io::memory::Account;
use parking_lot::Mutex;
use reql::Cancel;

/// A cursor is closed after this long without a request. A node that comes back later opens a new one at its position.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Most open cursors of all nodes together; the one that was idle longest is closed first.
const CURSORS_MAX: usize = 100_000;
/// How often idle cursors are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// The open cursors, by server and number.
#[derive(Default)]
pub(crate) struct ServedCursors(Mutex<OpenCursors>);

#[derive(Default)]
struct OpenCursors {
    kept: HashMap<(ServerId, u64), OpenCursor>,
    swept: Nanos,
}

struct OpenCursor {
    since: Nanos,
    cursor: Box<dyn ServedCursor>,
}

/// A cursor over rows for another node.
pub(crate) trait ServedCursor: Send {
    /// The next batch, as an encoded response.
    fn next_batch(&mut self) -> Bytes;

    /// Whether the last batch was read.
    fn is_over(&self) -> bool;

    /// Stops it while a batch is read.
    fn cancel(&self) -> Arc<Cancel>;

    /// The memory account of the cursor.
    fn account(&self) -> &Arc<Account>;
}

impl ServedCursors {
    /// Keeps a cursor until the next request for it.
    pub fn keep(&self, key: (ServerId, u64), cursor: Box<dyn ServedCursor>, now: Nanos) {
        let mut open = self.0.lock();
        if now.since(open.swept) > SWEEP_INTERVAL {
            open.swept = now;
            open.kept.retain(|_, kept| now.since(kept.since) <= IDLE_TIMEOUT);
        }
        if open.kept.len() >= CURSORS_MAX {
            let oldest = open.kept.iter().min_by_key(|(_, kept)| kept.since).map(|(key, _)| *key);
            oldest.iter().for_each(|key| drop(open.kept.remove(key)));
        }
        open.kept.insert(key, OpenCursor { since: now, cursor });
    }

    /// Takes a cursor out, to read its next batch or to close it.
    pub fn take(&self, key: (ServerId, u64)) -> Option<Box<dyn ServedCursor>> {
        self.0.lock().kept.remove(&key).map(|kept| kept.cursor)
    }

    /// Closes all cursors of a node.
    pub fn forget(&self, server: ServerId) {
        self.0.lock().kept.retain(|(owner, _), _| *owner != server);
    }
}
