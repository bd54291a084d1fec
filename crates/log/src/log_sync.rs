//! Fsyncs of the log, by the log itself and by an engine whose rows are about to become durable.
//!
//! The operating system reports a failure once for an open file: of two concurrent fsyncs, one would report success. So
//! fsyncs run one at a time, and after a failed one every later one fails as well.

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

use io::{File, task};
use parking_lot::Mutex;

use crate::lsn::Position;
use crate::page_cache::PageCache;

/// Makes the appended part of a log durable, on any thread and without a step of the log. Clones belong to the same log.
///
/// Works even after the log has ended. It does not use the engine.
#[derive(Clone)]
pub struct LogSync(Arc<Shared>);

struct Shared {
    end: Mutex<End>,
    /// Locked during an fsync, and never while waiting for an engine.
    disk: Mutex<Disk>,
    page_cache: Mutex<PageCache>,
}

/// Where the log ends in the page cache. Earlier segments are durable.
#[derive(Clone)]
struct End {
    segment: Arc<dyn File>,
    at: Position,
}

/// The state of the disk, as far as known.
struct Disk {
    durable: Position,
    failed: Option<(ErrorKind, String)>,
}

impl LogSync {
    /// For a log that ends in `segment` at `at`, durably.
    pub(crate) fn new(segment: Arc<dyn File>, at: Position) -> LogSync {
        let disk = Mutex::new(Disk { durable: at, failed: None });
        let page_cache = Mutex::new(PageCache::new(at));
        LogSync(Arc::new(Shared { end: Mutex::new(End { segment, at }), disk, page_cache }))
    }

    /// The log ends in a new segment, durably.
    pub(crate) fn begin_segment(&self, segment: Arc<dyn File>, at: Position) {
        *self.0.end.lock() = End { segment, at };
    }

    /// The log was appended to, and ends at `at`. Called before any of the appended entries is applied.
    pub(crate) fn appended(&self, at: Position) {
        self.0.end.lock().at = at;
    }

    /// Makes everything durable that was appended before the call, which includes every entry given to the
    /// [`Applier`](crate::Applier) by then. Waits for the disk as long as that takes. After a failed fsync of this log it
    /// fails as well, unless everything was durable before.
    ///
    /// If it fails, the log stops as after a failed fsync of the log itself. It learns of the failure at its next fsync,
    /// which is due no later than a soft entry may wait.
    pub fn sync(&self) -> Result<()> {
        #[cfg(any(test, feature = "mutants"))]
        if crate::mutant::is_active(crate::mutant::Mutant::FlushUnsynced) {
            return Ok(());
        }
        let mut disk = task::lock(&self.0.disk);
        let End { segment, at } = self.0.end.lock().clone();
        if disk.durable >= at {
            return Ok(());
        }
        disk.sync(&*segment, at)?;
        drop(disk);
        self.0.page_cache.lock().extend(&segment, at);
        Ok(())
    }

    /// Makes `segment`, the last one or the one before, durable up to `through`.
    pub(crate) fn sync_segment(&self, segment: &Arc<dyn File>, through: Position) -> Result<()> {
        task::lock(&self.0.disk).sync(&**segment, through)?;
        self.0.page_cache.lock().extend(segment, through);
        Ok(())
    }

    pub(crate) fn segment_removed(&self, segment: u64) {
        self.0.page_cache.lock().remove_segment(segment);
    }
}

impl Disk {
    fn sync(&mut self, segment: &dyn File, through: Position) -> Result<()> {
        if let Some((kind, what)) = &self.failed {
            return Err(Error::new(*kind, format!("an fsync before this one failed: {what}")));
        }
        io::failpoint("log.sync");
        let synced = segment.sync_data();
        io::failpoint("log.synced");
        match &synced {
            Ok(()) => self.durable = self.durable.max(through),
            Err(cause) => self.failed = Some((cause.kind(), cause.to_string())),
        }
        synced
    }
}
