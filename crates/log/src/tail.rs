//! The newest entries of a group in memory: the ones not applied yet, and some applied ones for followers that are a
//! little behind.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::contract::Done;
use crate::record::EntryKind;

/// An entry in memory, with the callback of its proposer.
pub(crate) struct Held {
    pub term: u64,
    pub kind: EntryKind,
    pub payload: Bytes,
    pub done: Option<Done>,
}

/// Entries without a gap, up to the last of the log.
#[derive(Default)]
pub(crate) struct Tail {
    /// The position of the first entry held, or of the next entry if none is.
    first: u64,
    held: VecDeque<Held>,
    bytes: usize,
}

impl Tail {
    /// The tail of a log that ends at `last`, without entries.
    pub fn after(last: u64) -> Tail {
        Tail { first: last + 1, held: VecDeque::new(), bytes: 0 }
    }

    /// The last position of the log.
    pub fn last(&self) -> u64 {
        self.first + self.held.len() as u64 - 1
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the next entry.
    pub fn push(&mut self, held: Held) {
        self.bytes += held.payload.len();
        self.held.push_back(held);
    }

    /// The entry at `index`, if it is held.
    pub fn get_mut(&mut self, index: u64) -> Option<&mut Held> {
        let nth = index.checked_sub(self.first)?;
        self.held.get_mut(usize::try_from(nth).ok()?)
    }

    /// The entry at `index`, if it is held.
    pub fn get(&self, index: u64) -> Option<&Held> {
        let nth = index.checked_sub(self.first)?;
        self.held.get(usize::try_from(nth).ok()?)
    }

    /// Removes the entry at `index` and all after it; returns the ones that were held, with their positions.
    pub fn cut(&mut self, index: u64) -> Vec<(u64, Held)> {
        let kept = index.saturating_sub(self.first) as usize;
        if kept >= self.held.len() && index >= self.first {
            return Vec::new();
        }
        let cut: Vec<Held> = self.held.split_off(kept.min(self.held.len())).into();
        let from = self.first + kept as u64;
        if index < self.first {
            self.first = index;
        }
        self.bytes -= cut.iter().map(|held| held.payload.len()).sum::<usize>();
        (from..).zip(cut).collect()
    }

    /// Drops entries at or before `applied`, until at most `bytes_max` bytes are held.
    pub fn shrink(&mut self, applied: u64, bytes_max: usize) {
        while self.first <= applied && self.bytes > bytes_max {
            let Some(held) = self.held.pop_front() else { return };
            self.bytes -= held.payload.len();
            self.first += 1;
        }
        if bytes_max == 0 {
            // Entries without payload have no bytes; they are dropped too.
            while self.first <= applied && self.held.pop_front().is_some() {
                self.first += 1;
            }
        }
    }

    /// Removes and returns the callbacks of all proposers, oldest first.
    pub fn take_done(&mut self) -> impl Iterator<Item = Done> {
        self.held.iter_mut().filter_map(|held| held.done.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail() -> Tail {
        let mut tail = Tail::after(10);
        for term in 1..=5 {
            let (kind, payload) = (EntryKind::Election, Bytes::from_static(b"four"));
            tail.push(Held { term, kind, payload, done: None });
        }
        tail
    }

    #[test]
    fn entries_are_found_by_position() {
        let tail = tail();
        assert_eq!((tail.last(), tail.bytes()), (15, 20));
        assert!(tail.get(10).is_none() && tail.get(16).is_none());
        assert_eq!(tail.get(13).map(|held| held.term), Some(3));
    }

    #[test]
    fn a_cut_takes_the_end_and_may_reach_before_the_first() {
        let mut cut = tail();
        assert_eq!(cut.cut(14).iter().map(|(index, _)| *index).collect::<Vec<_>>(), [14, 15]);
        assert_eq!((cut.last(), cut.bytes()), (13, 12));
        assert!(cut.cut(14).is_empty());
        assert_eq!(cut.cut(8).len(), 3);
        assert_eq!((cut.last(), cut.bytes()), (7, 0));
    }

    #[test]
    fn only_applied_entries_are_dropped() {
        let mut tail = tail();
        tail.shrink(12, 4);
        assert_eq!((tail.last(), tail.bytes()), (15, 12));
        assert!(tail.get(12).is_none() && tail.get(13).is_some());
        tail.shrink(15, 0);
        assert_eq!((tail.last(), tail.bytes()), (15, 0));
    }
}
