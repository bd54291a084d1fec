//! Functions become closures, and closures are run.

use std::sync::Arc;

use datum::Datum;

use super::{Place, func_at, value_at};
use crate::args::Arg;
use crate::closure::{Answer, Answered, Closure, Run};
use crate::env::Env;
use crate::error::EvalError;
use crate::scope::Scope;
use crate::term::FuncTerm;
use crate::value::Value;

/// Captures the variables that `func` uses.
pub(super) fn close(func: &Arc<FuncTerm>, scope: &Scope<'_>, answer: Answer) -> Result<Closure, EvalError> {
    let captured = func.captures.iter().map(|id| match scope.get(*id) {
        Some(value) => Ok((*id, value.clone())),
        None => Err(EvalError::internal("a captured variable is not bound")),
    });
    let captured = match func.captures.is_empty() {
        true => Arc::default(),
        false => captured.collect::<Result<_, _>>()?,
    };
    let run = match answer {
        Answer::Datum => Run::ToDatum(run_to_datum),
        Answer::Literals => Run::ToDatum(run_to_literals),
        Answer::Sequence => Run::ToSequence(run_to_sequence),
        Answer::Argument => Run::ToDatum(run_argument),
        Answer::Constant => Run::ToDatum(run_constant),
    };
    Ok(Closure::new(func.clone(), captured, answer, run))
}

fn run_to_datum(closure: &Closure, values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError> {
    run(closure, values, env, false)?.into_datum().map_err(|error| error.at(1))
}

fn run_to_literals(closure: &Closure, values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError> {
    run(closure, values, env, true)?.into_datum().map_err(|error| error.at(1))
}

fn run_argument(closure: &Closure, _values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError> {
    let scope = Scope::of_call(&[], &[], &closure.captured);
    value_at(&closure.func.body, Place { scope: &scope, env, literals: true })?.into_datum()
}

fn run_constant(closure: &Closure, values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError> {
    let scope = Scope::of_call(&[], &[], &closure.captured);
    match func_at(&closure.func.body, Place { scope: &scope, env, literals: true })? {
        Arg::Datum(datum) => Ok(datum),
        Arg::Func(func) => func.call(values, env),
    }
}

fn run_to_sequence(closure: &Closure, values: &[Datum], env: &Env<'_>) -> Result<Answered, EvalError> {
    match run(closure, values, env, false)? {
        Value::Stream(items) if items.is_infinite() => Err(EvalError::infinite().at(1)),
        Value::Stream(items) => Ok(Answered::Items(items)),
        Value::Datum(datum) => Ok(Answered::Datum(datum)),
        other => Err(other.no_sequence().at(1)),
    }
}

/// The body is the second argument of FUNC, which errors point at.
fn run(closure: &Closure, values: &[Datum], env: &Env<'_>, literals: bool) -> Result<Value, EvalError> {
    let scope = Scope::of_call(&closure.func.params, values, &closure.captured);
    let place = Place { scope: &scope, env, literals };
    value_at(&closure.func.body, place).map_err(|error| error.at(1))
}
