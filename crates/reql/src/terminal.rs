//! Terms that make one value of many items, so that pieces can be done apart and put together.
//!
//! A terminal is accumulated where the items are, over pieces of a shard and over shards; the
//! partial results are merged in the order of the pieces and finished at the top. Arrays in
//! memory go the same way in one piece.

use std::collections::BTreeSet;

use datum::{Array, Datum};

use crate::args::finite;
use crate::closure::Closure;
use crate::env::Env;
use crate::error::EvalError;
use crate::order::{self, Order, SortKey};
use crate::select::Selector;

/// What becomes of the items.
#[derive(Clone, Debug)]
pub enum Terminal {
    /// All of them in an array: no terminal was written.
    Collect,
    /// How many there are.
    Count,
    /// The sum of the items, or of a value of each that has it.
    Sum(Option<Selector>),
    /// The mean, likewise.
    Avg(Option<Selector>),
    /// The first of the least items, by a value of each that has it.
    Min(Option<Selector>),
    /// The first of the greatest items, likewise.
    Max(Option<Selector>),
    /// What a function makes of two items, again and again.
    Reduce(Closure),
    /// The different items, ascending.
    Distinct,
    /// The first of the items in an order: `order_by` and `limit`. Of equal items the earlier come first.
    Top {
        /// The order.
        orders: Vec<Order>,
        /// How many.
        most: usize,
    },
}

/// What is known after some of the items.
#[derive(Clone, Debug)]
pub enum Partial {
    /// For `Collect`.
    Items(Vec<Datum>),
    /// For `Count`.
    Count(u64),
    /// For `Sum` and `Avg`: the sum, and of how many.
    Sum {
        /// The sum so far.
        sum: f64,
        /// Of how many.
        count: u64,
    },
    /// For `Min` and `Max`: what was compared, and the item.
    Best(Option<(Datum, Datum)>),
    /// For `Reduce`.
    Reduced(Option<Datum>),
    /// For `Distinct`.
    Set(BTreeSet<Datum>),
    /// For `Top`: what may be among the first. As many as are wanted are in order once there have been
    /// more than twice as many.
    Top(Vec<(SortKey, Datum)>),
}

/// Whether an item counted for anything. A group of items none of which did does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// It did.
    Yes,
    /// It lacks what the terminal looks at.
    No,
}

impl Terminal {
    /// What is known before the first item.
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

    /// Takes one more item into account.
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
                    // Adding it would be an error about something missing, which does not count.
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

    /// Puts what is known of later items behind what is known of earlier ones.
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

    /// The value of the term.
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
            (_, Partial::Reduced(reduced)) => {
                reduced.ok_or_else(|| EvalError::non_existence("Cannot reduce over an empty stream."))
            }
            (Terminal::Top { orders, most }, Partial::Top(items)) => {
                let mut items = order::sorted_by_key(items, orders);
                items.truncate(*most);
                Ok(Datum::Array(items.into_iter().map(|(_, item)| item).collect()))
            }
            (_, Partial::Top(_)) => Err(mixed_up()),
            (_, Partial::Set(set)) => Ok(Datum::Array(set.into_iter().collect::<Array>())),
        }
    }

    /// The term, for people.
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

    /// Whether everything the terminal calls can run inside a shard.
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

    /// Of equal items the earlier stays.
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

/// What a selector finds in an item: nothing at all, or the value, which is the item itself
/// (`Some(None)`) when there is no selector.
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

/// Adds an item unless there are enough that come before it. What cannot be wanted any more is thrown
/// away now and then, so that adding costs little and never more than twice as much is held.
fn add_to_top(orders: &[Order], most: usize, items: &mut Vec<(SortKey, Datum)>, new: (SortKey, Datum)) {
    /// So many are held without a look.
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
