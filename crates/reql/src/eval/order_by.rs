//! `order_by` without tables, and the orders that any term can name.

use datum::Datum;

use super::{Context, func_at, value_at};
use crate::args::Arg;
use crate::backtrace::Frame;
use crate::error::EvalError;
use crate::operation::Operation;
use crate::order::{self, Direction, Order};
use crate::purity::{self, Determinism};
use crate::select::Selector;
use crate::signature::Op;
use crate::term::{Call, Term};
use crate::value::Value;

/// `order_by` of `source`, its first argument. The other arguments are checked first; a missing table is reported
/// only if there are items to order. Source: `orderby_term_t` in terms/sort.cc of RethinkDB 2.4.
pub(super) fn order_by(call: &Call, source: Value, context: Context<'_>) -> Result<Value, EvalError> {
    let orders = orders(&call.args[1..], context, |i| vec![Frame::from(i + 1)])?;
    let nothing_there = match &source {
        Value::Grouped(_) | Value::Grouping(_) => false,
        Value::Datum(Datum::Array(items)) => items.is_empty(),
        Value::Stream(items) => items.is_exhausted(),
        single @ Value::Datum(_) => return Err(single.no_sequence()),
        other => return Err(other.no_sequence().at(0)),
    };
    let index = call.optarg("index").map(|index| value_at(direction(index).1, context));
    let indexed = index.transpose().map_err(|error| error.at("index"))?.is_some();
    if indexed && !nothing_there {
        return Err(order::needs_table());
    }
    if orders.is_empty() && !indexed {
        return Err(order::nothing_to_order_by());
    }
    if nothing_there { Ok(source) } else { Operation::OrderBy(orders).apply(source, context.env) }
}

/// The orders in `terms`, each of which may be wrapped in ASC or DESC. `path` gives the path to each of them,
/// innermost frame first.
pub(super) fn orders(
    terms: &[Term],
    context: Context<'_>,
    path: impl Fn(usize) -> Vec<Frame>,
) -> Result<Vec<Order>, EvalError> {
    let order = |(i, term): (usize, &Term)| {
        let mut path = path(i);
        let (direction, inner) = direction(term);
        if !std::ptr::eq(inner, term) {
            path.insert(0, Frame::from(0));
        }
        if matches!(inner, Term::Func(_)) && purity::of_term(inner) == Determinism::Never {
            return Err(not_deterministic());
        }
        let arg = func_at(inner, context).map_err(|error| error.at_end_of(&path))?;
        if matches!(&arg, Arg::Func(closure) if closure.as_foreign().is_some()) {
            return Err(not_deterministic());
        }
        Ok(Order { selector: Selector::from(arg), direction, path })
    };
    terms.iter().enumerate().map(order).collect()
}

/// Functions in another language count as such.
fn not_deterministic() -> EvalError {
    EvalError::logic("Sorting by a non-deterministic function is not supported.")
}

fn direction(term: &Term) -> (Direction, &Term) {
    let Term::Call(call) = term else { return (Direction::Ascending, term) };
    match (call.op, call.args.first()) {
        (Op::Asc, Some(inner)) => (Direction::Ascending, inner),
        (Op::Desc, Some(inner)) => (Direction::Descending, inner),
        _ => (Direction::Ascending, term),
    }
}
