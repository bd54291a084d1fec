//! Terms over several sequences (`map`, `union`), and `range`.

use std::ops::ControlFlow;

use datum::Datum;

use super::{Context, control, func_at, order_by, value_at};
use crate::args::{Arg, integer};
use crate::backtrace::Frame;
use crate::error::EvalError;
use crate::order::Order;
use crate::signature::Op;
use crate::stream::{self, ArrayItems, Chained, Items, Merged, RangeItems, Zipped};
use crate::term::{Call, Term};
use crate::value::{GroupedKind, Value};

/// Several sequences, and whether their combination is an array.
struct Sources {
    items: Vec<Box<dyn Items>>,
    all_arrays: bool,
}

/// The first arguments of `call` as sequences. If the first is grouped, the result for its groups instead. Source:
/// for `map` only `is_grouped_seq_op` in op.hpp of RethinkDB 2.4; groups that are sequences are not values yet.
fn sources(
    call: &Call,
    count: usize,
    context: Context<'_>,
) -> Result<ControlFlow<Value, Sources>, EvalError> {
    let mut sources = Sources { items: Vec::with_capacity(count), all_arrays: true };
    for (i, term) in call.args.iter().take(count).enumerate() {
        match value_at(term, context).map_err(|error| error.at(i))? {
            groups @ (Value::Grouped(_) | Value::Grouping(_))
                if i == 0 && (call.op == Op::Union || !is_stream(&groups)) =>
            {
                return control::per_group(call, groups, context).map(ControlFlow::Break);
            }
            Value::Datum(Datum::Array(items)) => {
                sources.items.push(Box::new(ArrayItems::new(items)));
            }
            Value::Stream(items) => {
                sources.items.push(items);
                sources.all_arrays = false;
            }
            Value::Datum(other) => return Err(EvalError::not_a_sequence(&other)),
            other => return Err(other.no_sequence().at(i)),
        }
    }
    Ok(ControlFlow::Continue(sources))
}

fn is_stream(groups: &Value) -> bool {
    !matches!(groups, Value::Grouped(grouped) if grouped.kind == GroupedKind::Data)
}

/// An array if all sources were arrays, otherwise the stream itself.
fn shaped(mut items: Box<dyn Items>, all_arrays: bool, context: Context<'_>) -> Result<Value, EvalError> {
    if !all_arrays {
        return Ok(Value::Stream(items));
    }
    context.env.check_batches()?;
    stream::collect(&mut *items, context.env).map(|all| Value::Datum(Datum::Array(all)))
}

/// `map` over several sequences.
pub(super) fn map(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    let context = context.plain();
    let Some((last, terms)) = call.args.split_last() else {
        return Err(EvalError::internal("map without arguments"));
    };
    let position = terms.len();
    let sources = match sources(call, position, context)? {
        ControlFlow::Continue(sources) => sources,
        ControlFlow::Break(groups) => return Ok(groups),
    };
    let closure = match super::arg_at(last, context).map_err(|error| error.at(position))? {
        Arg::Func(closure) => closure,
        Arg::Datum(datum) => return Err(EvalError::not_a_function(&datum).at(position)),
    };
    let zipped = Zipped::new(sources.items, closure)?;
    shaped(Box::new(zipped), sources.all_arrays, context)
}

/// `union`: sequences one after the other, or merged in a given order.
pub(super) fn union(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    let context = context.plain();
    let sources = match sources(call, call.args.len(), context)? {
        ControlFlow::Continue(sources) => sources,
        ControlFlow::Break(groups) => return Ok(groups),
    };
    let items: Box<dyn Items> = match interleave(call, context)? {
        Some(orders) => Box::new(Merged::new(sources.items, orders)),
        None => Box::new(Chained::new(sources.items)),
    };
    shaped(items, sources.all_arrays, context)
}

/// The order to merge by, if the query gives one: a field, a function, or an array of them.
pub(super) fn interleave(call: &Call, context: Context<'_>) -> Result<Option<Vec<Order>>, EvalError> {
    let Some(term) = call.optarg("interleave") else { return Ok(None) };
    let option = || Frame::from("interleave");
    let alone = |_| vec![option()];
    let in_array = |i: usize| vec![Frame::from(i), option()];
    let orders = match term {
        Term::Datum(Datum::Bool(_)) => return Ok(None),
        Term::Datum(Datum::Array(fields)) => {
            let fields: Vec<Term> = fields.iter().cloned().map(Term::Datum).collect();
            order_by::orders(&fields, context, in_array)
        }
        Term::Call(array) if array.op == Op::MakeArray => order_by::orders(&array.args, context, in_array),
        Term::Call(other) if !matches!(other.op, Op::Asc | Op::Desc) => {
            match func_at(term, context).map_err(|error| error.at(option()))? {
                Arg::Datum(Datum::Bool(_)) => return Ok(None),
                Arg::Datum(field) => order_by::orders(&[Term::Datum(field)], context, alone),
                Arg::Func(_) => order_by::orders(std::slice::from_ref(term), context, alone),
            }
        }
        one => order_by::orders(std::slice::from_ref(one), context, alone),
    };
    orders.map(Some)
}

/// `range`: all integers from 0, up to a bound, or between two.
pub(super) fn range(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    let mut bounds = Vec::with_capacity(2);
    for i in 0..call.args.len() {
        bounds.push(match control::datum_or_groups(call, i, context)? {
            ControlFlow::Continue(Datum::Number(number)) => integer(number).map_err(|error| error.at(i))?,
            ControlFlow::Continue(other) => return Err(EvalError::type_error("NUMBER", &other).at(i)),
            ControlFlow::Break(groups) => return Ok(groups),
        });
    }
    let items = match bounds.as_slice() {
        [] => RangeItems::new(0, None),
        [end] => RangeItems::new(0, Some(*end)),
        [start, end, ..] => RangeItems::new(*start, Some(*end)),
    };
    Ok(Value::Stream(Box::new(items)))
}
