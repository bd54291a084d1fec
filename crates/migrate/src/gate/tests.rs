//! Orders of readers, changes and lost feeds.

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
