//! `order_by` in memory: by fields or functions, ascending or descending, stable.

use std::cmp::Ordering;

use datum::{Array, Datum};

use crate::backtrace::Frame;
use crate::env::Env;
use crate::error::EvalError;
use crate::select::Selector;
use crate::sorting::{is_short, sorted_by};

/// One thing to order by.
#[derive(Clone, Debug)]
pub struct Order {
    /// What is compared.
    pub selector: Selector,
    /// Which way.
    pub direction: Direction,
    /// The way to it from the term that orders, the innermost frame first.
    pub path: Vec<Frame>,
}

/// Which way values go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Least first.
    Ascending,
    /// Greatest first.
    Descending,
}

/// An index is named, and what is to be ordered is no table.
#[must_use]
pub fn needs_table() -> EvalError {
    EvalError::logic(
        "Indexed order_by can only be performed on a TABLE or TABLE_SLICE. Make sure order_by comes before any \
         transformations (such as map) or filters.",
    )
}

/// Nothing is named to order by.
#[must_use]
pub fn nothing_to_order_by() -> EvalError {
    EvalError::logic("Must specify something to order by.")
}

/// What an item is ordered by: one part for each order, `None` where it is missing.
pub type SortKey = Vec<Option<Datum>>;

/// What `item` is ordered by.
pub fn sort_key(orders: &[Order], item: &Datum, env: &Env<'_>) -> Result<SortKey, EvalError> {
    let part =
        |order: &Order| order.selector.present(item, env).map_err(|error| error.at_end_of(&order.path));
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
///
/// An item is asked for a part of its key only where it is compared by it: not when it is the only one, nor for what follows a
/// part that no other item shares. Source: the comparison that `orderby_term_t` of RethinkDB sorts with.
pub fn sort(items: &Array, orders: &[Order], env: &Env<'_>) -> Result<Array, EvalError> {
    let mut sorted: Vec<Datum> = items.iter().cloned().collect();
    // Runs of items that are equal in all orders so far.
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

/// Sorts items that are equal in everything before this order; answers how long the runs are in which they still are.
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

/// Items with their keys in order; equal ones stay as they were.
#[must_use]
pub fn sorted_by_key(keyed: Vec<(SortKey, Datum)>, orders: &[Order]) -> Vec<(SortKey, Datum)> {
    let is_short = |(key, _): &(SortKey, Datum)| key.iter().flatten().all(is_short);
    sorted_by(keyed, is_short, |(a, _), (b, _)| compare(orders, a, b))
}
