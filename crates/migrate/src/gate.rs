//! Decides when a change of a feed is written to the target, beside the readers that copy the same rows. Pure; one per table.
//!
//! A row that will be read later needs no change: the reader sees it. A row in a segment that a reader works on waits until the
//! chunk is written, so that the chunk cannot overwrite a newer row. All others are written in the order in which they came. When
//! changes were lost, everything that was read before is compared (`Coverage::lose`).

use std::collections::BTreeMap;

use crate::coverage::{Coverage, Place, Task};
use crate::key::{Bound, Key};

/// A row as it is after a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub key: Key,
    /// Its JSON; `None` when it was deleted.
    pub row: Option<String>,
}

/// Whether the changes of a table come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeedState {
    /// Nothing is followed.
    Unused,
    /// Changes are not seen at present: nothing may be read.
    Closed,
    Open,
}

/// Changes to write at once: each key once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    pub changes: Vec<Change>,
    /// How many received changes are settled when these are written.
    pub settles: u64,
}

/// Counts of a table's changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Changes that came on the feed.
    pub received: u64,
    /// Changes that are in the target, or in rows still to be read.
    pub settled: u64,
    /// How often the feed ended or skipped changes.
    pub losses: u64,
}

/// The coverage of a table, and its changes that wait.
#[derive(Debug)]
pub struct Gate {
    coverage: Coverage,
    feed: FeedState,
    /// The last change of each row in a segment that a reader has, with the number of changes it stands for.
    deferred: BTreeMap<Key, (Change, u64)>,
    /// Deferred changes whose chunks are written. They are older than all later ones.
    released: Vec<(Change, u64)>,
    /// A batch is on its way to the target.
    is_writing: bool,
    /// Rows that only the target has stay: a deletion is written also where a reader comes later.
    keeps_extra: bool,
    /// The source has dropped the table.
    is_dropped: bool,
    counts: Counts,
}

impl Gate {
    /// `keeps_extra`: the target's table had rows before.
    pub fn new(coverage: Coverage, feed: FeedState, keeps_extra: bool) -> Gate {
        Gate {
            coverage,
            feed,
            deferred: BTreeMap::new(),
            released: Vec::new(),
            is_writing: false,
            keeps_extra,
            is_dropped: false,
            counts: Counts::default(),
        }
    }

    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Changes that came and are not in the target yet.
    pub fn pending(&self) -> u64 {
        self.counts.received - self.counts.settled
    }

    /// Whether no range is left to copy or to compare.
    pub fn is_complete(&self) -> bool {
        self.is_dropped || self.coverage.is_done()
    }

    pub fn is_dropped(&self) -> bool {
        self.is_dropped
    }

    /// Notes that the source has dropped the table: nothing is read or written any more, and the target keeps what it has. Returns
    /// whether that is new.
    pub fn drop_at_source(&mut self) -> bool {
        self.feed = FeedState::Closed;
        self.deferred.clear();
        self.released.clear();
        self.counts.settled = self.counts.received;
        !std::mem::replace(&mut self.is_dropped, true)
    }

    /// Whether both sides are equal but for changes that have not come yet.
    pub fn is_level(&self) -> bool {
        self.feed != FeedState::Closed && self.coverage.is_done() && self.pending() == 0
    }

    /// Gives a segment to a reader. The reader begins when no batch is being written ([`Gate::is_writing`]).
    pub fn take(&mut self) -> Option<Task> {
        match self.feed {
            FeedState::Closed => None,
            _ => self.coverage.take(),
        }
    }

    /// Whether a batch, made before the reader took its segment, may still reach the target.
    pub fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// A reader has written its chunk, from the start of its segment to `end`. Returns its next task: the rest of its segment, unless the
    /// feed is closed. `divide` returns a key from which another reader takes over.
    pub fn finish_chunk(
        &mut self,
        start: &Bound,
        end: &Bound,
        divide: impl FnOnce(&Task) -> Option<Key>,
    ) -> Option<Task> {
        let range = self.coverage.taken(start)?;
        let mut rest = self.coverage.advance(start, end);
        self.let_go(|key| range.contains(key));
        if let Some(task) = &rest {
            let start = task.range.start.clone();
            if self.feed == FeedState::Closed {
                self.coverage.release(&start);
                return None;
            }
            if let Some(key) = divide(task) {
                rest = self.coverage.divide(&start, key);
            }
        }
        rest
    }

