//! Terms over several sequences, and the one that makes a sequence of nothing.

use datum::Datum;

use super::{Place, datum_at, sequence, value_at};
use crate::args::{Arg, integer};
use crate::error::EvalError;
use crate::order::Order;
use crate::signature::Op;
use crate::stream::{self, ArrayItems, Chained, Items, Merged, RangeItems, Zipped};
use crate::term::{Call, Term};
use crate::value::Value;

/// Several sequences, and whether what is made of them is an array.
struct Sources {
    items: Vec<Box<dyn Items>>,
    all_arrays: bool,
}

fn sources(terms: &[Term], place: Place<'_>) -> Result<Sources, EvalError> {
    let mut sources = Sources { items: Vec::with_capacity(terms.len()), all_arrays: true };
    for (i, term) in terms.iter().enumerate() {
        match value_at(term, place).map_err(|error| error.at(i))? {
            Value::Datum(Datum::Array(items)) => {
                sources.items.push(Box::new(ArrayItems::new(items)));
            }
            Value::Stream(items) => {
                sources.items.push(items);
                sources.all_arrays = false;
            }
            other => {
                let found = other.into_datum().map_err(|error| error.at(i))?;
                return Err(EvalError::not_a_sequence(&found).at(i));
            }
        }
    }
    Ok(sources)
}

/// An array if all sources were, else the stream itself.
fn shaped(mut items: Box<dyn Items>, all_arrays: bool, place: Place<'_>) -> Result<Value, EvalError> {
    match all_arrays {
        true => stream::collect(&mut *items, place.env).map(|all| Value::Datum(Datum::Array(all))),
        false => Ok(Value::Stream(items)),
    }
}

/// `map` over several sequences.
pub(super) fn map(call: &Call, place: Place<'_>) -> Result<Value, EvalError> {
    let place = place.plain();
    let Some((last, terms)) = call.args.split_last() else {
        return Err(EvalError::internal("map without arguments"));
    };
    let sources = sources(terms, place)?;
    let position = terms.len();
    let closure = match super::arg_at(last, place).map_err(|error| error.at(position))? {
        Arg::Func(closure) => closure,
        Arg::Datum(datum) => return Err(EvalError::not_a_function(&datum).at(position)),
    };
    let zipped = Zipped::new(sources.items, closure).map_err(|error| error.at(position))?;
    shaped(Box::new(zipped), sources.all_arrays, place)
}

/// `union`: one sequence after the other, or merged by an order they have.
pub(super) fn union(call: &Call, place: Place<'_>) -> Result<Value, EvalError> {
    let place = place.plain();
    let sources = sources(&call.args, place)?;
    let items: Box<dyn Items> = match interleave(call, place)? {
        Some(orders) => Box::new(Merged::new(sources.items, orders)),
        None => Box::new(Chained::new(sources.items)),
    };
    shaped(items, sources.all_arrays, place)
}

/// The order to merge by, if one was given: a field, a function, or an array of them.
fn interleave(call: &Call, place: Place<'_>) -> Result<Option<Vec<Order>>, EvalError> {
    let Some(term) = call.optarg("interleave") else { return Ok(None) };
    let orders = match term {
        Term::Datum(Datum::Bool(_)) => return Ok(None),
        Term::Datum(Datum::Array(fields)) => {
            let fields: Vec<Term> = fields.iter().cloned().map(Term::Datum).collect();
            sequence::orders(&fields, place, 0)
        }
        Term::Call(array) if array.op == Op::MakeArray => sequence::orders(&array.args, place, 0),
        Term::Call(other) if !matches!(other.op, Op::Asc | Op::Desc) => {
            match datum_at(term, place).map_err(|error| error.at("interleave"))? {
                Datum::Bool(_) => return Ok(None),
                field => sequence::orders(&[Term::Datum(field)], place, 0),
            }
        }
        one => sequence::orders(std::slice::from_ref(one), place, 0),
    };
    orders.map(Some).map_err(|error| error.at("interleave"))
}

/// `range`: all integers from 0, up to a bound, or between two.
pub(super) fn range(call: &Call, place: Place<'_>) -> Result<Value, EvalError> {
    let bound = |i: usize| -> Result<i64, EvalError> {
        match datum_at(&call.args[i], place.plain()).map_err(|error| error.at(i))? {
            Datum::Number(number) => integer(number).map_err(|error| error.at(i)),
            other => Err(EvalError::type_error("NUMBER", &other).at(i)),
        }
    };
    let items = match call.args.len() {
        0 => RangeItems::new(0, None),
        1 => RangeItems::new(0, Some(bound(0)?)),
        _ => RangeItems::new(bound(0)?, Some(bound(1)?)),
    };
    Ok(Value::Stream(Box::new(items)))
}
