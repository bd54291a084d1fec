//! Who makes the log durable: its own fsyncs, and those of an engine whose rows are about to become so.
//!
//! Either may fail, and the system tells of that once for an open file: of two fsyncs at once, one would hear that all is
//! well. So they are made one at a time, and after one that failed none is believed, whoever made it.

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

use io::{File, task};
use parking_lot::Mutex;

use crate::cached::Cached;
use crate::lsn::Position;

/// Makes what was appended to a log durable, on any thread and without a turn of the log. Clones are of the same log.
///
/// Goes on to work when the log has ended. It knows nothing of the engine.
#[derive(Clone)]
pub struct LogSync(Arc<Shared>);

struct Shared {
    end: Mutex<End>,
    // Held during an fsync, and never while an engine is waited for.
    disk: Mutex<Disk>,
    cached: Mutex<Cached>,
}

/// Where the log ends in the page cache. What came before the segment is durable.
#[derive(Clone)]
struct End {
    segment: Arc<dyn File>,
    at: Position,
}

/// What is known of the disk.
struct Disk {
    durable: Position,
    failed: Option<(ErrorKind, String)>,
}

impl LogSync {
    /// Of a log that ends in `segment` at `at`, durably.
    pub(crate) fn new(segment: Arc<dyn File>, at: Position) -> LogSync {
        let disk = Mutex::new(Disk { durable: at, failed: None });
        let cached = Mutex::new(Cached::new(at));
        LogSync(Arc::new(Shared { end: Mutex::new(End { segment, at }), disk, cached }))
    }

    /// The log ends in a new segment, durably.
    pub(crate) fn begin_segment(&self, segment: Arc<dyn File>, at: Position) {
        *self.0.end.lock() = End { segment, at };
    }

    /// The log was appended to, and ends at `at`. Before anything of it is applied.
    pub(crate) fn appended(&self, at: Position) {
        self.0.end.lock().at = at;
    }

    /// Makes everything durable that was appended before the call: all that any [`Applier`](crate::Applier) was given by
    /// then. Waits for the disk as long as that takes. After an fsync of this log that failed it fails, too, unless
    /// everything was durable before.
    ///
    /// When it fails the log stops as if that had happened to an fsync of its own: it hears of it with its next one, which
    /// is never later than a soft entry may wait.
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
        self.0.cached.lock().extend(&segment, at);
        Ok(())
    }

    /// Makes `segment` durable, which ends the log, or did so until now; all of it up to `through`.
    pub(crate) fn sync_segment(&self, segment: &Arc<dyn File>, through: Position) -> Result<()> {
        task::lock(&self.0.disk).sync(&**segment, through)?;
        self.0.cached.lock().extend(segment, through);
        Ok(())
    }

    /// This segment was removed from the log.
    pub(crate) fn removed(&self, segment: u64) {
        self.0.cached.lock().forget(segment);
    }
}

impl Disk {
    fn sync(&mut self, segment: &dyn File, through: Position) -> Result<()> {
        if let Some((kind, what)) = &self.failed {
            return Err(Error::new(*kind, format!("an fsync before this one failed: {what}")));
        }
        let synced = segment.sync_data();
        match &synced {
            Ok(()) => self.durable = self.durable.max(through),
            Err(cause) => self.failed = Some((cause.kind(), cause.to_string())),
        }
        synced
    }
}
