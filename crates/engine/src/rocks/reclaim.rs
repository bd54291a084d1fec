//! Gives the disk space of deleted ranges back, on a thread of its own: deletes files of dropped ranges, and merges the other files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use io::task::{self, Receiver, Sender, Thread};
use librocksdb_sys as ffi;
use rocksdb::{AsRawPtr, BottommostLevelCompaction, CompactOptions, DB};

use super::stats::LIVE_BLOB_FILE_BYTES;
use super::{column, flushes};
use crate::pre_flush::Hook;
use crate::{DeletedKeys, EngineError, Space};

/// RocksDB has this property, but the wrapper crate does not name it.
const OLDEST_SNAPSHOT_SEQUENCE: &std::ffi::CStr = c"rocksdb.oldest-snapshot-sequence";
/// How often the end of older snapshots is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Keys that a batch has deleted, and whose disk space is to come back.
pub(super) struct DeletedRange {
    pub space: Space,
    /// The first key in it.
    pub start: Vec<u8>,
    /// The first key after it.
    pub end: Vec<u8>,
    pub keys: DeletedKeys,
    /// Snapshots of a lower sequence number may see its keys.
    pub deleted_at: u64,
}

/// The thread that reclaims ranges, one after the other.
pub(super) struct Reclaimer {
    db: Arc<DB>,
    ranges: Option<Sender<DeletedRange>>,
    stops: Arc<AtomicBool>,
    thread: Option<Thread>,
}

impl Reclaimer {
    /// Starts the thread. `hook` runs before each of its flushes. Fails if the system cannot start a thread.
    pub(super) fn start(db: &Arc<DB>, hook: Arc<Hook>) -> std::io::Result<Reclaimer> {
        let (sender, receiver) = task::channel();
        let stops = Arc::<AtomicBool>::default();
        let worker = Worker { db: Arc::clone(db), hook, stops: Arc::clone(&stops) };
        let thread = task::spawn("engine-reclaim", move || worker.run(&receiver))?;
        Ok(Reclaimer { db: Arc::clone(db), ranges: Some(sender), stops, thread: Some(thread) })
    }

    /// Reclaims the range later.
    pub(super) fn add(&self, range: DeletedRange) {
        if let Some(ranges) = &self.ranges {
            // The thread ends only when this sender is dropped.
            drop(ranges.send(range));
        }
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        self.ranges = None;
        // SAFETY: the database is open as long as `self.db`. This only makes manual compactions return early.
        unsafe { ffi::rocksdb_disable_manual_compaction(self.db.as_raw_ptr()) };
        self.thread.take().into_iter().for_each(Thread::join);
    }
}

struct Worker {
    db: Arc<DB>,
    hook: Arc<Hook>,
    stops: Arc<AtomicBool>,
}

impl Worker {
    fn run(&self, ranges: &Receiver<DeletedRange>) {
        while let Ok(range) = ranges.recv() {
            while self.is_seen(&range) && !self.stops.load(Relaxed) {
                std::thread::sleep(POLL_INTERVAL);
            }
            if self.stops.load(Relaxed) {
                return;
            }
            if let Err(cause) = self.reclaim(&range) {
                let space = range.space.name();
                tracing::warn!("the disk space of a dropped range of {space} comes back later: {cause}");
            }
        }
    }

    /// Whether a snapshot may see keys of the range.
    fn is_seen(&self, range: &DeletedRange) -> bool {
        let oldest = self.db.property_int_value(OLDEST_SNAPSHOT_SEQUENCE).ok().flatten();
        oldest.is_some_and(|oldest| oldest > 0 && oldest < range.deleted_at)
    }

    fn reclaim(&self, range: &DeletedRange) -> Result<(), EngineError> {
        let column = column(&self.db, range.space);
        if self.is_tiny(range) {
            return Ok(());
        }
        // Merging finds the deletion in a file. On a full disk this fails; deleting the files makes room then.
        let flushed = flushes::flush(&self.db, &self.hook);
        if range.keys == DeletedKeys::NeverWrittenAgain {
            self.db.delete_file_in_range_cf(column, &range.start, &range.end)?;
        }
        flushed?;
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        // The deletion itself reaches the lowest files of the range; files below it are not rewritten again.
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Skip);
        self.db.compact_range_cf_opt(column, Some(&range.start), Some(&range.end), &options);
        Ok(())
    }

    /// Whether about nothing of the range is in a file, because it was reclaimed already or is small. Separately stored large
    /// values do not count in the size of a range, so a database with some has no tiny ranges.
    fn is_tiny(&self, range: &DeletedRange) -> bool {
        let column = column(&self.db, range.space);
        let large_values = self.db.property_int_value_cf(column, LIVE_BLOB_FILE_BYTES);
        let in_files = [rocksdb::Range::new(&range.start, &range.end)];
        large_values.ok().flatten() == Some(0) && self.db.get_approximate_sizes_cf(column, &in_files) == [0]
    }
}
