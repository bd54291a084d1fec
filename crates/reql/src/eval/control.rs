//! Terms that control which of their arguments are evaluated, and terms that build arrays and objects.

use std::ops::ControlFlow;

use datum::{Datum, ObjectBuilder};

use super::{Context, call_at, datum_at, func_at, value_at};
use crate::args::{Arg, Args};
use crate::closure;
use crate::error::EvalError;
use crate::op::{checked_object, merge};
use crate::operation;
use crate::signature::Op;
use crate::term::{Call, FuncTerm, Term};
use crate::value::{Grouped, GroupedKind, Value};

/// A term whose first argument is grouped: applies it to each group and evaluates its other arguments for each.
/// Source: `op_term_t::term_eval` in op.cc of RethinkDB 2.4.
pub(super) fn per_group(call: &Call, first: Value, context: Context<'_>) -> Result<Value, EvalError> {
    let Value::Grouped(grouped) = operation::collect_groups(first, context.env)? else {
        return Err(EvalError::internal("not grouped"));
    };
    let mut call = call.clone();
    let mut groups = Vec::with_capacity(grouped.groups.len());
    for (key, value) in grouped.groups {
        context.env.check_cancel()?;
        if let Some(first) = call.args.first_mut() {
            *first = Term::Datum(value);
        }
        groups.push((key, call_at(&call, context)?.into_datum()?));
    }
    Ok(Value::Grouped(Box::new(Grouped { kind: GroupedKind::Data, groups })))
}

/// Argument `i` as a datum. If it is the first argument and grouped, the result for its groups instead.
pub(super) fn datum_or_groups(
    call: &Call,
    i: usize,
    context: Context<'_>,
) -> Result<ControlFlow<Value, Datum>, EvalError> {
    let of_argument = if call.op == Op::MakeArray { context } else { context.plain() };
    match value_at(&call.args[i], of_argument).map_err(|error| error.at(i))? {
        groups @ (Value::Grouped(_) | Value::Grouping(_)) if i == 0 => {
            per_group(call, groups, context).map(ControlFlow::Break)
        }
        value => value.into_datum().map(ControlFlow::Continue).map_err(|error| error.at(i)),
    }
}

/// `[a, b, …]`
pub(super) fn make_array(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    // Evaluates one item beyond the limit as well: errors in it or before it take precedence over the limit.
    let count = call.args.len().min(context.env.array_limit.saturating_add(1));
    let mut items = Vec::with_capacity(count);
    for i in 0..count {
        match datum_or_groups(call, i, context)? {
            ControlFlow::Continue(item) => items.push(item),
            ControlFlow::Break(groups) => return Ok(groups),
        }
    }
    context.env.check_array(items.len())?;
    Ok(Value::Datum(Datum::from(items)))
}

/// `{key: value, …}`
pub(super) fn make_obj(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    let mut members = ObjectBuilder::new();
    for (key, term) in &call.optargs {
        let value = datum_at(term, context).map_err(|error| error.at(key))?;
        members.insert(key.clone(), value);
    }
    checked_object(members).map(Value::Datum)
}

/// `branch`: the value after the first true test, otherwise the last value.
pub(super) fn branch(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    if call.args.len().is_multiple_of(2) {
        return Err(EvalError::logic("Cannot call `branch` term with an even number of arguments."));
    }
    let otherwise = call.args.len() - 1;
    let mut chosen = otherwise;
    for test in (0..otherwise).step_by(2) {
        match datum_or_groups(call, test, context)? {
            ControlFlow::Continue(value) if value.is_truthy() => {
                chosen = test + 1;
                break;
            }
            ControlFlow::Continue(_) => {}
            ControlFlow::Break(groups) => return Ok(groups),
        }
    }
    value_at(&call.args[chosen], context).map_err(|error| error.at(chosen))
}

/// `and`, `or`: the first operand that decides the result, otherwise the last one.
pub(super) fn and_or(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    let decides = call.op == Op::Or;
    let mut last = Datum::Bool(!decides);
    for i in 0..call.args.len() {
        last = match datum_or_groups(call, i, context)? {
            ControlFlow::Continue(value) => value,
            ControlFlow::Break(groups) => return Ok(groups),
        };
        if last.is_truthy() == decides {
            break;
        }
    }
    Ok(Value::Datum(last))
}

/// `error`: raises the given message; without one, the error that `default` caught.
pub(super) fn error(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    if call.args.is_empty() {
        return Err(EvalError::empty_error());
    }
    match datum_or_groups(call, 0, context)? {
        ControlFlow::Continue(Datum::String(text)) => Err(EvalError::user(text.to_string())),
        ControlFlow::Continue(other) => Err(EvalError::type_error("STRING", &other).at(0)),
        ControlFlow::Break(groups) => Ok(groups),
    }
}