    /// A reader gives its segment back.
    pub fn release(&mut self, start: &Bound) {
        if let Some(range) = self.coverage.taken(start) {
            self.coverage.release(start);
            self.let_go(|key| range.contains(key));
        }
    }

    pub fn is_feed_open(&self) -> bool {
        self.feed == FeedState::Open
    }

    /// Notes that the feed is open. Later reads and the feed together miss no change.
    pub fn feed_opened(&mut self) {
        self.feed = FeedState::Open;
    }

    /// Notes the end of the feed: done segments are to be compared, and no reader begins.
    pub fn feed_ended(&mut self) {
        if self.feed == FeedState::Open {
            self.counts.losses += 1;
            self.coverage.lose();
        }
        self.feed = FeedState::Closed;
    }

    /// The feed goes on, but the source has dropped changes.
    pub fn feed_skipped(&mut self) {
        self.counts.losses += 1;
        self.coverage.lose();
    }

    /// Notes that `n` changes came; [`Gate::batch`] gets them later.
    pub fn received(&mut self, n: u64) {
        self.counts.received += n;
    }

    /// The next batch: received changes in their order, after released ones. The caller writes it, then calls [`Gate::written`].
    pub fn batch(&mut self, changes: Vec<Change>) -> Batch {
        if self.is_dropped {
            self.counts.settled = self.counts.received;
            return Batch::default();
        }
        let mut batch: BTreeMap<Key, Change> = BTreeMap::new();
        let mut settles = 0;
        // A segment may have been lost and taken again since their release, so their place is looked up anew.
        let released = std::mem::take(&mut self.released);
        let incoming = changes.into_iter().map(|change| (change, 1));
        for (change, times) in released.into_iter().chain(incoming) {
            match self.destination(&change) {
                Destination::Wait => self.defer(change, times),
                Destination::Drop => self.counts.settled += times,
                Destination::Write => {
                    settles += times;
                    batch.insert(change.key.clone(), change);
                }
            }
        }
        self.is_writing = !batch.is_empty();
        Batch { changes: batch.into_values().collect(), settles }
    }

    /// The last batch is in the target.
    pub fn written(&mut self, batch: &Batch) {
        self.is_writing = false;
        self.counts.settled = (self.counts.settled + batch.settles).min(self.counts.received);
    }

    /// Whether there is something for [`Gate::batch`] without new changes.
    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Deferred changes of these keys are written now where the rows are done, and dropped where they will be read.
    fn let_go(&mut self, concerns: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self.deferred.keys().filter(|key| concerns(key)).cloned().collect();
        for key in keys {
            let Some((change, times)) = self.deferred.remove(&key) else { continue };
            match self.destination(&change) {
                Destination::Write => self.released.push((change, times)),
                _ => self.counts.settled += times,
            }
        }
    }

    fn destination(&self, change: &Change) -> Destination {
        match self.coverage.place(&change.key) {
            Place::Done => Destination::Write,
            Place::Taken => Destination::Wait,
            Place::Ahead if self.keeps_extra && change.row.is_none() => Destination::Write,
            Place::Ahead => Destination::Drop,
        }
    }

    fn defer(&mut self, change: Change, times: u64) {
        let before = self.deferred.remove(&change.key).map_or(0, |(_, times)| times);
        self.deferred.insert(change.key.clone(), (change, before + times));
    }
}

enum Destination {
    Write,
    Wait,
    Drop,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::coverage::Work;

    fn key(n: u64) -> Key {
        Key::parse(&n.to_string()).unwrap()
    }

    fn put(n: u64, row: u64) -> Change {
        Change { key: key(n), row: Some(row.to_string()) }
    }

    fn gate() -> Gate {
        let mut gate = Gate::new(Coverage::new(Work::Copy, &[]), FeedState::Closed, false);
        assert_eq!(gate.take(), None);
        gate.feed_opened();
        gate
    }

