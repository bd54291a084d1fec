//! Which ranges of a table's keys are done, are being worked on, or wait, without a connection.
//!
//! The segments cover all keys, in their order. A reader takes one, works on it from its start in chunks, and reports the end of each
//! chunk. The part up to there is done.

use serde::{Deserialize, Serialize};

use crate::key::{Bound, Key, KeyRange};

/// The kind of work on a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Its rows are written to the target.
    Copy,
    /// Both sides are compared, and the target is made equal.
    Compare,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    Waiting(Work),
    /// A reader has it. `stale`: changes were lost since its present chunk began.
    Taken {
        work: Work,
        stale: bool,
    },
    Done,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Segment {
    /// It begins where the one before it ends.
    end: Bound,
    progress: Progress,
}

/// A segment for a reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    pub range: KeyRange,
    pub work: Work,
}

/// The progress of the segment with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The row will be read later.
    Ahead,
    /// A reader works on the segment.
    Taken,
    Done,
}

/// The segments of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    segments: Vec<Segment>,
}

/// A segment as it is stored: its work (none when it is done), and the JSON of its last key (none at the end of the
/// table).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredSegment {
    pub work: Option<Work>,
    pub end: Option<String>,
}

impl Coverage {
    /// All keys need `work`, in segments that end with `ends` (ascending).
    pub fn new(work: Work, ends: &[Key]) -> Coverage {
        let ends = ends.iter().cloned().map(Bound::After).chain([Bound::Max]);
        let segments = ends.map(|end| Segment { end, progress: Progress::Waiting(work) }).collect();
        Coverage { segments }
    }

    /// The coverage that was stored. `None` if it does not cover all keys in order.
    pub fn restored(stored: &[StoredSegment]) -> Option<Coverage> {
        let segment = |stored: &StoredSegment| {
            let end = match &stored.end {
                None => Bound::Max,
                Some(text) => Bound::After(Key::parse(text).ok()?),
            };
            let progress = stored.work.map_or(Progress::Done, Progress::Waiting);
            Some(Segment { end, progress })
        };
        let segments: Vec<Segment> = stored.iter().map(segment).collect::<Option<_>>()?;
        let is_whole = segments.last()?.end == Bound::Max;
        let is_ordered = segments.windows(2).all(|pair| pair[0].end < pair[1].end);
        (is_whole && is_ordered).then_some(Coverage { segments })
    }

    /// The form to store. Segments of readers are not done.
    pub fn stored(&self) -> Vec<StoredSegment> {
        let mut stored: Vec<StoredSegment> = Vec::new();
        for segment in &self.segments {
            let work = match segment.progress {
                Progress::Waiting(work) => Some(work),
                Progress::Taken { stale: true, .. } => Some(Work::Compare),
                Progress::Taken { work, .. } => Some(work),
                Progress::Done => None,
            };
            let end = match &segment.end {
                Bound::After(key) => Some(key.to_json()),
                _ => None,
            };
            match stored.last_mut() {
                Some(last) if last.work == work => last.end = end,
                _ => stored.push(StoredSegment { work, end }),
            }
        }
        stored
    }

    /// Gives the first waiting segment to a reader.
    pub fn take(&mut self) -> Option<Task> {
        let found = self.segments.iter().position(|s| matches!(s.progress, Progress::Waiting(_)))?;
        let Progress::Waiting(work) = self.segments[found].progress else { return None };
        self.segments[found].progress = Progress::Taken { work, stale: false };
        Some(Task { range: self.range(found), work })
    }

    /// A reader has finished the chunk of the segment at `start` up to `end`. Returns the rest of the segment, if any.
    ///
    /// If changes were lost meanwhile, the chunk is to be compared.
    pub fn advance(&mut self, start: &Bound, end: &Bound) -> Option<Task> {
        let found = self.taken_at(start)?;
        let Progress::Taken { work, stale } = self.segments[found].progress else { return None };
        let progress = if stale { Progress::Waiting(Work::Compare) } else { Progress::Done };
        let rest = (*end < self.segments[found].end).then(|| Task {
            range: KeyRange { start: end.clone(), end: self.segments[found].end.clone() },
            work,
        });
        match &rest {
            None => self.segments[found].progress = progress,
            Some(_) => {
                self.segments[found].progress = Progress::Taken { work, stale: false };
                self.segments.insert(found, Segment { end: end.clone(), progress });
            }
        }
        self.join();
        rest
    }

