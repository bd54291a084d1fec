//! The followers of rows with some values of an index or field, found by the values of a changed row.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use datum::{CorruptRow, Datum};
use shard::{Bounds, ChangedRow, Side};

use super::interest::{ValuesOf, WantedValues};
use super::range_tree::{Edge, RangeTree, Slot};

/// Followers, each named by a number: a hash map finds those of single values, a tree those of bounds. The caller compares the
/// keys of rows with the range of each.
pub(super) struct ByValue {
    of: ValuesOf,
    equal: HashMap<Datum, Vec<Slot>>,
    within: RangeTree<Datum>,
}

/// Where the values within the bounds begin and end.
fn edges(bounds: &Bounds) -> Range<Edge<Datum>> {
    let start = match bounds.left_side {
        Side::Closed => Edge::before(bounds.left.clone()),
        Side::Open => Edge::after(bounds.left.clone()),
    };
    let end = match bounds.right_side {
        Side::Closed => Edge::after(bounds.right.clone()),
        Side::Open => Edge::before(bounds.right.clone()),
    };
    start..end
}

impl ByValue {
    /// No followers of values of this kind yet.
    pub(super) fn new(of: ValuesOf) -> ByValue {
        ByValue { of, equal: HashMap::new(), within: RangeTree::default() }
    }

    /// Builds the tree of bounds anew if its followers have changed.
    pub(super) fn tidy(&mut self) {
        self.within.tidy();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.equal.is_empty() && self.within.is_empty()
    }

    pub(super) fn add(&mut self, slot: Slot, wanted: &WantedValues) {
        match wanted {
            WantedValues::Equal(values) => {
                values.iter().for_each(|value| self.equal.entry(value.clone()).or_default().push(slot));
            }
            WantedValues::Within(all) => {
                self.within.add(all.iter().map(edges), slot);
            }
        }
    }

    /// Removes followers, of which these are the wanted values.
    pub(super) fn remove(&mut self, leaving: &HashSet<Slot>, wanted: &[&WantedValues]) {
        let mut values = HashSet::new();
        for wanted in wanted {
            if let WantedValues::Equal(own) = wanted {
                values.extend(own);
            }
        }
        for value in values {
            let Some(followers) = self.equal.get_mut(value) else { continue };
            followers.retain(|slot| !leaving.contains(slot));
            if followers.is_empty() {
                self.equal.remove(value);
            }
        }
        self.equal.shrink_to(2 * self.equal.len());
        if wanted.iter().any(|wanted| matches!(wanted, WantedValues::Within(_))) {
            self.within.remove(leaving);
        }
    }

    /// Adds the followers of a value that the row has or had to `found`, each once. Fails if the row is damaged.
    pub(super) fn find(&self, row: &ChangedRow, found: &mut Vec<Slot>) -> Result<(), CorruptRow> {
        let values = self.of.of_change(row)?;
        let mut followers = Vec::new();
        for value in values.old.iter().chain(&values.new) {
            followers.extend(self.equal.get(value).into_iter().flatten());
            self.within.containing(value, |slot| followers.push(slot));
        }
        // Most rows have the same value as before.
        followers.sort_unstable();
        followers.dedup();
        found.append(&mut followers);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use datum::{Bytes, Object, PrimaryKey, Text, row};

    use super::*;

    fn bounds(left: f64, left_side: Side, right: f64, right_side: Side) -> Bounds {
        Bounds { left: Datum::Number(left), left_side, right: Datum::Number(right), right_side }
    }

    fn found(by_value: &ByValue, value: Option<f64>) -> Vec<Slot> {
        let fields = value.map(|value| (Text::from_static("v"), Datum::Number(value)));
        let object: Object = fields.into_iter().collect();
        let key = PrimaryKey(Bytes::from_static(b"k"));
        let row = ChangedRow::new(key, None, Some(row::encode_shared(&object)));
        let mut found = Vec::new();
        by_value.find(&row, &mut found).unwrap();
        found.sort_unstable();
        found
    }

    #[test]
    fn followers_are_found_by_equal_values_and_by_bounds_until_they_are_removed() {
        let mut by_value = ByValue::new(ValuesOf::Field(Text::from_static("v")));
        let wanted = [
            WantedValues::Equal([Datum::Number(1.0), Datum::Number(2.0)].into()),
            WantedValues::Within(vec![bounds(1.0, Side::Closed, 2.0, Side::Open)]),
            WantedValues::Within(vec![bounds(1.0, Side::Open, 2.0, Side::Closed)]),
            WantedValues::Within(vec![bounds(1.0, Side::Closed, 2.0, Side::Open), Bounds::all()]),
            WantedValues::Within(vec![bounds(2.0, Side::Closed, 1.0, Side::Closed)]),
        ];
        for (slot, wanted) in wanted.iter().enumerate() {
            by_value.add(slot, wanted);
        }
        for (value, expected) in [
            (Some(1.0), vec![0, 1, 3]),
            (Some(1.5), vec![1, 2, 3]),
            (Some(2.0), vec![0, 2, 3]),
            (Some(2.5), vec![3]),
            (None, vec![]),
        ] {
            assert_eq!(found(&by_value, value), expected, "{value:?}");
        }
        by_value.remove(&[1].into(), &[&wanted[1]]);
        assert_eq!(found(&by_value, Some(1.0)), [0, 3]);
        for slot in [4, 0, 2, 3] {
            assert!(!by_value.is_empty());
            by_value.remove(&[slot].into(), &[&wanted[slot]]);
        }
        assert!(by_value.is_empty());
    }
}
