//! `order_by`: a stream in the order of an index, or a sort in memory.

use datum::{Datum, Text};
use reql::purity::{self, Determinism};
use reql::{
    Call, Direction, ErrorClass, EvalError, IndexOption, Op, Operation, Order, Scope, Term, Terminal,
};

use super::sequence;
use super::sequence::SequenceCall;
use super::table::at_table;
use crate::context::Cx;
use crate::stream::{Pipe, Ties};
use crate::table::{Index, IndexItems, KeyOrder};
use crate::value::{Seq, Slice, Value};

/// `order_by`: the rows of a table in the order of an index, or items sorted by fields and functions.
pub(crate) fn order_by(over: SequenceCall<'_>) -> Result<Value, EvalError> {
    check_deterministic(&over)?;
    let operation = over.operation(IndexOption::Ignore)?;
    let Operation::OrderBy(orders) = &operation else { return Err(not_an_order()) };
    let nothing_there = match &over.first {
        Value::Table(_) => false,
        Value::Seq(seq) => seq.pipe.is_exhausted(),
        Value::Datum(Datum::Array(items)) => items.is_empty(),
        Value::Datum(single) => return Err(reql::not_a_sequence(single)),
        _ => return Err(sequence::no_sequence(over.cx, over.first)),
    };
    let index = index(&over)?;
    if orders.is_empty() && index.is_none() {
        return Err(reql::nothing_to_order_by());
    }
    if nothing_there {
        return Ok(over.first);
    }
    let Some((index, direction)) = index else {
        return sequence::applied(over.cx, over.call.op, over.first, operation);
    };
    let Value::Table(slice) = &over.first else { return Err(reql::needs_table()) };
    let Datum::String(index) = index else {
        let wrong = EvalError::type_error("STRING", &index);
        let own = over.call.optarg("index").is_some();
        return Err(if own { wrong.at("index") } else { wrong.frameless() });
    };
    if slice.order != KeyOrder::Any {
        let why = "Cannot perform multiple indexed ORDER_BYs on the same table.";
        return Err(at_table(over.call, EvalError::logic(why)));
    }
    if let Some(bounded) = slice.index.as_ref().filter(|bounded| **bounded != index) {
        return Err(at_table(over.call, ordered_otherwise(&index, bounded)));
    }
    let mut slice = slice.clone();
    slice.index = Some(index);
    slice.order = match direction {
        Direction::Ascending => KeyOrder::Ascending,
        Direction::Descending => KeyOrder::Descending,
    };
    match operation {
        Operation::OrderBy(rest) if !rest.is_empty() => with_ties(over.cx, slice, rest),
        _ => Ok(Value::Table(slice)),
    }
}

/// `limit` of an order without index: only that many rows are kept, where the rows are. `None` when `limit` has another
/// form.
pub(crate) fn first_of_ordered(cx: &Cx, limit: &Call, scope: &Scope<'_>) -> Option<Result<Value, EvalError>> {
    let [Term::Call(ordered), Term::Datum(Datum::Number(most))] = limit.args.as_slice() else { return None };
    let by_index = ordered.optarg("index").is_some() || cx.has_global("index");
    let plain = ordered.op == Op::OrderBy && !by_index && !ordered.traits.splices;
    let whole = most.fract() == 0.0 && (0.0..=TOP_ITEMS_MAX).contains(most);
    (plain && whole).then(|| top(cx, ordered, *most as usize, limit, scope))
}

/// Larger limits sort all rows.
const TOP_ITEMS_MAX: f64 = 100_000.0;

