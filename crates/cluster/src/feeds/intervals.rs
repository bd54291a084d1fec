//! Subscribers of intervals, found by a value within them.

use std::collections::HashSet;
use std::ops::Range;

use intervaltree::IntervalTree;

/// The tree is built anew once it lacks this many intervals and, in addition, one for every [`INTERVALS_PER_ADDED`] that it has.
const ADDED_MAX: usize = 64;
const INTERVALS_PER_ADDED: usize = 16;
/// The tree is built anew once this many of its subscribers and, in addition, half of them are removed.
const REMOVED_MAX: usize = 64;

/// The intervals of subscribers, each of which is named by a number that is not used again.
pub(super) struct Intervals<T> {
    /// It cannot be changed, so it is built anew at times.
    tree: IntervalTree<Edge<T>, usize>,
    size: usize,
    /// Intervals that are not in the tree yet.
    added: Vec<(Range<Edge<T>>, usize)>,
    /// Subscribers that are in the tree still.
    removed: HashSet<usize>,
}

/// A place between values, where an interval begins or ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge<T> {
    near: Near<T>,
    is_after: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Near<T> {
    First,
    Value(T),
    Last,
}

impl<T> Edge<T> {
    /// Before all values.
    pub(super) fn first() -> Edge<T> {
        Edge { near: Near::First, is_after: false }
    }

    /// Just before this value.
    pub(super) fn before(value: T) -> Edge<T> {
        Edge { near: Near::Value(value), is_after: false }
    }

    /// Just after this value.
    pub(super) fn after(value: T) -> Edge<T> {
        Edge { near: Near::Value(value), is_after: true }
    }

    /// After all values.
    pub(super) fn last() -> Edge<T> {
        Edge { near: Near::Last, is_after: false }
    }
}

impl<T: Ord + Clone> Default for Intervals<T> {
    fn default() -> Self {
        let tree = std::iter::empty::<(Range<Edge<T>>, usize)>().collect();
        Intervals { tree, size: 0, added: Vec::new(), removed: HashSet::new() }
    }
}

impl<T: Ord + Clone> Intervals<T> {
    /// Whether there are no intervals, once the tree was built anew.
    pub(super) fn is_empty(&self) -> bool {
        self.size == 0 && self.added.is_empty()
    }

    /// Adds a subscriber of intervals. Those without values are ignored.
    pub(super) fn add(&mut self, intervals: impl Iterator<Item = Range<Edge<T>>>, subscriber: usize) {
        self.added
            .extend(intervals.filter(|interval| !interval.is_empty()).map(|interval| (interval, subscriber)));
        if self.added.len() > ADDED_MAX + self.size / INTERVALS_PER_ADDED {
            self.rebuild();
        }
    }

    /// Removes subscribers. Others may be among `leaving`, which are no longer used.
    pub(super) fn remove(&mut self, leaving: &HashSet<usize>) {
        self.added.retain(|(_, subscriber)| !leaving.contains(subscriber));
        self.removed.extend(leaving);
        if self.removed.len() > REMOVED_MAX + self.size / 2 {
            self.rebuild();
        }
    }

    /// Builds the tree anew if changes wait for that.
    pub(super) fn tidy(&mut self) {
        if !self.added.is_empty() || !self.removed.is_empty() {
            self.rebuild();
        }
    }

    /// Calls `found` with the subscriber of each interval that contains `value`. Removed ones may be among them.
    pub(super) fn containing(&self, value: &T, mut found: impl FnMut(usize)) {
        let place = Edge::before(value.clone());
        let added = self.added.iter().filter(|(interval, _)| interval.contains(&place));
        added.for_each(|(_, subscriber)| found(*subscriber));
        self.tree.query_point(place).for_each(|element| found(element.value));
    }

    fn rebuild(&mut self) {
        let (removed, added) = (std::mem::take(&mut self.removed), std::mem::take(&mut self.added));
        let tree = std::mem::take(self);
        let known = tree.tree.into_iter().map(|element| (element.range, element.value));
        let stay = known.filter(|(_, subscriber)| !removed.contains(subscriber));
        let all: Vec<_> = stay.chain(added).collect();
        self.size = all.len();
        self.tree = all.into_iter().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_are_found_whether_or_not_they_are_in_the_tree() {
        let mut intervals = Intervals::default();
        let ends = |n: usize| (n % 50, n % 50 + n % 7);
        let interval = |n: usize| {
            let (start, end) = ends(n);
            std::iter::once(Edge::before(start)..Edge::after(end))
        };
        let found = |intervals: &Intervals<usize>, value: usize, live: &Range<usize>| {
            let mut found = Vec::new();
            intervals.containing(&value, |subscriber| found.push(subscriber));
            found.retain(|subscriber| live.contains(subscriber));
            found.sort_unstable();
            found
        };
        let (mut live, mut tidied) = (0..0, 0);
        for _ in 0..2000 {
            intervals.add(interval(live.end), live.end);
            live.end += 1;
            if live.len() > 300 {
                intervals.remove(&[live.start].into());
                live.start += 1;
            }
            let value = live.end % 60;
            let expected = live.clone().filter(|n| (ends(*n).0..=ends(*n).1).contains(&value));
            assert_eq!(found(&intervals, value, &live), expected.collect::<Vec<_>>());
            tidied += usize::from(intervals.added.is_empty());
        }
        assert!(tidied > 0);
        intervals.remove(&live.collect());
        intervals.tidy();
        assert!(intervals.is_empty() && intervals.size == 0);
    }

    #[test]
    fn the_ends_of_an_interval_may_be_open() {
        let mut intervals = Intervals::default();
        intervals.add(std::iter::once(Edge::after(1)..Edge::before(3)), 0);
        intervals.add(std::iter::once(Edge::first()..Edge::after(1)), 1);
        intervals.add(std::iter::once(Edge::before(3)..Edge::last()), 2);
        intervals.add(std::iter::once(Edge::before(3)..Edge::after(1)), 3);
        for _ in 0..2 {
            for (value, expected) in [(0, 1), (1, 1), (2, 0), (3, 2), (4, 2)] {
                let mut found = Vec::new();
                intervals.containing(&value, |subscriber| found.push(subscriber));
                assert_eq!(found, [expected], "{value}");
            }
            intervals.tidy();
        }
    }
}
