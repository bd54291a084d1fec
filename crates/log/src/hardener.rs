//! Who makes the log durable: its own fsyncs, and those of an engine whose rows are about to become so.
//!
//! Either may fail, and the system tells of that once for an open file: of two fsyncs at once, one would hear that all is
//! well. So they are made one at a time, and after one that failed none is believed, whoever made it.

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

use io::{File, task};
use parking_lot::Mutex;

use crate::lsn::Position;

/// The end of the log that stays in the page cache, for replicas that are a little behind.
const CACHED_BYTES: u64 = 4 << 20;
/// So much is forgotten at once: each time costs a system call.
const UNCACHE_BYTES: u64 = 1 << 20;

/// Makes what was appended to a log durable, on any thread and without a turn of the log. Clones are of the same log.
///
/// Goes on to work when the log has ended. It knows nothing of the engine.
#[derive(Clone)]
pub struct Hardener(Arc<Shared>);

struct Shared {
    end: Mutex<End>,
    // Held during an fsync, and never while an engine is waited for.
    disk: Mutex<Disk>,
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
    // Before it the system need not cache the segment.
    uncached: Position,
}

impl Hardener {
    /// Of a log that ends in `segment` at `at`, durably.
    pub(crate) fn new(segment: Arc<dyn File>, at: Position) -> Hardener {
        let disk = Mutex::new(Disk { durable: at, failed: None, uncached: at });
        Hardener(Arc::new(Shared { end: Mutex::new(End { segment, at }), disk }))
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
    pub fn harden(&self) -> Result<()> {
        #[cfg(any(test, feature = "mutants"))]
        if crate::mutant::is(crate::mutant::Mutant::FlushUnsynced) {
            return Ok(());
        }
        let mut disk = task::lock(&self.0.disk);
        let End { segment, at } = self.0.end.lock().clone();
        match disk.durable >= at {
            true => Ok(()),
            false => disk.sync(&*segment, at),
        }
    }

    /// Makes `segment` durable, which ends the log, or did so until now; all of it up to `through`.
    pub(crate) fn sync(&self, segment: &dyn File, through: Position) -> Result<()> {
        task::lock(&self.0.disk).sync(segment, through)
    }
}

impl Disk {
    fn sync(&mut self, segment: &dyn File, through: Position) -> Result<()> {
        if let Some((kind, what)) = &self.failed {
            return Err(Error::new(*kind, format!("an fsync before this one failed: {what}")));
        }
        let synced = segment.sync_data();
        match &synced {
            Ok(()) => {
                self.durable = self.durable.max(through);
                self.uncache(segment, through);
            }
            Err(cause) => self.failed = Some((cause.kind(), cause.to_string())),
        }
        synced
    }

    /// Lets the system forget what is durable in `segment` up to `through`, but for what may yet be read.
    fn uncache(&mut self, segment: &dyn File, through: Position) {
        let start = match self.uncached.segment == through.segment {
            true => self.uncached.offset,
            false => 0,
        };
        let end = through.offset.saturating_sub(CACHED_BYTES);
        if end >= start + UNCACHE_BYTES {
            segment.uncache(start..end);
            self.uncached = Position { offset: end, ..through };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    const MB: u64 = 1 << 20;

    /// A file whose fsyncs succeed, and which remembers what need not be cached.
    #[derive(Default)]
    struct Noted {
        uncached: Mutex<Vec<Range<u64>>>,
    }

    impl File for Noted {
        fn append(&self, _bytes: &[u8]) -> Result<()> {
            Ok(())
        }

        fn sync_data(&self) -> Result<()> {
            Ok(())
        }

        fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> Result<usize> {
            Ok(0)
        }

        fn len(&self) -> Result<u64> {
            Ok(0)
        }

        fn truncate(&self, _len: u64) -> Result<()> {
            Ok(())
        }

        fn uncache(&self, range: Range<u64>) {
            self.uncached.lock().push(range);
        }
    }

    fn at(segment: u64, offset: u64) -> Position {
        Position { segment, offset }
    }

    #[test]
    fn of_what_is_durable_the_end_stays_cached_and_the_rest_goes_once() {
        let (first, second) = (Arc::new(Noted::default()), Arc::new(Noted::default()));
        let hardener = Hardener::new(Arc::clone(&first) as _, at(1, 0));
        for half_megabytes in 1..=16 {
            let end = at(1, half_megabytes * MB / 2);
            hardener.appended(end);
            hardener.harden().expect("no fault");
        }
        assert_eq!(*first.uncached.lock(), [0..MB, MB..2 * MB, 2 * MB..3 * MB, 3 * MB..4 * MB]);

        hardener.begin_segment(Arc::clone(&second) as _, at(2, 100));
        hardener.appended(at(2, 7 * MB));
        hardener.sync(&*second, at(2, 4 * MB)).expect("no fault");
        assert_eq!(*second.uncached.lock(), [], "all of it may yet be read");
        hardener.harden().expect("no fault");
        assert_eq!(*second.uncached.lock(), [0..3 * MB]);
    }

    #[test]
    fn a_log_that_was_there_before_is_uncached_from_where_it_ended() {
        let file = Arc::new(Noted::default());
        let hardener = Hardener::new(Arc::clone(&file) as _, at(1, 8 * MB));
        hardener.appended(at(1, 15 * MB));
        hardener.harden().expect("no fault");
        assert_eq!(*file.uncached.lock(), [8 * MB..11 * MB]);
    }
}