    fn whole(_: &Task) -> Option<Key> {
        None
    }

    #[test]
    fn nothing_is_left_of_a_table_that_the_source_has_dropped() {
        let mut gate = gate();
        gate.take().unwrap();
        gate.finish_chunk(&Bound::Min, &Bound::After(key(5)), whole).unwrap();
        gate.received(3);
        let on_its_way = gate.batch(vec![put(1, 1), put(9, 2)]);
        assert!(gate.drop_at_source() && !gate.drop_at_source());
        gate.written(&on_its_way);
        assert_eq!(gate.batch(vec![put(2, 3)]), Batch::default());
        assert!(gate.is_complete() && gate.is_dropped() && gate.pending() == 0);
        assert_eq!(gate.finish_chunk(&Bound::After(key(5)), &Bound::After(key(7)), whole), None);
        assert_eq!((gate.take(), gate.counts().losses), (None, 0));
    }

    #[test]
    fn a_change_waits_for_the_chunk_with_its_row() {
        let mut gate = gate();
        gate.take().unwrap();
        gate.received(3);
        assert_eq!(gate.batch(vec![put(1, 1), put(1, 2), put(9, 3)]), Batch::default());
        assert_eq!(gate.pending(), 3);
        gate.finish_chunk(&Bound::Min, &Bound::After(key(5)), whole).unwrap();
        // The row 9 will be read.
        assert!(gate.has_released() && gate.pending() == 2);
        gate.received(1);
        let batch = gate.batch(vec![put(2, 4)]);
        assert_eq!(batch, Batch { changes: vec![put(1, 2), put(2, 4)], settles: 3 });
        assert!(gate.is_writing());
        gate.written(&batch);
        assert!(!gate.is_writing() && gate.pending() == 0 && !gate.is_level());
        gate.finish_chunk(&Bound::After(key(5)), &Bound::Max, whole);
        assert!(gate.is_level());
    }

    #[test]
    fn nothing_is_read_while_the_feed_is_closed() {
        let mut gate = gate();
        gate.take().unwrap();
        gate.feed_ended();
        assert_eq!(gate.finish_chunk(&Bound::Min, &Bound::After(key(5)), whole), None);
        assert_eq!(gate.take(), None);
        gate.feed_opened();
        let first = gate.take().unwrap();
        assert_eq!((first.work, first.range.end), (Work::Compare, Bound::After(key(5))));
        assert_eq!(gate.take().unwrap().work, Work::Copy);
        assert_eq!(gate.counts().losses, 1);
    }

    #[test]
    fn deletions_reach_rows_that_stay() {
        let gone = Change { key: key(7), row: None };
        for keeps_extra in [false, true] {
            let mut gate = Gate::new(Coverage::new(Work::Copy, &[]), FeedState::Open, keeps_extra);
            gate.received(1);
            let batch = gate.batch(vec![gone.clone()]);
            assert_eq!(batch.changes.len(), usize::from(keeps_extra));
            gate.written(&batch);
            assert_eq!(gate.pending(), 0);
        }
    }

    /// A source, a target, readers and a feed, stepped at random: whatever the order, losses and batches, both are equal once the
    /// gate is level.
    #[test]
    fn both_sides_become_equal() {
        for seed in 0..400 {
            let mut world = World::new(seed);
            for _ in 0..400 {
                world.step(true);
            }
            let mut steps = 0;
            while !(world.gate.is_level() && world.feed.is_empty() && world.batch.is_none()) {
                world.step(false);
                steps += 1;
                assert!(steps < 100_000, "seed {seed}: not level: {:?}", world.gate);
            }
            assert_eq!(world.source, world.target, "seed {seed}");
        }
    }

    const KEYS: u64 = 40;

    struct Chunk {
        task: Task,
        end: Bound,
        rows: Vec<(u64, u64)>,
    }

    struct World {
        random: u64,
        gate: Gate,
        source: BTreeMap<u64, u64>,
        target: BTreeMap<u64, u64>,
        feed: Vec<Change>,
        tasks: Vec<Task>,
        chunks: Vec<Chunk>,
        batch: Option<Batch>,
        version: u64,
    }