/// `default`: the second argument if the first is null or fails because something is missing.
pub(super) fn default(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    let [first, second] = call.args.as_slice() else {
        return Err(EvalError::internal("default without two arguments"));
    };
    let caught = match value_at(first, context).map_err(|error| error.at(0)) {
        Ok(Value::Datum(Datum::Null)) => None,
        Err(error) if error.is_non_existence() => Some(error),
        decided => return decided,
    };
    match otherwise(second, caught.as_ref(), context) {
        Err(error) if error.is_empty_error() => match caught {
            Some(caught) => Err(caught),
            None => Ok(Value::Datum(Datum::Null)),
        },
        decided => decided.map_err(|error| error.at(1)),
    }
}

/// The replacement: a value, or a function of the caught message.
fn otherwise(term: &Term, caught: Option<&EvalError>, context: Context<'_>) -> Result<Value, EvalError> {
    match value_at(term, context)? {
        Value::Func(closure) => {
            let message = caught.map_or(Datum::Null, |error| Datum::from(error.message()));
            closure.call(&[message], context.env).map(Value::Datum)
        }
        other => Ok(other),
    }
}

/// `literal`: replaces a value instead of merging into it. Legal only inside a merge.
pub(super) fn literal(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    if !context.literals {
        return Err(merge::stray_literal());
    }
    let mut values = Vec::with_capacity(1);
    if let Some(term) = call.args.first() {
        values.push(Arg::Datum(datum_at(term, context.plain()).map_err(|error| error.at(0))?));
    }
    merge::literal(&Args::new(&values, &[], context.env)).map(Value::Datum)
}

/// `args` outside an argument list: the array itself.
pub(super) fn args(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    let Some(term) = call.args.first() else { return Err(EvalError::internal("args without an argument")) };
    match value_at(term, context).and_then(Value::into_datum).map_err(|error| error.at(0))? {
        items @ Datum::Array(_) => Ok(Value::Datum(items)),
        other => Err(EvalError::type_error("ARRAY", &other)),
    }
}

/// `do`: calls a function and returns its value, of any kind; a value that is not a function is returned unchanged.
pub(super) fn funcall(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    let called = match call.args.first() {
        Some(Term::Func(func)) => Called::Here(func),
        Some(term) => Called::Found(func_at(term, context).map_err(|error| error.at(0))?),
        None => return Err(EvalError::internal("do without a function")),
    };
    let mut values = Vec::with_capacity(call.args.len().saturating_sub(1));
    for (i, term) in call.args.iter().enumerate().skip(1) {
        let value = value_at(term, context.plain()).map_err(|error| error.at(i))?;
        match operation::collect_groups(value, context.env)? {
            Value::Grouped(grouped) if i == 1 => return funcall_groups(call, &called, *grouped, context),
            other => values.push(other.into_datum().map_err(|error| error.at(i))?),
        }
    }
    called.with(&values, context).map_err(|error| error.at(0))
}

/// The value that `do` calls.
enum Called<'a> {
    /// A function written in place. Its body runs in the enclosing scope, without capturing.
    Here(&'a FuncTerm),
    /// The value of another term: a function, or a datum.
    Found(Arg),
}

impl Called<'_> {
    fn with(&self, values: &[Datum], context: Context<'_>) -> Result<Value, EvalError> {
        match self {
            Called::Here(func) => {
                closure::check_arity(func.params.len(), values.len())?;
                let scope = context.scope.inner(&func.params, values);
                value_at(&func.body, Context { scope: &scope, ..context }).map_err(|error| error.at(1))
            }
            Called::Found(Arg::Func(closure)) => closure.call(values, context.env).map(Value::Datum),
            Called::Found(Arg::Datum(datum)) => Ok(Value::Datum(datum.clone())),
        }
    }
}

fn funcall_groups(
    call: &Call,
    called: &Called<'_>,
    grouped: Grouped,
    context: Context<'_>,
) -> Result<Value, EvalError> {
    let mut later = Vec::new();
    for (i, term) in call.args.iter().enumerate().skip(2) {
        later.push(datum_at(term, context.plain()).map_err(|error| error.at(i))?);
    }
    let mut groups = Vec::with_capacity(grouped.groups.len());
    for (key, value) in grouped.groups {
        let mut values = vec![value];
        values.extend(later.iter().cloned());
        groups.push((key, called.with(&values, context)?.into_datum()?));
    }
    Ok(Value::Grouped(Box::new(Grouped { kind: GroupedKind::Data, groups })))
}
