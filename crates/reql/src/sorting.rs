//! Sorting of values that may be enormous.

use std::cmp::Ordering;

use datum::Datum;

/// Sorts `items`, stably. A walk through a long value may be cancelled ([`datum::cancel`]), which makes comparisons
/// inconsistent; the standard library's sort may then panic, so it is used only if all values are short.
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

/// Whether comparing the value with another needs no walk.
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
