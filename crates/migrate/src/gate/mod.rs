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
mod tests;
