//! Leaf terms: all arguments are evaluated, then the term is applied.

use datum::{Datum, ObjectBuilder, Text};

use super::{Context, arg_at, datum_at, not_here, optargs_at, value_at};
use crate::args::{Arg, Args};
use crate::error::EvalError;
use crate::op::{self, Leaf, coerce};
use crate::operation;
use crate::print;
use crate::signature::Op;
use crate::stream;
use crate::term::{Call, Term};
use crate::value::{Grouped, GroupedKind, Value};

/// Evaluates a call of a leaf term.
pub(super) fn value(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    let context = context.plain();
    let leaf = op::leaf(call.op).ok_or_else(|| not_here(call.op))?;
    let Some((first, rest)) = call.args.split_first() else {
        return finish(leaf, &[], call, context);
    };
    let first = match value_at(first, context).map_err(|error| error.at(0))? {
        Value::Datum(datum) => Arg::Datum(datum),
        other => match other_source(leaf, call, other, context)? {
            Source::Arg(arg) => arg,
            Source::Value(value) => return Ok(value),
        },
    };
    // A small number of arguments is kept on the stack.
    let arg = |i: usize, term: &Term| arg_at(term, context).map_err(|error| error.at(i));
    match rest {
        [] => finish(leaf, &[first], call, context),
        [second] => match arg(1, second) {
            Ok(second) => finish(leaf, &[first, second], call, context),
            Err(error) => Err(failed(leaf, &[first], call, error, context)),
        },
        [second, third] if !op::is_comparison(call.op) => {
            let two = match arg(1, second) {
                Ok(second) => [first, second],
                Err(error) => return Err(failed(leaf, &[first], call, error, context)),
            };
            match arg(2, third) {
                Ok(third) => {
                    let [first, second] = two;
                    finish(leaf, &[first, second, third], call, context)
                }
                Err(error) => Err(failed(leaf, &two, call, error, context)),
            }
        }
        more => {
            let mut values = Vec::with_capacity(call.args.len());
            values.push(first);
            for (i, term) in more.iter().enumerate() {
                let value = match arg(i + 1, term) {
                    Ok(value) => value,
                    Err(error) => return Err(failed(leaf, &values, call, error, context)),
                };
                if let (Some(Arg::Datum(left)), Arg::Datum(right)) = (values.last(), &value)
                    && let Some(answer) = op::decided(call.op, left, right)
                {
                    return Ok(Value::Datum(answer));
                }
                values.push(value);
            }
            finish(leaf, &values, call, context)
        }
    }
}

fn finish(leaf: Leaf, values: &[Arg], call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    if call.optargs.is_empty() {
        return leaf(&Args::new(values, &[], context.env)).map(Value::Datum);
    }
    let optargs = optargs_at(call, context)?;
    leaf(&Args::new(values, &optargs, context.env)).map(Value::Datum)
}

/// The error of a call one of whose arguments failed with `error`, when those before it have `values`.
fn failed(leaf: Leaf, values: &[Arg], call: &Call, error: EvalError, context: Context<'_>) -> EvalError {
    let Ok(optargs) = optargs_at(call, context) else { return error };
    leaf(&Args::until(values, call.args.len(), &error, &optargs, context.env)).err().unwrap_or(error)
}

/// A first argument that is not a datum: the value to continue with, or the final value.
enum Source {
    Arg(Arg),
    Value(Value),
}

fn other_source(leaf: Leaf, call: &Call, value: Value, context: Context<'_>) -> Result<Source, EvalError> {
    let value = match call.op {
        Op::TypeOf | Op::Info => value,
        _ => operation::collect_groups(value, context.env)?,
    };
    match (call.op, value) {
        (Op::TypeOf, value) => {
            let name = Text::from_static(value.type_name());
            Ok(Source::Value(Value::Datum(Datum::String(name))))
        }
        (Op::Info, value) => Ok(Source::Value(Value::Datum(info(&value)))),
        (Op::CoerceTo, value @ (Value::Stream(_) | Value::Func(_))) => coerced(value, call, context),
        (_, Value::Grouped(grouped)) => on_groups(leaf, call, *grouped, context).map(Source::Value),
        (_, Value::Func(closure)) => Ok(Source::Arg(Arg::Func(closure))),
        (_, other) => other.into_datum().map(|datum| Source::Arg(Arg::Datum(datum))).map_err(|e| e.at(0)),
    }
}

/// `coerce_to` of a value that is not a datum. Source: `coerce_term_t` in terms/type_manip.cc of RethinkDB 2.4.
fn coerced(value: Value, call: &Call, context: Context<'_>) -> Result<Source, EvalError> {
    let name = match call.args.get(1).map(|term| datum_at(term, context).map_err(|error| error.at(1))) {
        Some(name) => [Arg::Datum(Datum::Null), Arg::Datum(name?)],
        None => return Err(EvalError::internal("coerce_to without a type")),
    };
    let target = coerce::target(Args::new(&name, &[], context.env).string(1)?)?;
    match (value, target) {
        (value @ Value::Stream(_), "STREAM") | (value @ Value::Func(_), "FUNCTION") => {
            Ok(Source::Value(value))
        }
        (_, "BOOL") => Ok(Source::Value(Value::Datum(Datum::Bool(true)))),
        (Value::Stream(mut items), "ARRAY" | "DATUM" | "OBJECT") => {
            let items = stream::collect(&mut *items, context.env)?;
            Ok(Source::Arg(Arg::Datum(Datum::Array(items))))
        }
        (value, _) => {
            let source = value.type_name();
            Err(EvalError::logic(format!("Cannot coerce {source} to {target}.")).at(0))
        }
    }
}

/// Applies the leaf to the value of each group.
fn on_groups(leaf: Leaf, call: &Call, grouped: Grouped, context: Context<'_>) -> Result<Value, EvalError> {
    let optargs = optargs_at(call, context)?;
    let mut values = vec![Arg::Datum(Datum::Null)];
    for (i, term) in call.args.iter().enumerate().skip(1) {
        values.push(arg_at(term, context).map_err(|error| error.at(i))?);
    }
    let mut groups = Vec::with_capacity(grouped.groups.len());
    for (key, value) in grouped.groups {
        context.env.check_cancel()?;
        values[0] = Arg::Datum(value);
        let args = Args::new(&values, &optargs, context.env);
        groups.push((key, leaf(&args)?));
    }
    Ok(Value::Grouped(Box::new(Grouped { kind: GroupedKind::Data, groups })))
}

/// `info` of a value that is not a datum.
fn info(value: &Value) -> Datum {
    let mut info = ObjectBuilder::new();
    info.insert(Text::from_static("type"), Datum::String(Text::from_static(value.type_name())));
    if let Value::Func(closure) = value {
        let source = match closure.as_foreign() {
            Some(foreign) => foreign.source(),
            None => print::function(&closure.func),
        };
        info.insert(Text::from_static("source_code"), Datum::from(source));
    }
    Datum::Object(info.build())
}