    /// The reader of the segment at `start` gives it back.
    pub fn release(&mut self, start: &Bound) {
        if let Some(found) = self.taken_at(start)
            && let Progress::Taken { work, stale } = self.segments[found].progress
        {
            let work = if stale { Work::Compare } else { work };
            self.segments[found].progress = Progress::Waiting(work);
        }
    }

    /// The range of the segment at `start`, if a reader has it.
    pub fn taken(&self, start: &Bound) -> Option<KeyRange> {
        self.taken_at(start).map(|found| self.range(found))
    }

    /// Divides the segment at `start`, which a reader has, at `key`: the part after it waits. Returns the reader's part.
    ///
    /// Only the reader may do that, between two chunks: rows that it has read beyond `key` and not written yet could overwrite newer
    /// ones that another reader has written.
    pub fn divide(&mut self, start: &Bound, key: Key) -> Option<Task> {
        let end = Bound::After(key);
        let found = self.taken_at(start)?;
        let Progress::Taken { work, stale } = self.segments[found].progress else { return None };
        if end > *start && end < self.segments[found].end {
            self.segments[found].progress = Progress::Waiting(work);
            self.segments.insert(found, Segment { end, progress: Progress::Taken { work, stale } });
        }
        Some(Task { range: self.range(found), work })
    }

    /// Notes that changes were lost: done segments are to be compared, and so are the chunks of readers.
    pub fn lose(&mut self) {
        for segment in &mut self.segments {
            match &mut segment.progress {
                Progress::Done => segment.progress = Progress::Waiting(Work::Compare),
                Progress::Taken { stale, .. } => *stale = true,
                Progress::Waiting(_) => {}
            }
        }
        self.join();
    }

    pub fn place(&self, key: &Key) -> Place {
        let found = self.segments.partition_point(|segment| !segment.end.is_after(key));
        match self.segments.get(found).map(|segment| segment.progress) {
            Some(Progress::Taken { .. }) => Place::Taken,
            Some(Progress::Done) => Place::Done,
            _ => Place::Ahead,
        }
    }

    pub fn is_done(&self) -> bool {
        self.segments.iter().all(|segment| segment.progress == Progress::Done)
    }

    /// Whether a segment waits for a reader.
    pub fn is_waiting(&self) -> bool {
        self.segments.iter().any(|segment| matches!(segment.progress, Progress::Waiting(_)))
    }

    fn range(&self, i: usize) -> KeyRange {
        KeyRange { start: self.start(i), end: self.segments[i].end.clone() }
    }

    fn start(&self, i: usize) -> Bound {
        i.checked_sub(1).map_or(Bound::Min, |before| self.segments[before].end.clone())
    }

    fn taken_at(&self, start: &Bound) -> Option<usize> {
        let found = self.segments.partition_point(|segment| segment.end <= *start);
        let is_taken = |segment: &Segment| matches!(segment.progress, Progress::Taken { .. });
        self.segments.get(found).filter(|segment| is_taken(segment)).map(|_| found)
    }

