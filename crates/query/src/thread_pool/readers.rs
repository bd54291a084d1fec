//! Threads for point queries whose rows are on disk: the threads of connections and links never wait for the disk to
//! read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datum::PrimaryKey;
use io::memory::{Account, Budget};
use parking_lot::Mutex;
use storage::TableId;

use super::ThreadPool;

/// Enough to keep a disk busy: an SSD reaches most of its rate with 32 reads at a time. While all of them wait, further
/// reads are queued, but queries whose rows are in memory are not affected.
const READERS_MAX: usize = 64;

/// Keys of one query that a thread reads one after the other, if other threads can read the rest at the same time.
const KEYS_PER_READER: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// The row of a write.
type RowId = (TableId, PrimaryKey);

/// The threads, and the writes that wait for them.
pub(crate) struct Readers {
    pool: ThreadPool,
    writes: Arc<WaitingWrites>,
    memory: Arc<Budget>,
}

/// Writes that were handed over, by their rows: writes of one row happen in the order in which they arrived.
#[derive(Default)]
struct WaitingWrites {
    /// For each row with such a write, the writes after it.
    rows: Mutex<HashMap<RowId, VecDeque<Job>>>,
    /// The number of these rows, to be read without the lock.
    count: AtomicUsize,
}

impl Readers {
    /// No threads yet: they start when they are needed, and stay. Their work is charged to `memory`.
    pub fn new(memory: Arc<Budget>) -> Readers {
        Readers { pool: ThreadPool::on_demand("reader", READERS_MAX), writes: Arc::default(), memory }
    }

    /// Runs `job`, which may wait for the disk, when a thread is free.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let memory = self.memory.clone();
        self.pool.run(move || {
            let account = Account::for_short_queries(memory);
            let _counting = account.enter();
            job();
        });
    }

    /// As [`Readers::run`], for a write of a row: after all earlier ones of the row.
    pub fn run_write(&self, table: TableId, key: PrimaryKey, job: impl FnOnce() + Send + 'static) {
        let row = (table, key);
        let job: Job = Box::new(job);
        {
            let mut rows = self.writes.rows.lock();
            if let Some(waiting) = rows.get_mut(&row) {
                waiting.push_back(job);
                return;
            }
            rows.insert(row.clone(), VecDeque::new());
            self.writes.count.store(rows.len(), Ordering::Release);
        }
        let turns = Turns { writes: self.writes.clone(), row };
        self.run(move || turns.run(job));
    }

    /// Whether a write of the row was handed over and has not happened yet. Another write of it must not overtake it.
    pub fn has_write(&self, table: TableId, key: &PrimaryKey) -> bool {
        self.writes.count.load(Ordering::Acquire) > 0
            && self.writes.rows.lock().contains_key(&(table, key.clone()))
    }

    /// Runs `read` on parts of `items`, on this thread and others, if there are enough of them, and returns the results
    /// in the order of the parts. Must be called on a thread that may block.
    pub fn read_parts<T, R>(
        &self,
        items: Vec<T>,
        read: impl Fn(Vec<T>) -> R + Send + Sync + 'static,
    ) -> Vec<R>
    where
        T: Send + 'static,
        R: Send + 'static,
    {
        let mut parts = Vec::with_capacity(items.len().div_ceil(KEYS_PER_READER));
        let mut items = items.into_iter();
        loop {
            let part: Vec<T> = items.by_ref().take(KEYS_PER_READER).collect();
            if part.is_empty() {
                return self.pool.map(parts, read);
            }
            parts.push(part);
        }
    }
}

/// The right to run the writes of a row. Dropped, also by a panic, it lets the next write run.
struct Turns {
    writes: Arc<WaitingWrites>,
    row: RowId,
}

impl Turns {
    fn run(self, first: Job) {
        first();
        while let Some(next) = self.next() {
            next();
        }
    }

    /// The next write of the row. `None` if there is none: then the row is not listed any more.
    fn next(&self) -> Option<Job> {
        let mut rows = self.writes.rows.lock();
        let next = rows.get_mut(&self.row)?.pop_front();
        if next.is_none() {
            rows.remove(&self.row);
            self.writes.count.store(rows.len(), Ordering::Release);
        }
        next
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        // Only after a panic is anything left: the writes after the one that panicked.
        while let Some(next) = self.next() {
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(next)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use datum::Bytes;
    use uuid::Uuid;

    use super::*;

    fn key(name: &'static str) -> PrimaryKey {
        PrimaryKey(Bytes::from_static(name.as_bytes()))
    }

    #[test]
    fn writes_of_a_row_keep_their_order_and_others_overtake_them() {
        let readers = Readers::new(Budget::unlimited());
        let table = TableId::from_uuid(Uuid::from_u128(1));
        let (release, disk) = mpsc::channel::<()>();
        let (done, finished) = mpsc::channel();
        let note = |name: &'static str| {
            let done = done.clone();
            move || done.send(name).unwrap()
        };
        let first = note("first");
        readers.run_write(table, key("a"), move || {
            disk.recv().unwrap();
            first();
        });
        readers.run_write(table, key("a"), || panic!("on purpose"));
        readers.run_write(table, key("a"), note("last"));
        assert!(readers.has_write(table, &key("a")) && !readers.has_write(table, &key("b")));
        readers.run_write(table, key("b"), note("other"));
        assert_eq!(finished.recv(), Ok("other"));
        release.send(()).unwrap();
        assert_eq!([finished.recv(), finished.recv()], [Ok("first"), Ok("last")]);
    }

    #[test]
    fn parts_come_in_order() {
        let readers = Readers::new(Budget::unlimited());
        let parts = readers.read_parts((0..50).collect(), |part: Vec<u32>| part);
        assert!(parts.len() > 10);
        assert_eq!(parts.concat(), (0..50).collect::<Vec<_>>());
        assert!(readers.read_parts(Vec::new(), |part: Vec<u32>| part).is_empty());
    }
}