fn top(cx: &Cx, ordered: &Call, most: usize, limit: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let Some(term) = ordered.args.first() else {
        return Err(EvalError::internal("ORDER_BY without arguments"));
    };
    let first = cx.eval(term, scope).map_err(|error| error.at(0).at(0))?;
    let read_here = match &first {
        Value::Table(_) => true,
        Value::Seq(seq) => !seq.eager && !seq.pipe.is_exhausted(),
        _ => false,
    };
    if !read_here {
        return sorted_whole(cx, ordered, limit, scope, first);
    }
    let over = SequenceCall { cx, call: ordered, scope, first };
    check_deterministic(&over).map_err(|error| error.at(0))?;
    let Operation::OrderBy(orders) = over.operation(IndexOption::Refuse).map_err(|error| error.at(0))? else {
        return Err(not_an_order());
    };
    let seq = over.first.into_seq(cx).map_err(|error| error.at(0).at(0))?;
    match sequence::end(cx, seq.pipe, Vec::new(), Terminal::Top { orders, most }) {
        Ok(top) => Ok(sequence::selection_of_array(seq.table, Value::of_closed(top))),
        Err(error) if may_be_unneeded(&error) && purity::can_be_repeated(term) => {
            let again = cx.eval(term, scope).map_err(|error| error.at(0).at(0))?;
            sorted_whole(cx, ordered, limit, scope, again).map_err(|other| match other.class() {
                ErrorClass::ResourceLimit => error.at(0),
                _ => other,
            })
        }
        Err(error) => Err(error.at(0)),
    }
}

fn sorted_whole(
    cx: &Cx,
    ordered: &Call,
    limit: &Call,
    scope: &Scope<'_>,
    first: Value,
) -> Result<Value, EvalError> {
    let sorted = cx.apply_to(ordered, scope, first).map_err(|error| error.at(0))?;
    cx.apply_to(limit, scope, sorted)
}

/// Whether the error may be about a key that a complete sort never compares: the key of the only item, or a later key
/// of an item whose first key is unique. Keeping the first items evaluates all keys.
fn may_be_unneeded(error: &EvalError) -> bool {
    matches!(error.class(), ErrorClass::QueryLogic | ErrorClass::NonExistence | ErrorClass::User)
}

/// The error of a range of one index in the order of another.
pub(crate) fn ordered_otherwise(index: &Text, bounded: &Text) -> EvalError {
    EvalError::logic(format!("Cannot order by index `{index}` after calling BETWEEN on index `{bounded}`."))
}

/// Rows in the order of an index; those with equal values are sorted by the rest.
fn with_ties(cx: &Cx, slice: Slice, rest: Vec<Order>) -> Result<Value, EvalError> {
    if slice.is_empty() || matches!(slice.table.index(cx, &slice.index_name())?, Index::Primary) {
        // Primary keys are never equal.
        return slice.into_seq(cx).map(Value::Seq);
    }
    let pairs = Pipe::of_source(slice.source(cx, IndexItems::Pairs)?).open(cx)?;
    Ok(Value::Seq(Seq::selection(slice.table, Pipe::of_items(Ties::new(pairs, rest)))))
}

/// The name of the index for the order, and the direction.
fn index(over: &SequenceCall<'_>) -> Result<Option<(Datum, Direction)>, EvalError> {
    match over.call.optarg("index").map(directed) {
        Some((term, direction)) => {
            let named = over.cx.eval_datum(term, over.scope).map_err(|error| error.at("index"))?;
            Ok(Some((named, direction)))
        }
        None => Ok(over.cx.global("index")?.map(|named| (named.clone(), Direction::Ascending))),
    }
}

/// A term inside ASC or DESC, and its direction; ascending without either.
fn directed(term: &Term) -> (&Term, Direction) {
    let Term::Call(call) = term else { return (term, Direction::Ascending) };
    match (call.op, call.args.as_slice()) {
        (Op::Asc, [inner]) => (inner, Direction::Ascending),
        (Op::Desc, [inner]) => (inner, Direction::Descending),
        _ => (term, Direction::Ascending),
    }
}

fn check_deterministic(over: &SequenceCall<'_>) -> Result<(), EvalError> {
    let func = |term: &Term| matches!(directed(term).0, Term::Func(_));
    match over.call.args.iter().skip(1).find(|term| func(term) && purity::of_term(term) == Determinism::Never)
    {
        None => Ok(()),
        Some(_) => Err(EvalError::logic("Sorting by a non-deterministic function is not supported.")),
    }
}

fn not_an_order() -> EvalError {
    EvalError::internal("ORDER_BY is not an order operation")
}
