//! `order_by` in memory: by fields or functions, ascending or descending, stable.

use std::cmp::Ordering;

use datum::{Array, Datum};

use crate::env::Env;
use crate::error::EvalError;
use crate::select::Selector;

/// One thing to order by.
#[derive(Clone, Debug)]
pub struct Order {
    /// What is compared.
    pub selector: Selector,
    /// Which way.
    pub direction: Direction,
    /// Which argument it came from.
    pub position: usize,
}

/// Which way values go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Least first.
    Ascending,
    /// Greatest first.
    Descending,
}

/// What an item is ordered by: one part for each order, `None` where it is missing.
pub type SortKey = Vec<Option<Datum>>;

/// What `item` is ordered by.
pub fn sort_key(orders: &[Order], item: &Datum, env: &Env<'_>) -> Result<SortKey, EvalError> {
    let part = |order: &Order| order.selector.present(item, env).map_err(|error| error.at(order.position));
    orders.iter().map(part).collect()
}

/// How two items follow each other. What is missing comes before everything.
#[must_use]
pub fn compare(orders: &[Order], a: &SortKey, b: &SortKey) -> Ordering {
    for (order, (a, b)) in orders.iter().zip(a.iter().zip(b)) {
        let ordering = match order.direction {
            Direction::Ascending => a.cmp(b),
            Direction::Descending => b.cmp(a),
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
    Ordering::Equal
}

/// The items of an array in order; equal ones stay as they were.
pub fn sort(items: &Array, orders: &[Order], env: &Env<'_>) -> Result<Array, EvalError> {
    let mut keyed = Vec::with_capacity(items.len());
    for item in items.iter() {
        env.check_cancel()?;
        keyed.push((sort_key(orders, item, env)?, item.clone()));
    }
    let keyed = sorted_by_key(keyed, orders);
    env.check_cancel()?;
    Ok(keyed.into_iter().map(|(_, item)| item).collect())
}

/// Items with their keys in order; equal ones stay as they were.
#[must_use]
pub fn sorted_by_key(keyed: Vec<(SortKey, Datum)>, orders: &[Order]) -> Vec<(SortKey, Datum)> {
    let is_short = |(key, _): &(SortKey, Datum)| key.iter().flatten().all(is_short);
    sorted_by(keyed, is_short, |(a, _), (b, _)| compare(orders, a, b))
}

/// `items` in order; equal ones stay as they were. Unless all that is compared is short, the order may break off
/// ([`datum::patience`]), which the sort of the standard library answers with a panic.
#[must_use]
pub fn sorted_by<T>(
    mut items: Vec<T>,
    is_short: impl Fn(&T) -> bool,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Vec<T> {
    if items.iter().all(is_short) {
        items.sort_by(compare);
        return items;
    }
    let mut places: Vec<usize> = (0..items.len()).collect();
    let mut merged = Vec::with_capacity(items.len());
    let mut run = 1;
    while run < items.len() {
        merged.clear();
        for two in places.chunks(2 * run) {
            let (mut left, mut right) = two.split_at(run.min(two.len()));
            while let ([a, others @ ..], [b, more @ ..]) = (left, right) {
                if compare(&items[*b], &items[*a]) == Ordering::Less {
                    merged.push(*b);
                    right = more;
                } else {
                    merged.push(*a);
                    left = others;
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        std::mem::swap(&mut places, &mut merged);
        run *= 2;
    }
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    places.into_iter().filter_map(|place| items[place].take()).collect()
}

/// Whether comparing the value with another takes no walk.
#[must_use]
pub fn is_short(value: &Datum) -> bool {
    !matches!(value, Datum::Array(_) | Datum::Object(_) | Datum::Geometry(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_in_order_and_equal_ones_as_they_were() {
        for count in [0, 1, 2, 3, 7, 64, 1000] {
            let items: Vec<(usize, usize)> = (0..count).map(|i| (i * 7919 % 31, i)).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            assert_eq!(sorted_by(items, |_| false, |a, b| a.0.cmp(&b.0)), expected, "{count}");
        }
    }

    #[test]
    fn an_order_that_breaks_off_leaves_all_items() {
        let left = std::cell::Cell::new(3000);
        let breaks_off = |a: &usize, b: &usize| {
            left.set(left.get() - i32::from(left.get() > 0));
            if left.get() > 0 { b.cmp(a) } else { Ordering::Equal }
        };
        let mut sorted = sorted_by((0..1000).collect(), |_| false, breaks_off);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    }
}
