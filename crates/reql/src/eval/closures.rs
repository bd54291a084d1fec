//! Makes closures of functions, and runs them.

use std::sync::Arc;

use datum::Datum;

use super::{Context, func_at, value_at};
use crate::args::Arg;
use crate::closure::{CallResult, Closure, Evaluate, ResultKind};
use crate::env::Env;
use crate::error::EvalError;
use crate::scope::Scope;
use crate::term::FuncTerm;
use crate::value::Value;

/// Captures the variables that `func` uses.
pub(super) fn close(
    func: &Arc<FuncTerm>,
    scope: &Scope<'_>,
    result: ResultKind,
) -> Result<Closure, EvalError> {
    let captured = func.captures.iter().map(|id| match scope.get(*id) {
        Some(value) => Ok((*id, value.clone())),
        None => Err(EvalError::internal("a captured variable is not bound")),
    });
    let captured = match func.captures.is_empty() {
        true => Arc::default(),
        false => captured.collect::<Result<_, _>>()?,
    };
    let run = match result {
        ResultKind::Datum => Evaluate::ToDatum(run_to_datum),
        ResultKind::Literals => Evaluate::ToDatum(run_to_literals),
        ResultKind::Sequence => Evaluate::ToSequence(run_to_sequence),
        ResultKind::Argument => Evaluate::ToDatum(run_argument),
        ResultKind::Constant => Evaluate::ToDatum(run_constant),
    };
    Ok(Closure::new(func.clone(), captured, result, run))
}

fn run_to_datum(closure: &Closure, values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError> {
    run(closure, values, env, false)?.into_datum().map_err(|error| error.at(1))
}

fn run_to_literals(closure: &Closure, values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError> {
    run(closure, values, env, true)?.into_datum().map_err(|error| error.at(1))
}

fn run_argument(closure: &Closure, _values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError> {
    let scope = Scope::of_call(&[], &[], &closure.captured);
    value_at(&closure.func.body, Context { scope: &scope, env, literals: true })?.into_datum()
}

fn run_constant(closure: &Closure, values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError> {
    let scope = Scope::of_call(&[], &[], &closure.captured);
    match func_at(&closure.func.body, Context { scope: &scope, env, literals: true })? {
        Arg::Datum(datum) => Ok(datum),
        Arg::Func(func) => func.call(values, env),
    }
}

fn run_to_sequence(closure: &Closure, values: &[Datum], env: &Env<'_>) -> Result<CallResult, EvalError> {
    match run(closure, values, env, false)? {
        Value::Stream(items) => match items.endless() {
            Some(endless) => Err(endless.error().at(1)),
            None => Ok(CallResult::Items(items)),
        },
        Value::Datum(datum) => Ok(CallResult::Datum(datum)),
        other => Err(other.no_sequence().at(1)),
    }
}

/// The body is argument 1 of FUNC, which backtraces name.
fn run(closure: &Closure, values: &[Datum], env: &Env<'_>, literals: bool) -> Result<Value, EvalError> {
    let scope = Scope::of_call(&closure.func.params, values, &closure.captured);
    let context = Context { scope: &scope, env, literals };
    value_at(&closure.func.body, context).map_err(|error| error.at(1))
}
