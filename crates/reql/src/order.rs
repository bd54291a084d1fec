//! `order_by` in memory: a stable sort by fields or functions, ascending or descending.

use std::cmp::Ordering;

use datum::{Array, Datum};

use crate::backtrace::Frame;
use crate::env::Env;
use crate::error::EvalError;
use crate::select::Selector;
use crate::sorting::{is_short, sorted_by};

/// One criterion of an order.
#[derive(Clone, Debug)]
pub struct Order {
    /// The value that is compared.
    pub selector: Selector,
    /// Ascending or descending.
    pub direction: Direction,
    /// The path to it from the ordering term, innermost frame first.
    pub path: Vec<Frame>,
}

/// The direction of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Least first.
    Ascending,
    /// Greatest first.
    Descending,
}

/// The error for an index in an order of something that is not a table.
#[must_use]
pub fn needs_table() -> EvalError {
    EvalError::logic(
        "Indexed order_by can only be performed on a TABLE or TABLE_SLICE. Make sure order_by comes before any \
         transformations (such as map) or filters.",
    )
}

/// The error for an order without criteria.
#[must_use]
pub fn nothing_to_order_by() -> EvalError {
    EvalError::logic("Must specify something to order by.")
}

/// The values by which an item is ordered, one for each criterion; `None` for a missing value.
pub type SortKey = Vec<Option<Datum>>;

/// Computes the sort key of `item`.
pub fn sort_key(orders: &[Order], item: &Datum, env: &Env<'_>) -> Result<SortKey, EvalError> {
    let part =
        |order: &Order| order.selector.present(item, env).map_err(|error| error.at_end_of(&order.path));
    orders.iter().map(part).collect()
}

/// Compares two sort keys. Missing values come first.
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

/// Sorts the items of an array; the sort is stable.
///
/// A part of an item's key is computed only when it is needed for a comparison: not for a single item, and not if
/// an earlier part is unique. Source: the comparison with which `orderby_term_t` of RethinkDB sorts.
pub fn sort(items: &Array, orders: &[Order], env: &Env<'_>) -> Result<Array, EvalError> {
    let mut sorted: Vec<Datum> = items.iter().cloned().collect();
    // Lengths of the runs of items that are equal in all criteria so far.
    let mut runs = vec![sorted.len()];
    for order in orders {
        let mut start = 0;
        let mut next = Vec::with_capacity(runs.len());
        for len in runs {
            next.extend(sort_run(&mut sorted[start..start + len], order, env)?);
            start += len;
        }
        runs = next;
    }
    Ok(sorted.into())
}

/// Sorts items that are equal in all earlier criteria. Returns the lengths of the runs that are still equal.
fn sort_run(items: &mut [Datum], order: &Order, env: &Env<'_>) -> Result<Vec<usize>, EvalError> {
    if items.len() < 2 {
        return Ok(vec![items.len()]);
    }
    let order = std::slice::from_ref(order);
    let mut keyed = Vec::with_capacity(items.len());
    for item in items.iter() {
        env.check_cancel()?;
        keyed.push((sort_key(order, item, env)?, item.clone()));
    }
    let keyed = sorted_by_key(keyed, order);
    env.check_cancel()?;
    let runs = keyed.chunk_by(|(a, _), (b, _)| a == b).map(<[_]>::len).collect();
    items.iter_mut().zip(keyed).for_each(|(place, (_, item))| *place = item);
    Ok(runs)
}

/// Sorts items by their keys; the sort is stable.
#[must_use]
pub fn sorted_by_key(keyed: Vec<(SortKey, Datum)>, orders: &[Order]) -> Vec<(SortKey, Datum)> {
    let is_short = |(key, _): &(SortKey, Datum)| key.iter().flatten().all(is_short);
    sorted_by(keyed, is_short, |(a, _), (b, _)| compare(orders, a, b))
}
