//! Limits how much of the log stays in the page cache.
//!
//! Entries for replicas that are a little behind are read back, so the end of the log should be in memory. The rest is
//! read only after a restart. Its pages are released and become available for the next appends:
//! `docs/decisions/0043-memory-reuse.md`.

use std::collections::VecDeque;
use std::sync::Arc;

use io::File;

use crate::lsn::Position;

/// This much of the end of the log stays cached.
const KEPT_BYTES: u64 = 32 << 20;
/// Pages are released in multiples of this, at aligned offsets: each release is a system call, and a page that crosses the
/// end of the range stays cached.
const RELEASE_BYTES: u64 = 1 << 20;

/// The ranges of the log that were made durable since it was opened and may be in the page cache, oldest first.
pub(crate) struct PageCache {
    ranges: VecDeque<CachedRange>,
    /// The end of the last range.
    end: Position,
}

/// A range of bytes of one segment.
struct CachedRange {
    segment: u64,
    file: Arc<dyn File>,
    start: u64,
    end: u64,
}

impl CachedRange {
    fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

impl PageCache {
    /// The page cache of a log that ends at `end`. Pages that were read to open the log stay in the cache.
    pub(crate) fn new(end: Position) -> PageCache {
        PageCache { ranges: VecDeque::new(), end }
    }

    /// The log is durable up to `through`, in `file`: pages that are too far before that are released.
    pub(crate) fn extend(&mut self, file: &Arc<dyn File>, through: Position) {
        if through <= self.end {
            return;
        }
        let Position { segment, offset } = through;
        match self.ranges.back_mut().filter(|last| last.segment == segment) {
            Some(last) => last.end = offset,
            None => {
                let start = if self.end.segment == segment { self.end.offset } else { 0 };
                self.ranges.push_back(CachedRange { segment, file: Arc::clone(file), start, end: offset });
            }
        }
        self.end = through;
        self.release_surplus();
    }

    /// The segment was deleted, and its pages with it. Keeping its file open would keep its space on the disk.
    pub(crate) fn remove_segment(&mut self, segment: u64) {
        self.ranges.retain(|range| range.segment != segment);
    }

    fn release_surplus(&mut self) {
        let mut surplus = self.ranges.iter().map(CachedRange::bytes).sum::<u64>().saturating_sub(KEPT_BYTES);
        while let Some(oldest) = self.ranges.front_mut() {
            // A segment that no longer grows is released up to its end.
            let is_last = oldest.segment == self.end.segment;
            let whole = surplus >= oldest.bytes() && !is_last;
            let end =
                if whole { oldest.end } else { (oldest.start + surplus) / RELEASE_BYTES * RELEASE_BYTES };
            if end <= oldest.start {
                return;
            }
            oldest.file.uncache(oldest.start..end);
            surplus -= end - oldest.start;
            oldest.start = end;
            if !whole {
                return;
            }
            self.ranges.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Result;
    use std::ops::Range;

    use parking_lot::Mutex;

    use super::*;

    const MB: u64 = 1 << 20;

    /// A file that records which ranges need not be cached.
    #[derive(Default)]
    struct RecordingFile {
        uncached: Mutex<Vec<(u64, u64)>>,
    }

    impl File for RecordingFile {
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
            self.uncached.lock().push((range.start, range.end));
        }
    }

    /// A log whose segments are `RecordingFile`.
    struct Log {
        files: Vec<Arc<RecordingFile>>,
        page_cache: PageCache,
    }

    impl Log {
        fn new(segment: u64, offset: u64) -> Log {
            let files = (0..4).map(|_| Arc::new(RecordingFile::default())).collect();
            Log { files, page_cache: PageCache::new(Position { segment, offset }) }
        }

        fn durable(&mut self, segment: usize, offset: u64) {
            let file = Arc::clone(&self.files[segment]) as Arc<dyn File>;
            self.page_cache.extend(&file, Position { segment: segment as u64, offset });
        }

        fn taken(&self, segment: usize) -> Vec<(u64, u64)> {
            std::mem::take(&mut self.files[segment].uncached.lock())
        }
    }

    #[test]
    fn pages_far_before_the_end_are_released_once_in_aligned_ranges() {
        let mut log = Log::new(1, 0);
        for hundreds_of_kilobytes in 1..=350 {
            log.durable(1, hundreds_of_kilobytes * 100_003);
        }
        assert_eq!(log.taken(1), [(0, MB)]);
        log.durable(1, 36 * MB + 5);
        log.durable(1, 36 * MB + 5);
        assert_eq!(log.taken(1), [(MB, 4 * MB)]);
        log.durable(1, 30 * MB);
        assert_eq!(log.taken(1), [], "an fsync that was overtaken changes nothing");
    }

    #[test]
    fn the_end_of_a_segment_is_released_when_the_next_one_is_long_enough() {
        let mut log = Log::new(1, 0);
        log.durable(1, 64 * MB + 77);
        assert_eq!(log.taken(1), [(0, 32 * MB)]);
        log.durable(2, 10 * MB);
        assert_eq!((log.taken(1), log.taken(2)), (vec![(32 * MB, 42 * MB)], vec![]));
        log.durable(2, 34 * MB);
        assert_eq!((log.taken(1), log.taken(2)), (vec![(42 * MB, 64 * MB + 77)], vec![(0, 2 * MB)]));
    }

    #[test]
    fn a_deleted_segment_is_closed() {
        let mut log = Log::new(1, 0);
        log.durable(1, 20 * MB);
        log.durable(2, 20 * MB);
        assert_eq!(log.taken(1), [(0, 8 * MB)]);
        log.page_cache.remove_segment(1);
        assert_eq!(Arc::strong_count(&log.files[1]), 1);
        log.durable(2, 40 * MB);
        assert_eq!((log.taken(1), log.taken(2)), (vec![], vec![(0, 8 * MB)]));
    }

    #[test]
    fn pages_from_before_the_log_was_opened_are_left_alone() {
        let mut log = Log::new(1, 7 * MB + 9);
        log.durable(1, 41 * MB);
        assert_eq!(log.taken(1), [(7 * MB + 9, 9 * MB)]);
    }
}
