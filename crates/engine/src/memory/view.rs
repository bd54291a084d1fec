//! Snapshots and scans of the memory engine.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use super::tree::{Moment, Tree};
use crate::{Direction, EngineError, Pair, Scan, ScanRange, Snapshot, Space};

/// Pairs copied per lock acquisition, at first and at most: a scan never blocks writers for long, and a scan for one
/// row does not copy a hundred.
const FETCH_PAIRS_MIN: usize = 4;
const FETCH_PAIRS_MAX: usize = 256;

/// A moment of the tree that stays visible until this is dropped.
pub(super) struct MemorySnapshot {
    tree: Arc<RwLock<Tree>>,
    moment: Moment,
}

impl MemorySnapshot {
    pub(super) fn new(tree: Arc<RwLock<Tree>>) -> Self {
        let moment = tree.write().enter();
        MemorySnapshot { tree, moment }
    }

    pub(super) fn moment(&self) -> Moment {
        self.moment
    }
}

impl Drop for MemorySnapshot {
    fn drop(&mut self) {
        self.tree.write().leave(self.moment);
    }
}

impl Snapshot for MemorySnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(self.tree.read().at(self.moment, space, key))
    }

    fn scan(self: Arc<Self>, space: Space, range: ScanRange<'_>, direction: Direction) -> Box<dyn Scan> {
        Box::new(MemoryScan {
            start: range.0.map(Bytes::copy_from_slice),
            end: range.1.map(Bytes::copy_from_slice),
            snapshot: self,
            space,
            direction,
            fetched: VecDeque::new(),
            current: None,
            fetch_pairs: FETCH_PAIRS_MIN,
            finished: false,
        })
    }

    fn split_points(
        &self,
        space: Space,
        range: ScanRange<'_>,
        parts: usize,
    ) -> Result<Vec<Bytes>, EngineError> {
        let total_bytes = self.bytes_in(space, range)?;
        let tree = self.tree.read();
        let mut points: Vec<Bytes> = Vec::new();
        let mut before_bytes = 0;
        for (index, (key, value)) in tree.pairs(self.moment, space, range).into_iter().flatten().enumerate() {
            let wanted_bytes = (points.len() as u64 + 1) * total_bytes / parts.max(1) as u64;
            if points.len() + 1 >= parts {
                break;
            }
            if index > 0 && before_bytes >= wanted_bytes {
                points.push(key.clone());
            }
            before_bytes += (key.len() + value.len()) as u64;
        }
        Ok(points)
    }

    fn bytes_in(&self, space: Space, range: ScanRange<'_>) -> Result<u64, EngineError> {
        let tree = self.tree.read();
        let pairs = tree.pairs(self.moment, space, range).into_iter().flatten();
        Ok(pairs.map(|(key, value)| (key.len() + value.len()) as u64).sum())
    }
}

struct MemoryScan {
    snapshot: Arc<MemorySnapshot>,
    space: Space,
    // The range that is not fetched yet.
    start: Bound<Bytes>,
    end: Bound<Bytes>,
    direction: Direction,
    fetched: VecDeque<(Bytes, Bytes)>,
    current: Option<(Bytes, Bytes)>,
    fetch_pairs: usize,
    finished: bool,
}

impl MemoryScan {
    fn fetch(&mut self) {
        let range = (self.start.as_ref().map(|key| &key[..]), self.end.as_ref().map(|key| &key[..]));
        let tree = self.snapshot.tree.read();
        let pairs = tree.pairs(self.snapshot.moment, self.space, range).into_iter().flatten();
        let owned = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
        match self.direction {
            Direction::Ascending => self.fetched.extend(pairs.map(owned).take(self.fetch_pairs)),
            Direction::Descending => {
                self.fetched.extend(pairs.rev().map(owned).take(self.fetch_pairs));
            }
        }
        drop(tree);
        self.finished = self.fetched.len() < self.fetch_pairs;
        self.fetch_pairs = (self.fetch_pairs * 4).min(FETCH_PAIRS_MAX);
        if let Some((last, _)) = self.fetched.back() {
            match self.direction {
                Direction::Ascending => self.start = Bound::Excluded(last.clone()),
                Direction::Descending => self.end = Bound::Excluded(last.clone()),
            }
        }
    }
}

impl Scan for MemoryScan {
    fn next(&mut self) -> Result<Option<Pair<'_>>, EngineError> {
        if self.fetched.is_empty() && !self.finished {
            self.fetch();
        }
        self.current = self.fetched.pop_front();
        Ok(self.current.as_ref().map(|(key, value)| (&key[..], &value[..])))
    }

    fn restart(&mut self, range: ScanRange<'_>) {
        (self.start, self.end) = (range.0.map(Bytes::copy_from_slice), range.1.map(Bytes::copy_from_slice));
        self.fetched.clear();
        (self.fetch_pairs, self.finished) = (FETCH_PAIRS_MIN, false);
    }
}
