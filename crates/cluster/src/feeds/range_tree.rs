//! Followers with ranges, found by a value within them.

use std::collections::HashSet;
use std::ops::Range;

use intervaltree::IntervalTree;

/// The tree is built anew once it lacks this many ranges and, in addition, one for every [`RANGES_PER_ADDED`] that it has.
const ADDED_MAX: usize = 64;
const RANGES_PER_ADDED: usize = 16;
/// The tree is built anew once this many of its followers and, in addition, half of them are removed.
const REMOVED_MAX: usize = 64;

/// The number of a follower among those of its stream. It is not used again.
pub(super) type Slot = usize;

/// The ranges of followers.
pub(super) struct RangeTree<T> {
    /// It cannot be changed, so it is built anew at times.
    tree: IntervalTree<Edge<T>, Slot>,
    size: usize,
    /// Ranges that are not in the tree yet.
    added: Vec<(Range<Edge<T>>, Slot)>,
    /// Followers that are in the tree still.
    removed: HashSet<Slot>,
}

/// A place between values, where a range begins or ends.
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

impl<T: Ord + Clone> Default for RangeTree<T> {
    fn default() -> Self {
        let tree = std::iter::empty::<(Range<Edge<T>>, Slot)>().collect();
        RangeTree { tree, size: 0, added: Vec::new(), removed: HashSet::new() }
    }
}

impl<T: Ord + Clone> RangeTree<T> {
    /// Whether there are no ranges, once the tree was built anew.
    pub(super) fn is_empty(&self) -> bool {
        self.size == 0 && self.added.is_empty()
    }

    /// Adds the ranges of a follower. Those without values are ignored.
    pub(super) fn add(&mut self, ranges: impl Iterator<Item = Range<Edge<T>>>, slot: Slot) {
        self.added.extend(ranges.filter(|range| !range.is_empty()).map(|range| (range, slot)));
        if self.added.len() > ADDED_MAX + self.size / RANGES_PER_ADDED {
            self.rebuild();
        }
    }

    /// Removes followers. Others may be among `leaving`, which are no longer used.
    pub(super) fn remove(&mut self, leaving: &HashSet<Slot>) {
        self.added.retain(|(_, slot)| !leaving.contains(slot));
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

    /// Calls `found` with the follower of each range that contains `value`. Removed ones may be among them.
    pub(super) fn containing(&self, value: &T, mut found: impl FnMut(Slot)) {
        let place = Edge::before(value.clone());
        let added = self.added.iter().filter(|(range, _)| range.contains(&place));
        added.for_each(|(_, slot)| found(*slot));
        self.tree.query_point(place).for_each(|element| found(element.value));
    }

    fn rebuild(&mut self) {
        let (removed, added) = (std::mem::take(&mut self.removed), std::mem::take(&mut self.added));
        let tree = std::mem::take(self);
        let known = tree.tree.into_iter().map(|element| (element.range, element.value));
        let stay = known.filter(|(_, slot)| !removed.contains(slot));
        let all: Vec<_> = stay.chain(added).collect();
        self.size = all.len();
        self.tree = all.into_iter().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followers_are_found_whether_or_not_they_are_in_the_tree() {
        let mut tree = RangeTree::default();
        let ends = |n: usize| (n % 50, n % 50 + n % 7);
        let range = |n: usize| {
            let (start, end) = ends(n);
            std::iter::once(Edge::before(start)..Edge::after(end))
        };
        let found = |tree: &RangeTree<usize>, value: usize, live: &Range<usize>| {
            let mut found = Vec::new();
            tree.containing(&value, |slot| found.push(slot));
            found.retain(|slot| live.contains(slot));
            found.sort_unstable();
            found
        };
        let (mut live, mut tidied) = (0..0, 0);
        for _ in 0..2000 {
            tree.add(range(live.end), live.end);
            live.end += 1;
            if live.len() > 300 {
                tree.remove(&[live.start].into());
                live.start += 1;
            }
            let value = live.end % 60;
            let expected = live.clone().filter(|n| (ends(*n).0..=ends(*n).1).contains(&value));
            assert_eq!(found(&tree, value, &live), expected.collect::<Vec<_>>());
            tidied += usize::from(tree.added.is_empty());
        }
        assert!(tidied > 0);
        tree.remove(&live.collect());
        tree.tidy();
        assert!(tree.is_empty() && tree.size == 0);
    }

    #[test]
    fn the_ends_of_an_interval_may_be_open() {
        let mut tree = RangeTree::default();
        tree.add(std::iter::once(Edge::after(1)..Edge::before(3)), 0);
        tree.add(std::iter::once(Edge::first()..Edge::after(1)), 1);
        tree.add(std::iter::once(Edge::before(3)..Edge::last()), 2);
        tree.add(std::iter::once(Edge::before(3)..Edge::after(1)), 3);
        for _ in 0..2 {
            for (value, expected) in [(0, 1), (1, 1), (2, 0), (3, 2), (4, 2)] {
                let mut found = Vec::new();
                tree.containing(&value, |slot| found.push(slot));
                assert_eq!(found, [expected], "{value}");
            }
            tree.tidy();
        }
    }
}
