//! How much of the log stays in the page cache.
//!
//! Replicas that are a little behind are sent entries that are read back: the end of the log should be in memory. The rest
//! is read after a restart only, and the pages that it gives back are there for what is appended next:
//! `docs/decisions/0043-memory-reuse.md`.

use std::collections::VecDeque;
use std::sync::Arc;

use io::File;

use crate::lsn::Position;

/// So much of the end stays.
const KEPT_BYTES: u64 = 32 << 20;
/// So much is given back at once, at offsets that it divides: each time costs a system call, and a page that lies across an
/// end stays.
const STEP_BYTES: u64 = 1 << 20;

/// What was made durable since the log was opened and may be in the page cache, the oldest first.
pub(crate) struct Cached {
    stretches: VecDeque<Stretch>,
    /// Where the last one ends.
    end: Position,
}

/// Bytes of one segment.
struct Stretch {
    segment: u64,
    file: Arc<dyn File>,
    start: u64,
    end: u64,
}

impl Stretch {
    fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

impl Cached {
    /// Of a log that ends at `end`. What was read to open it stays where it is.
    pub(crate) fn new(end: Position) -> Cached {
        Cached { stretches: VecDeque::new(), end }
    }

    /// The log is durable up to `through`, which lies in `file`: what lies too far before that is given back.
    pub(crate) fn extend(&mut self, file: &Arc<dyn File>, through: Position) {
        if through <= self.end {
            return;
        }
        let Position { segment, offset } = through;
        match self.stretches.back_mut().filter(|last| last.segment == segment) {
            Some(last) => last.end = offset,
            None => {
                let start = if self.end.segment == segment { self.end.offset } else { 0 };
                self.stretches.push_back(Stretch { segment, file: Arc::clone(file), start, end: offset });
            }
        }
        self.end = through;
        self.give_back();
    }

    /// The segment was removed, and its pages with it. Whoever held it open would keep its space on the disk.
    pub(crate) fn forget(&mut self, segment: u64) {
        self.stretches.retain(|stretch| stretch.segment != segment);
    }

    fn give_back(&mut self) {
        let mut surplus = self.stretches.iter().map(Stretch::bytes).sum::<u64>().saturating_sub(KEPT_BYTES);
        while let Some(oldest) = self.stretches.front_mut() {
            // One that grows no more goes to its end.
            let is_last = oldest.segment == self.end.segment;
            let whole = surplus >= oldest.bytes() && !is_last;
            let end = if whole { oldest.end } else { (oldest.start + surplus) / STEP_BYTES * STEP_BYTES };
            if end <= oldest.start {
                return;
            }
            oldest.file.uncache(oldest.start..end);
            surplus -= end - oldest.start;
            oldest.start = end;
            if !whole {
                return;
            }
            self.stretches.pop_front();
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

    /// A file that remembers what need not be cached.
    #[derive(Default)]
    struct Noted {
        uncached: Mutex<Vec<(u64, u64)>>,
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
            self.uncached.lock().push((range.start, range.end));
        }
    }

    /// A log whose segments are `Noted`.
    struct Log {
        files: Vec<Arc<Noted>>,
        cached: Cached,
    }

    impl Log {
        fn new(segment: u64, offset: u64) -> Log {
            let files = (0..4).map(|_| Arc::new(Noted::default())).collect();
            Log { files, cached: Cached::new(Position { segment, offset }) }
        }

        fn durable(&mut self, segment: usize, offset: u64) {
            let file = Arc::clone(&self.files[segment]) as Arc<dyn File>;
            self.cached.extend(&file, Position { segment: segment as u64, offset });
        }

        fn taken(&self, segment: usize) -> Vec<(u64, u64)> {
            std::mem::take(&mut self.files[segment].uncached.lock())
        }
    }

    #[test]
    fn what_lies_far_enough_before_the_end_is_given_back_once_in_whole_steps() {
        let mut log = Log::new(1, 0);
        for hundreds_of_kilobytes in 1..=350 {
            log.durable(1, hundreds_of_kilobytes * 100_003);
        }
        assert_eq!(log.taken(1), [(0, MB)]);
        log.durable(1, 36 * MB + 5);
        log.durable(1, 36 * MB + 5);
        assert_eq!(log.taken(1), [(MB, 4 * MB)]);
        log.durable(1, 30 * MB);
        assert_eq!(log.taken(1), [], "an fsync that was overtaken says nothing new");
    }

    #[test]
    fn the_end_of_a_segment_goes_when_the_next_one_is_long_enough() {
        let mut log = Log::new(1, 0);
        log.durable(1, 64 * MB + 77);
        assert_eq!(log.taken(1), [(0, 32 * MB)]);
        log.durable(2, 10 * MB);
        assert_eq!((log.taken(1), log.taken(2)), (vec![(32 * MB, 42 * MB)], vec![]));
        log.durable(2, 34 * MB);
        assert_eq!((log.taken(1), log.taken(2)), (vec![(42 * MB, 64 * MB + 77)], vec![(0, 2 * MB)]));
    }

    #[test]
    fn a_segment_that_was_removed_is_let_go() {
        let mut log = Log::new(1, 0);
        log.durable(1, 20 * MB);
        log.durable(2, 20 * MB);
        assert_eq!(log.taken(1), [(0, 8 * MB)]);
        log.cached.forget(1);
        assert_eq!(Arc::strong_count(&log.files[1]), 1);
        log.durable(2, 40 * MB);
        assert_eq!((log.taken(1), log.taken(2)), (vec![], vec![(0, 8 * MB)]));
    }

    #[test]
    fn of_a_log_that_was_there_before_only_what_was_added_is_given_back() {
        let mut log = Log::new(1, 7 * MB + 9);
        log.durable(1, 41 * MB);
        assert_eq!(log.taken(1), [(7 * MB + 9, 9 * MB)]);
    }
}
