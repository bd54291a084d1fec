//! The subscribers of rows with some values of an index or field, found by the values of a changed row.

use std::collections::HashMap;
use std::ops::Range;

use datum::{CorruptRow, Datum};
use interavl::IntervalTree;
use shard::{Bounds, ChangedRow, Side};

use super::interest::{ValuesOf, WantedValues};

/// Numbers of subscribers, found by a hash of single values, and by a tree of bounds.
pub(super) struct ByValue {
    of: ValuesOf,
    equal: HashMap<Datum, Vec<usize>>,
    within: IntervalTree<Edge, Vec<usize>>,
}

/// A place between values: just before or just after this one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    value: Datum,
    is_after: bool,
}

/// The edges of these bounds; `None` if they contain no value.
fn edges(bounds: &Bounds) -> Option<Range<Edge>> {
    let start = Edge { value: bounds.left.clone(), is_after: bounds.left_side == Side::Open };
    let end = Edge { value: bounds.right.clone(), is_after: bounds.right_side == Side::Closed };
    (start < end).then_some(start..end)
}

impl ByValue {
    /// No subscribers of values of this kind yet.
    pub(super) fn new(of: ValuesOf) -> ByValue {
        ByValue { of, equal: HashMap::new(), within: IntervalTree::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.equal.is_empty() && self.within.max_interval_end().is_none()
    }

    /// Adds a subscriber of these values.
    pub(super) fn add(&mut self, subscriber: usize, wanted: &WantedValues) {
        match wanted {
            WantedValues::Equal(values) => {
                values.iter().for_each(|value| self.equal.entry(value.clone()).or_default().push(subscriber));
            }
            WantedValues::Within(all) => {
                for range in all.iter().filter_map(edges) {
                    self.within.entry(range).or_insert_with(Vec::new).push(subscriber);
                }
            }
        }
    }

    /// Removes a subscriber of these values.
    pub(super) fn remove(&mut self, subscriber: usize, wanted: &WantedValues) {
        let is_other = |other: &usize| *other != subscriber;
        match wanted {
            WantedValues::Equal(values) => {
                for value in values {
                    let Some(subscribers) = self.equal.get_mut(value) else { continue };
                    subscribers.retain(is_other);
                    if subscribers.is_empty() {
                        self.equal.remove(value);
                    }
                }
                if self.equal.capacity() > 4 * self.equal.len() {
                    self.equal.shrink_to(2 * self.equal.len());
                }
            }
            WantedValues::Within(all) => {
                for range in all.iter().filter_map(edges) {
                    let Some(subscribers) = self.within.get_mut(&range) else { continue };
                    subscribers.retain(is_other);
                    if subscribers.is_empty() {
                        self.within.remove(&range);
                    }
                }
            }
        }
    }

    /// Adds the subscribers of a value that the row has or had to `found`, each once. Fails if the row is damaged.
    pub(super) fn find(&self, row: &ChangedRow, found: &mut Vec<usize>) -> Result<(), CorruptRow> {
        let (values, start) = (self.of.of_change(row)?, found.len());
        let mut add = |subscribers: &Vec<usize>| {
            for subscriber in subscribers {
                // Most rows have one value, and often the same as before.
                if !found[start..].contains(subscriber) {
                    found.push(*subscriber);
                }
            }
        };
        for value in values.old.iter().chain(&values.new) {
            self.equal.get(value).into_iter().for_each(&mut add);
            if let Some(place) = edges(&Bounds::one(value.clone())) {
                self.within.iter_overlaps(&place).for_each(|(_, subscribers)| add(subscribers));
            }
        }
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

    fn found(by_value: &ByValue, value: Option<f64>) -> Vec<usize> {
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
    fn subscribers_are_found_by_equal_values_and_by_bounds_until_they_are_removed() {
        let mut by_value = ByValue::new(ValuesOf::Field(Text::from_static("v")));
        let wanted = [
            WantedValues::Equal([Datum::Number(1.0), Datum::Number(2.0)].into()),
            WantedValues::Within(vec![bounds(1.0, Side::Closed, 2.0, Side::Open)]),
            WantedValues::Within(vec![bounds(1.0, Side::Open, 2.0, Side::Closed)]),
            WantedValues::Within(vec![bounds(1.0, Side::Closed, 2.0, Side::Open), Bounds::all()]),
            WantedValues::Within(vec![bounds(2.0, Side::Closed, 1.0, Side::Closed)]),
        ];
        for (subscriber, wanted) in wanted.iter().enumerate() {
            by_value.add(subscriber, wanted);
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
        by_value.remove(1, &wanted[1]);
        assert_eq!(found(&by_value, Some(1.0)), [0, 3]);
        for (subscriber, wanted) in wanted.iter().enumerate() {
            assert!(subscriber == 4 || !by_value.is_empty());
            by_value.remove(subscriber, wanted);
        }
        assert!(by_value.is_empty());
    }
}