    impl World {
        fn new(seed: u64) -> World {
            World {
                random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
                gate: Gate::new(Coverage::new(Work::Copy, &[key(20)]), FeedState::Closed, false),
                source: (0..KEYS).filter(|n| n % 3 != 0).map(|n| (n, n)).collect(),
                target: BTreeMap::new(),
                feed: Vec::new(),
                tasks: Vec::new(),
                chunks: Vec::new(),
                batch: None,
                version: 1000,
            }
        }

        fn next(&mut self, n: u64) -> u64 {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random % n
        }

        fn step(&mut self, writes: bool) {
            match self.next(8) {
                0 if writes => self.write(),
                1 if writes && self.next(10) == 0 => {
                    self.feed.clear();
                    self.lose();
                }
                1 => self.gate.feed_opened(),
                2 => self.tasks.extend(self.gate.take()),
                3 => self.read(),
                4 => self.write_chunk(),
                5 | 6 => self.make_batch(),
                _ => self.write_batch(),
            }
        }

        fn write(&mut self) {
            let (n, version) = (self.next(KEYS), self.version);
            self.version += 1;
            let row = (self.next(4) > 0).then_some(version);
            match row {
                Some(row) => drop(self.source.insert(n, row)),
                None => drop(self.source.remove(&n)),
            }
            if self.gate.feed == FeedState::Open {
                self.gate.received(1);
                self.feed.push(Change { key: key(n), row: row.map(|row| row.to_string()) });
            }
        }

        fn lose(&mut self) {
            // Changes that are dropped with the feed are settled by comparing.
            let waiting = self.gate.deferred.values().map(|(_, n)| n).sum::<u64>()
                + self.gate.released.iter().map(|(_, n)| n).sum::<u64>()
                + self.batch.as_ref().map_or(0, |batch| batch.settles);
            self.gate.counts.settled = self.gate.counts.received - waiting;
            match self.next(2) {
                0 => self.gate.feed_ended(),
                _ => self.gate.feed_skipped(),
            }
        }

        fn read(&mut self) {
            if self.tasks.is_empty() || self.gate.is_writing() {
                return;
            }
            let len = self.tasks.len() as u64;
            let place = self.next(len) as usize;
            let task = self.tasks.swap_remove(place);
            let all: Vec<(u64, u64)> = self
                .source
                .iter()
                .filter(|(n, _)| task.range.contains(&key(**n)))
                .map(|(n, row)| (*n, *row))
                .collect();
            let count = (1 + self.next(8) as usize).min(all.len());
            let end = match count == all.len() {
                true => task.range.end.clone(),
                false => Bound::After(key(all[count - 1].0)),
            };
            self.chunks.push(Chunk { task, end, rows: all[..count].to_vec() });
        }

        fn write_chunk(&mut self) {
            if self.chunks.is_empty() {
                return;
            }
            let len = self.chunks.len() as u64;
            let place = self.next(len) as usize;
            let chunk = self.chunks.swap_remove(place);
            let range = chunk.task.range.until(chunk.end.clone());
            if chunk.task.work == Work::Compare {
                self.target.retain(|n, _| !range.contains(&key(*n)));
            }
            self.target.extend(chunk.rows);
            let at = self.next(KEYS);
            let rest = self.gate.finish_chunk(&range.start, &range.end, |_| Some(key(at)));
            self.tasks.extend(rest);
        }

        fn make_batch(&mut self) {
            if self.batch.is_none() {
                let count = self.next(1 + self.feed.len() as u64) as usize;
                let changes = self.feed.drain(..count).collect();
                self.batch = Some(self.gate.batch(changes));
            }
        }

        fn write_batch(&mut self) {
            let Some(batch) = self.batch.take() else { return };
            for change in &batch.changes {
                let n: u64 = change.key.to_json().parse().unwrap();
                match &change.row {
                    Some(row) => drop(self.target.insert(n, row.parse().unwrap())),
                    None => drop(self.target.remove(&n)),
                }
            }
            self.gate.written(&batch);
        }
    }
}
