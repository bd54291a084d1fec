//! Terminals: terms that aggregate many items into one value, in parts that can be merged.
//!
//! A terminal is accumulated where the items are, over ranges of a shard and over shards. The partial results are
//! merged in the order of the ranges and finished on the server that runs the query. Arrays in memory are processed
//! as a single part.

use std::collections::BTreeSet;

use datum::{Array, Datum};

use crate::args::finite;
use crate::closure::Closure;
use crate::env::Env;
use crate::error::EvalError;
use crate::order::{self, Order, SortKey};
use crate::select::Selector;

/// An aggregate of items.
#[derive(Clone, Debug)]
pub enum Terminal {
    /// All items in an array: there is no aggregating term.
    Collect,
    /// The number of items.
    Count,
    /// The sum of the items, or of a value of each item that has it.
    Sum(Option<Selector>),
    /// The mean, with the same choice of values.
    Avg(Option<Selector>),
    /// The first of the smallest items, compared by a value of each item that has it.
    Min(Option<Selector>),
    /// The first of the largest items, with the same choice of values.
    Max(Option<Selector>),
    /// The reduction of all items with a function of two items.
    Reduce(Closure),
    /// The distinct items, ascending.
    Distinct,
    /// The first items in an order: `order_by` and `limit`. Of equal items the earlier ones come first.
    Top {
        orders: Vec<Order>,
        /// The number of items.
        most: usize,
    },
}

/// The partial result after some of the items.
#[derive(Clone, Debug)]
pub enum Partial {
    /// For `Collect`.
    Items(Vec<Datum>),
    Count(u64),
    /// For `Sum` and `Avg`.
    Sum {
        /// The sum so far.
        sum: f64,
        /// The number of values added.
        count: u64,
    },
    /// For `Min` and `Max`: the compared value, and the item.
    Best(Option<(Datum, Datum)>),
    /// For `Reduce`.
    Reduced(Option<Datum>),
    /// For `Distinct`.
    Set(BTreeSet<Datum>),
    /// For `Top`: the candidates. They are sorted and cut to the requested number once there are more than twice as
    /// many.
    Top(Vec<(SortKey, Datum)>),
}

/// Whether an item counted. A group without any item that counted is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The item counted.
    Yes,
    /// The item lacks the value that the terminal needs.
    No,
}

impl Terminal {
    /// The partial result before the first item.
    #[must_use]
    pub fn start(&self) -> Partial {
        match self {
            Terminal::Collect => Partial::Items(Vec::new()),
            Terminal::Count => Partial::Count(0),
            Terminal::Sum(_) | Terminal::Avg(_) => Partial::Sum { sum: 0.0, count: 0 },
            Terminal::Min(_) | Terminal::Max(_) => Partial::Best(None),
            Terminal::Reduce(_) => Partial::Reduced(None),
            Terminal::Distinct => Partial::Set(BTreeSet::new()),
            Terminal::Top { .. } => Partial::Top(Vec::new()),
        }
    }

    /// Adds an item to `partial`. Fails past the array limit, and where a function of the query fails.
    pub fn add(&self, partial: &mut Partial, item: Datum, env: &Env<'_>) -> Result<Counted, EvalError> {
        match (self, partial) {
            (Terminal::Collect, Partial::Items(items)) => {
                env.check_array(items.len() + 1)?;
                items.push(item);
            }
            (Terminal::Count, Partial::Count(count)) => *count += 1,
            (Terminal::Sum(selector) | Terminal::Avg(selector), Partial::Sum { sum, count }) => {
                let Some(value) = compared(selector.as_ref(), &item, env)? else {
                    return Ok(Counted::No);
                };
                match value.as_ref().unwrap_or(&item) {
                    Datum::Number(number) => *sum += number,
                    // Adding it would be an error about a missing value, so it does not count.
                    Datum::Null => return Ok(Counted::No),
                    other => return Err(EvalError::type_error("NUMBER", other)),
                }
                *count += 1;
            }
            (Terminal::Min(selector) | Terminal::Max(selector), Partial::Best(best)) => {
                let Some(value) = compared(selector.as_ref(), &item, env)? else {
                    return Ok(Counted::No);
                };
                let value = value.unwrap_or_else(|| item.clone());
                self.keep_better(best, value, item);
            }
            (Terminal::Reduce(closure), Partial::Reduced(reduced)) => {
                let next = match reduced.take() {
                    Some(before) => closure.call(&[before, item], env).map_err(|error| error.at(1))?,
                    None => item,
                };
                *reduced = Some(next);
            }
            (Terminal::Distinct, Partial::Set(set)) => {
                set.insert(item);
                env.check_array(set.len())?;
            }
            (Terminal::Top { orders, most }, Partial::Top(items)) => {
                let key = order::sort_key(orders, &item, env)?;
                add_to_top(orders, *most, items, (key, item));
            }
            _ => return Err(mixed_up()),
        }
        Ok(Counted::Yes)
    }

