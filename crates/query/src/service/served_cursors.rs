//! Cursors that other nodes have open here. Those that nobody asks for any more are forgotten.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::ServerId;
use io::Nanos;
use io::memory::Account;
use parking_lot::Mutex;
use reql::Cancel;

/// How long a cursor is kept for a node that does not ask for more. A node that comes later begins a
/// new one where it was.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Most cursors kept for all nodes together; the one that waited longest goes first.
const CURSORS_MAX: usize = 100_000;
/// How often one looks for cursors that nobody asks for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// The open cursors by who opened them.
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

/// Rows being read for another node.
pub(crate) trait ServedCursor: Send {
    /// The next batch, as an answer.
    fn next_batch(&mut self) -> Bytes;

    /// Whether that was the last.
    fn is_over(&self) -> bool;

    /// Stops it while a batch is read.
    fn cancel(&self) -> Arc<Cancel>;

    /// What it holds.
    fn account(&self) -> &Arc<Account>;
}

impl ServedCursors {
    /// Keeps a cursor until it is asked for.
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

    /// Takes a cursor out, to read on or to end it.
    pub fn take(&self, key: (ServerId, u64)) -> Option<Box<dyn ServedCursor>> {
        self.0.lock().kept.remove(&key).map(|kept| kept.cursor)
    }

    /// Ends the cursors of a node that is gone.
    pub fn forget(&self, server: ServerId) {
        self.0.lock().kept.retain(|(owner, _), _| *owner != server);
    }
}