    /// Makes one of neighbours that are done, and of neighbours to be compared.
    fn join(&mut self) {
        const COMPARED: Progress = Progress::Waiting(Work::Compare);
        self.segments.dedup_by(|next, before| {
            let same = next.progress == before.progress
                && (before.progress == Progress::Done || before.progress == COMPARED);
            if same {
                before.end = next.end.clone();
            }
            same
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: i32) -> Key {
        Key::parse(&n.to_string()).unwrap()
    }

    fn after(n: i32) -> Bound {
        Bound::After(key(n))
    }

    fn shown(coverage: &Coverage) -> String {
        let part = |stored: &StoredSegment| {
            let work = match stored.work {
                None => "done",
                Some(Work::Copy) => "copy",
                Some(Work::Compare) => "compare",
            };
            format!("{work} to {}", stored.end.as_deref().unwrap_or("end"))
        };
        coverage.stored().iter().map(part).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_reader_advances_through_its_segment() {
        let mut coverage = Coverage::new(Work::Copy, &[key(10)]);
        let first = coverage.take().unwrap();
        assert_eq!(first.range, KeyRange { start: Bound::Min, end: after(10) });
        let rest = coverage.advance(&Bound::Min, &after(4)).unwrap();
        assert_eq!(rest.range, KeyRange { start: after(4), end: after(10) });
        assert_eq!(shown(&coverage), "done to 4, copy to end");
        assert_eq!(
            [3, 4, 5, 11].map(|n| coverage.place(&key(n))),
            [Place::Done, Place::Done, Place::Taken, Place::Ahead]
        );
        assert_eq!(coverage.advance(&after(4), &after(10)), None);
        assert_eq!(coverage.take().unwrap().range.start, after(10));
        assert_eq!(coverage.advance(&after(10), &Bound::Max), None);
        assert!(coverage.is_done() && shown(&coverage) == "done to end");
    }

    #[test]
    fn what_is_stored_comes_back_without_readers() {
        let mut coverage = Coverage::new(Work::Copy, &[key(10), key(20)]);
        coverage.take();
        coverage.advance(&Bound::Min, &after(4));
        let back = Coverage::restored(&coverage.stored()).unwrap();
        assert_eq!(shown(&back), "done to 4, copy to end");
        assert_eq!(back.place(&key(5)), Place::Ahead);
        assert_eq!(Coverage::restored(&[]), None);
        let backwards =
            [Some("5"), Some("1"), None].map(|end| StoredSegment { work: None, end: end.map(str::to_owned) });
        assert_eq!(Coverage::restored(&backwards), None);
        assert_eq!(Coverage::restored(&backwards[..2]), None);
    }

    #[test]
    fn a_loss_makes_everything_that_was_read_be_compared() {
        let mut coverage = Coverage::new(Work::Copy, &[key(10)]);
        coverage.take();
        coverage.advance(&Bound::Min, &after(4));
        coverage.lose();
        // The reader's chunk began before the loss; the next one does not.
        coverage.advance(&after(4), &after(6));
        coverage.advance(&after(6), &after(8));
        assert_eq!(shown(&coverage), "compare to 6, done to 8, copy to end");
        coverage.lose();
        coverage.release(&after(8));
        assert_eq!(shown(&coverage), "compare to 10, copy to end");
        assert_eq!(coverage.take().unwrap().work, Work::Compare);
    }

    #[test]
    fn a_reader_divides_its_segment() {
        let mut coverage = Coverage::new(Work::Copy, &[]);
        coverage.take();
        let kept = coverage.divide(&Bound::Min, key(50)).unwrap();
        assert_eq!(kept.range, KeyRange { start: Bound::Min, end: after(50) });
        assert_eq!(coverage.taken(&Bound::Min), Some(kept.range));
        let second = coverage.take().unwrap();
        assert_eq!(second.range, KeyRange { start: after(50), end: Bound::Max });
        // A key outside divides nothing.
        assert_eq!(coverage.divide(&after(50), key(40)), Some(second));
        assert_eq!(coverage.advance(&Bound::Min, &after(50)), None);
        assert_eq!([50, 51].map(|n| coverage.place(&key(n))), [Place::Done, Place::Taken]);
    }

    #[test]
    fn random_steps_cover_every_key_once() {
        for seed in 0..200u64 {
            let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut next = |n: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % n
            };
            let mut coverage = Coverage::new(Work::Copy, &[key(30), key(60)]);
            let mut held: Vec<Task> = Vec::new();
            let mut read = [0u32; 100];
            let mut steps = 0;
            while !coverage.is_done() {
                steps += 1;
                assert!(steps < 10_000, "seed {seed}: no end");
                if held.is_empty() || next(3) == 0 {
                    held.extend(coverage.take());
                }
                if held.is_empty() {
                    continue;
                }
                let task = held.swap_remove(next(held.len() as u64) as usize);
                let keys: Vec<i32> = (0..100).filter(|n| task.range.contains(&key(*n))).collect();
                let chunk = &keys[..keys.len().min(1 + next(20) as usize)];
                let end = match chunk.len() == keys.len() {
                    true => task.range.end.clone(),
                    false => after(chunk[chunk.len() - 1]),
                };
                chunk.iter().for_each(|n| read[*n as usize] += 1);
                let mut rest = coverage.advance(&task.range.start, &end);
                if next(4) == 0
                    && let Some(task) = &rest
                {
                    rest = coverage.divide(&task.range.start.clone(), key(next(100) as i32));
                }
                held.extend(rest);
            }
            assert!(read.iter().all(|times| *times == 1), "seed {seed}: {read:?}");
        }
    }
}