    /// Appends the partial result of later items to that of earlier ones.
    pub fn merge(&self, earlier: &mut Partial, later: Partial, env: &Env<'_>) -> Result<(), EvalError> {
        match (earlier, later) {
            (Partial::Items(items), Partial::Items(mut more)) => {
                env.check_array(items.len() + more.len())?;
                items.append(&mut more);
            }
            (Partial::Count(count), Partial::Count(more)) => *count += more,
            (Partial::Sum { sum, count }, Partial::Sum { sum: more, count: of }) => {
                *sum += more;
                *count += of;
            }
            (Partial::Best(best), Partial::Best(Some((value, item)))) => {
                self.keep_better(best, value, item);
            }
            (Partial::Best(_), Partial::Best(None)) => {}
            (reduced @ Partial::Reduced(_), Partial::Reduced(Some(item))) => {
                self.add(reduced, item, env)?;
            }
            (Partial::Reduced(_), Partial::Reduced(None)) => {}
            (Partial::Set(set), Partial::Set(mut more)) => {
                set.append(&mut more);
                env.check_array(set.len())?;
            }
            (Partial::Top(items), Partial::Top(more)) => {
                let Terminal::Top { orders, most } = self else { return Err(mixed_up()) };
                more.into_iter().for_each(|item| add_to_top(orders, *most, items, item));
            }
            _ => return Err(mixed_up()),
        }
        Ok(())
    }

    /// The final value.
    pub fn finish(&self, partial: Partial) -> Result<Datum, EvalError> {
        match (self, partial) {
            (_, Partial::Items(items)) => Ok(Datum::from(items)),
            (_, Partial::Count(count)) => Ok(Datum::Number(count as f64)),
            (Terminal::Avg(_), Partial::Sum { count: 0, .. }) => Err(empty("average", "avg")),
            (Terminal::Avg(_), Partial::Sum { sum, count }) => finite(sum / count as f64),
            (_, Partial::Sum { sum, .. }) => finite(sum),
            (_, Partial::Best(Some((_, item)))) => Ok(item),
            (Terminal::Max(_), Partial::Best(None)) => Err(empty("max", "max")),
            (_, Partial::Best(None)) => Err(empty("min", "min")),
            (_, Partial::Reduced(Some(reduced))) => Ok(reduced),
            (Terminal::Reduce(closure), Partial::Reduced(None)) => {
                let empty = EvalError::non_existence("Cannot reduce over an empty stream.");
                Err(closure.at_body(empty).at(1))
            }
            (_, Partial::Reduced(None)) => Err(mixed_up()),
            (Terminal::Top { orders, most }, Partial::Top(items)) => {
                let mut items = order::sorted_by_key(items, orders);
                items.truncate(*most);
                Ok(Datum::Array(items.into_iter().map(|(_, item)| item).collect()))
            }
            (_, Partial::Top(_)) => Err(mixed_up()),
            (_, Partial::Set(set)) => Ok(Datum::Array(set.into_iter().collect::<Array>())),
        }
    }

    /// The name of the term, for people.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Terminal::Collect => "collect",
            Terminal::Count => "count",
            Terminal::Sum(_) => "sum",
            Terminal::Avg(_) => "avg",
            Terminal::Min(_) => "min",
            Terminal::Max(_) => "max",
            Terminal::Reduce(_) => "reduce",
            Terminal::Distinct => "distinct",
            Terminal::Top { .. } => "order_by and limit (the first are kept)",
        }
    }

    /// Whether all its functions can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Terminal::Sum(selector)
            | Terminal::Avg(selector)
            | Terminal::Min(selector)
            | Terminal::Max(selector) => selector.as_ref().is_none_or(Selector::is_closed),
            Terminal::Reduce(closure) => closure.func.closed,
            Terminal::Top { orders, .. } => orders.iter().all(|order| order.selector.is_closed()),
            Terminal::Collect | Terminal::Count | Terminal::Distinct => true,
        }
    }

    /// Of equal items the earlier one is kept.
    fn keep_better(&self, best: &mut Option<(Datum, Datum)>, value: Datum, item: Datum) {
        let better = match (self, best.as_ref()) {
            (_, None) => true,
            (Terminal::Max(_), Some((known, _))) => value > *known,
            (_, Some((known, _))) => value < *known,
        };
        if better {
            *best = Some((value, item));
        }
    }
}

/// The value of an item that a selector compares; `None` if it is missing, `Some(None)` for the item itself if
/// there is no selector.
fn compared(
    selector: Option<&Selector>,
    item: &Datum,
    env: &Env<'_>,
) -> Result<Option<Option<Datum>>, EvalError> {
    match selector {
        None => Ok(Some(None)),
        Some(selector) => {
            let value = selector.present(item, env).map_err(|error| error.at(1))?;
            Ok(value.map(Some))
        }
    }
}

/// Adds an item unless enough better ones are known. Surplus items are removed from time to time, so that adding is
/// cheap and at most about twice the requested number is held.
fn add_to_top(orders: &[Order], most: usize, items: &mut Vec<(SortKey, Datum)>, new: (SortKey, Datum)) {
    /// This many surplus items are always allowed.
    const SLACK: usize = 64;
    let full = most.saturating_mul(2).saturating_add(SLACK);
    if items.len() >= full {
        *items = order::sorted_by_key(std::mem::take(items), orders);
        items.truncate(most);
    }
    items.push(new);
}

fn empty(what: &str, term: &str) -> EvalError {
    EvalError::non_existence(format!(
        "Cannot take the {what} of an empty stream.  (If you passed `{term}` a field name, it may \
         be that no elements of the stream had that field.)"
    ))
}

fn mixed_up() -> EvalError {
    EvalError::internal("partial results of different terms were mixed up")
}
