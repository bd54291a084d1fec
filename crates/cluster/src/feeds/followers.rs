//! The followers of one stream, found by the changed row.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use datum::{KeyBound, KeyRange, PrimaryKey};
use log::GroupId;
use shard::{ChangedRow, HistoryEntry, HistoryEvent, HistoryPosition};

use super::by_value::ByValue;
use super::interest::{Interest, RowValues, ValuesId, WantedValues};
use super::position::FeedPosition;
use super::range_tree::{Edge, RangeTree, Slot};
use super::subscription::{FeedEvent, Subscription};

/// One of those that follow a stream.
#[derive(Clone)]
pub(super) struct Follower {
    pub(super) subscription: Arc<Subscription>,
    pub(super) range: KeyRange,
    /// Changes up to here are not passed on.
    pub(super) start: FeedPosition,
}

/// The followers of a stream. Single keys, and single values of an index or a field, are looked up in a hash map; ranges in
/// a tree of ranges.
#[derive(Default)]
pub(super) struct Followers {
    all: HashMap<Slot, Follower>,
    next: Slot,
    by_key: HashMap<PrimaryKey, Vec<Slot>>,
    by_value: HashMap<ValuesId, ByValue>,
    by_range: RangeTree<PrimaryKey>,
}

impl Followers {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Follower> {
        self.all.values()
    }

    pub(super) fn add(&mut self, follower: Follower) {
        let slot = self.next;
        self.next += 1;
        match &follower.subscription.interest {
            Interest::Range(range) => self.by_range.add(std::iter::once(edges(range)), slot),
            Interest::Keys(keys) => {
                for key in keys.iter().filter(|key| follower.range.contains(key)) {
                    self.by_key.entry(key.clone()).or_default().push(slot);
                }
            }
            Interest::Values(wanted) => {
                let RowValues { of, wanted, .. } = &**wanted;
                let by_value = self.by_value.entry(of.id()).or_insert_with(|| ByValue::new(of.clone()));
                by_value.add(slot, wanted);
            }
        }
        self.all.insert(slot, follower);
    }

    /// Removes and returns all followers.
    pub(super) fn take(&mut self) -> Vec<Follower> {
        std::mem::take(self).all.into_values().collect()
    }

    /// Removes and returns some followers.
    pub(super) fn extract(&mut self, leaves: impl Fn(&Follower) -> bool) -> Vec<Follower> {
        let leaving = self.all.values().filter(|follower| leaves(follower)).cloned().collect();
        self.retain(|follower| !leaves(follower));
        leaving
    }

    /// Removes followers whose subscription is closed, and builds the trees of the others anew where they have changed.
    pub(super) fn sweep(&mut self) {
        self.retain(|follower| !follower.subscription.is_closed());
        self.by_range.tidy();
        self.by_value.values_mut().for_each(ByValue::tidy);
        self.by_value.retain(|_, by_value| !by_value.is_empty());
    }

    /// Removes the other followers.
    pub(super) fn retain(&mut self, stays: impl Fn(&Follower) -> bool) {
        let is_leaving = |(_, follower): &(&Slot, &Follower)| !stays(follower);
        let leaving: HashSet<Slot> = self.all.iter().filter(is_leaving).map(|(slot, _)| *slot).collect();
        if leaving.is_empty() {
            return;
        }
        self.forget(&leaving);
        self.all.retain(|slot, _| !leaving.contains(slot));
        self.by_key.shrink_to(2 * self.all.len());
        self.all.shrink_to(2 * self.all.len());
    }

    /// Removes followers from the maps by which they are found. Each list is looked at once, however many of its followers leave.
    fn forget(&mut self, leaving: &HashSet<Slot>) {
        let (mut keys, mut ranges) = (HashSet::new(), false);
        let mut values: HashMap<ValuesId, Vec<&WantedValues>> = HashMap::new();
        for slot in leaving {
            match self.all.get(slot).map(|follower| &follower.subscription.interest) {
                Some(Interest::Range(_)) => ranges = true,
                Some(Interest::Keys(own)) => keys.extend(own),
                Some(Interest::Values(own)) => values.entry(own.of.id()).or_default().push(&own.wanted),
                None => {}
            }
        }
        if ranges {
            self.by_range.remove(leaving);
        }
        for key in keys {
            let Some(slots) = self.by_key.get_mut(key) else { continue };
            slots.retain(|slot| !leaving.contains(slot));
            if slots.is_empty() {
                self.by_key.remove(key);
            }
        }
        for (id, wanted) in values {
            if let Some(by_value) = self.by_value.get_mut(&id) {
                by_value.remove(leaving, &wanted);
            }
        }
    }

