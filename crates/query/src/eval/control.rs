//! Terms that decide themselves which of their arguments to evaluate.

use std::ops::ControlFlow;

use datum::{Datum, ObjectBuilder};
use reql::{Call, EvalError, Op, Scope, Term};

use super::grouped;
use crate::context::Cx;
use crate::value::{Row, Value, datums};

/// Argument `i` as a datum; breaks with the result per group if it is the first argument and grouped.
fn datum_or_groups(
    cx: &Cx,
    call: &Call,
    i: usize,
    scope: &Scope<'_>,
) -> Result<ControlFlow<Value, Datum>, EvalError> {
    match cx.eval(&call.args[i], scope).map_err(|error| error.at(i))? {
        Value::Grouped(groups) if i == 0 => grouped::again(cx, call, scope, groups).map(ControlFlow::Break),
        value => value.into_datum(cx).map(ControlFlow::Continue).map_err(|error| error.at(i)),
    }
}

/// `do`: calls a function with the values of the other arguments. A datum stands for a function that returns it.
pub(super) fn funcall(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let Some((func, terms)) = call.args.split_first() else {
        return Err(EvalError::internal("FUNCALL without a function"));
    };
    let func = match cx.eval(func, scope).map_err(|error| error.at(0))? {
        Value::Func(closure) => closure,
        constant @ (Value::Datum(_) | Value::Row(_)) => {
            let answer = constant.into_datum(cx).map_err(|error| error.at(0))?;
            reql::closure_of_argument(&Term::Datum(answer), scope)?
        }
        other => return Err(other.mismatch("FUNCTION").at(0)),
    };
    let mut rest = Vec::with_capacity(terms.len());
    for (i, term) in terms.iter().enumerate() {
        rest.push(cx.eval(term, scope).map_err(|error| error.at(i + 1))?);
    }
    match rest.first() {
        Some(Value::Grouped(_)) => match rest.remove(0) {
            Value::Grouped(groups) => grouped::call(cx, groups, &func, rest),
            _ => Err(EvalError::internal("not grouped")),
        },
        _ => {
            let datums = datums(cx, rest, 1)?;
            cx.call_value(&func, &datums).map_err(|error| error.at(0))
        }
    }
}

/// `branch`: the value after the first test that is true, or the last argument.
pub(super) fn branch(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    if call.args.len().is_multiple_of(2) {
        return Err(EvalError::logic("Cannot call `branch` term with an even number of arguments."));
    }
    let otherwise = call.args.len() - 1;
    let mut chosen = otherwise;
    for test in (0..otherwise).step_by(2) {
        match datum_or_groups(cx, call, test, scope)? {
            ControlFlow::Continue(value) if value.is_truthy() => {
                chosen = test + 1;
                break;
            }
            ControlFlow::Continue(_) => {}
            ControlFlow::Break(groups) => return Ok(groups),
        }
    }
    cx.eval(&call.args[chosen], scope).map_err(|error| error.at(chosen))
}

/// `and`, `or`: the value that decides, which may be a row of a table.
pub(super) fn and_or(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let decides = call.op == Op::Or;
    let mut last = Value::Datum(Datum::Bool(!decides));
    for i in 0..call.args.len() {
        let at = |error: EvalError| error.at(i);
        last = match cx.eval(&call.args[i], scope).map_err(at)? {
            Value::Grouped(groups) if i == 0 => return grouped::again(cx, call, scope, groups),
            value => value,
        };
        let holds = match &last {
            Value::Datum(datum) => datum.is_truthy(),
            Value::Row(row) => row.datum(cx).map_err(at)?.is_truthy(),
            other => return Err(at(other.mismatch("DATUM"))),
        };
        if holds == decides {
            break;
        }
    }
    Ok(last)
}

/// `eq`, `lt` and other comparisons of several values: arguments after the two that decide are not evaluated.
pub(super) fn compare(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let value = |i: usize| cx.eval(&call.args[i], scope).map_err(|error| error.at(i));
    let first = value(0)?;
    if matches!(first, Value::Grouped(_)) {
        return grouped::each(cx, call, scope, vec![first]);
    }
    let mut left = first.into_datum(cx).map_err(|error| error.at(0))?;
    for i in 1..call.args.len() {
        let right = value(i)?.into_datum(cx).map_err(|error| error.at(i))?;
        if let Some(answer) = reql::op::decided(call.op, &left, &right) {
            return Ok(Value::Datum(answer));
        }
        left = right;
    }
    Ok(Value::Datum(Datum::Bool(call.op != Op::Ne)))
}

/// `default`: the value, or the other one when the value is null or something in it is missing.
pub(super) fn default(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let [first, second] = call.args.as_slice() else {
        return Err(EvalError::internal("DEFAULT without two arguments"));
    };
    let caught = match cx.eval(first, scope).and_then(|value| settle(cx, value)) {
        Ok(Value::Datum(Datum::Null)) => None,
        Err(error) if error.is_non_existence() => Some(error.at(0)),
        decided => return decided.map_err(|error| error.at(0)),
    };
    match otherwise(cx, second, caught.as_ref(), scope) {
        // `r.error()` without a message raises the original error again.
        Err(error) if error.is_empty_error() => match caught {
            Some(caught) => Err(caught),
            None => Ok(Value::Datum(Datum::Null)),
        },
        decided => decided.map_err(|error| error.at(1)),
    }
}

/// The replacement: a value, or a function of the error message.
fn otherwise(
    cx: &Cx,
    term: &Term,
    caught: Option<&EvalError>,
    scope: &Scope<'_>,
) -> Result<Value, EvalError> {
    match cx.eval(term, scope)? {
        Value::Func(closure) => {
            let message = caught.map_or(Datum::Null, |error| error.message().into());
            cx.call_value(&closure, &[message])
        }
        other => Ok(other),
    }
}

/// Reads a row, because it may be null; streams pass through.
fn settle(cx: &Cx, value: Value) -> Result<Value, EvalError> {
    let Value::Row(row) = value else { return Ok(value) };
    let table = row.table.clone();
    match row.into_datum(cx)? {
        Datum::Null => Ok(Value::Datum(Datum::Null)),
        datum => Row::of_selection(table, datum).map(Value::Row),
    }
}

/// `args` where there is nothing to splice into: the array itself.
pub(super) fn args(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let Some(term) = call.args.first() else { return Err(EvalError::internal("args without an argument")) };
    match cx.eval_datum(term, scope).map_err(|error| error.at(0))? {
        items @ Datum::Array(_) => Ok(Value::Datum(items)),
        other => Err(EvalError::type_error("ARRAY", &other)),
    }
}

/// An array with open items.
pub(super) fn make_array(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    // The first item beyond the limit is evaluated too: an error in it is reported before the limit.
    let count = call.args.len().min(cx.array_limit.saturating_add(1));
    let mut items: Vec<Datum> = Vec::with_capacity(count);
    for i in 0..count {
        match datum_or_groups(cx, call, i, scope)? {
            ControlFlow::Continue(item) => items.push(item),
            ControlFlow::Break(groups) => return Ok(groups),
        }
    }
    cx.check_array(items.len())?;
    Ok(Value::Datum(items.into()))
}

/// An object with open members.
pub(super) fn make_obj(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let mut out = ObjectBuilder::new();
    for (name, term) in &call.optargs {
        let value = cx.eval_datum(term, scope).map_err(|error| error.at(name))?;
        out.insert(name.clone(), value);
    }
    reql::op::checked_object(out).map(Value::Datum)
}