    /// Passes the changes of `entry`, which follows the position `before`, to the interested followers. Returns how many
    /// events that were.
    pub(super) fn pass(&self, group: GroupId, before: HistoryPosition, entry: &HistoryEntry) -> u64 {
        let HistoryEvent::Rows(rows) = &entry.event else { return 0 };
        let (mut events, mut found) = (0, Vec::new());
        for (nth, row) in rows.iter().enumerate() {
            let start = FeedPosition { entry: before, rows: nth as u32 };
            let position = position_after(before, entry, nth, rows.len());
            let by_key = self.by_key.get(&row.key).into_iter().flatten();
            self.find_by_value(row, &mut found);
            self.by_range.containing(&row.key, |slot| found.push(slot));
            let slots = by_key.chain(&found);
            for follower in slots.filter_map(|slot| self.all.get(slot)) {
                events +=
                    u64::from(follower.pass(FeedEvent { group, before: start, position, row }, entry, nth));
            }
        }
        events
    }

    /// Sets `found` to the followers of values that the row has or had; to all of them if it is damaged.
    fn find_by_value(&self, row: &ChangedRow, found: &mut Vec<Slot>) {
        found.clear();
        if self.by_value.values().any(|by_value| by_value.find(row, found).is_err()) {
            let is_by_value =
                |follower: &Follower| matches!(follower.subscription.interest, Interest::Values(_));
            let all = self.all.iter().filter(|(_, follower)| is_by_value(follower));
            *found = all.map(|(slot, _)| *slot).collect();
        }
    }
}

fn edges(range: &KeyRange) -> Range<Edge<PrimaryKey>> {
    let start = match &range.start {
        KeyBound::Unbounded => Edge::first(),
        KeyBound::Included(key) => Edge::before(key.clone()),
        KeyBound::Excluded(key) => Edge::after(key.clone()),
    };
    let end = match &range.end {
        KeyBound::Unbounded => Edge::last(),
        KeyBound::Included(key) => Edge::after(key.clone()),
        KeyBound::Excluded(key) => Edge::before(key.clone()),
    };
    start..end
}

/// The position after change `nth` of the `count` changes of an entry, where `before` is the position before the entry.
fn position_after(before: HistoryPosition, entry: &HistoryEntry, nth: usize, count: usize) -> FeedPosition {
    #[cfg(feature = "mutants")]
    if log::mutant::is_active(log::mutant::Mutant::FeedPosition) {
        return FeedPosition { entry: before, rows: nth as u32 };
    }
    match nth + 1 == count {
        true => FeedPosition::after(entry.at),
        false => FeedPosition { entry: before, rows: nth as u32 + 1 },
    }
}

impl Follower {
    /// Passes all changes of `entry` that are of interest. Returns how many events that were.
    pub(super) fn pass_all(&self, group: GroupId, before: HistoryPosition, entry: &HistoryEntry) -> u64 {
        let HistoryEvent::Rows(rows) = &entry.event else { return 0 };
        let interest = &self.subscription.interest;
        let mut events = 0;
        for (nth, row) in rows.iter().enumerate() {
            let start = FeedPosition { entry: before, rows: nth as u32 };
            let position = position_after(before, entry, nth, rows.len());
            if interest.contains(row) {
                events += u64::from(self.pass(FeedEvent { group, before: start, position, row }, entry, nth));
            }
        }
        events
    }

    /// Passes one change of `entry`, unless it is not wanted.
    fn pass(&self, event: FeedEvent<'_>, entry: &HistoryEntry, nth: usize) -> bool {
        let is_wanted = self.wants(entry, nth, event.row);
        #[cfg(feature = "mutants")]
        let is_wanted = is_wanted && !self.is_dropped_or_repeated(event, entry);
        if is_wanted {
            self.subscription.subscriber.changed(event);
        }
        is_wanted
    }

    /// Drops some changes, or passes them once too often, if one of these mutants is active.
    #[cfg(feature = "mutants")]
    fn is_dropped_or_repeated(&self, event: FeedEvent<'_>, entry: &HistoryEntry) -> bool {
        use log::mutant::{Mutant, is_active};
        let is_chosen = entry.at.lsn.0.is_multiple_of(7);
        if is_chosen && is_active(Mutant::FeedTwice) {
            self.subscription.subscriber.changed(event);
        }
        is_chosen && is_active(Mutant::FeedDrop)
    }

    fn wants(&self, entry: &HistoryEntry, nth: usize, row: &ChangedRow) -> bool {
        let FeedPosition { entry: start, rows } = self.start;
        let is_first = entry.previous == start.lsn;
        entry.at.lsn > start.lsn
            && !(is_first && nth < rows as usize)
            && self.range.contains(&row.key)
            && !self.subscription.is_closed()
    }
}
