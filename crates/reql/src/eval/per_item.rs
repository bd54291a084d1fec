//! Terms over the objects of a sequence. Their other arguments are evaluated for each item if that makes a
//! difference: because they are random or fail.

use std::sync::Arc;

use datum::Datum;

use super::{Context, ResultKind, arg_at, closures, func_at};
use crate::args::{Arg, Args};
use crate::closure::Closure;
use crate::deep;
use crate::error::EvalError;
use crate::operation::Operation;
use crate::purity;
use crate::scope::Scope;
use crate::signature::Op;
use crate::term::{Call, FuncTerm, Term, VarId};
use crate::transform::{self, PerItem, Transform};

/// The operation of such a term.
pub(super) fn operation(call: &Call, context: Context<'_>) -> Result<Operation, EvalError> {
    let context = context.plain();
    let step = match call.op {
        Op::Merge => Transform::Merge(layers(call, context)?),
        _ => match at_once(call, context) {
            Some(step) => step,
            None => {
                let args =
                    call.args.iter().skip(1).map(|term| deferred(term, context.scope, ResultKind::Argument));
                Transform::PerItem(PerItem { op: call.op, args: args.collect::<Result<_, _>>()? })
            }
        },
    };
    Ok(Operation::Step(step))
}

/// The arguments of `merge`. One that may differ from item to item becomes a function.
fn layers(call: &Call, context: Context<'_>) -> Result<Vec<Arg>, EvalError> {
    let mut values = vec![Arg::Datum(Datum::Null)];
    for term in call.args.iter().skip(1) {
        let known = match term {
            Term::Call(_) if purity::is_random(term) => None,
            term => func_at(term, context.with_literals()).ok(),
        };
        values.push(match known {
            Some(known) => known,
            None => Arg::Func(deferred(term, context.scope, ResultKind::Constant)?),
        });
    }
    Ok(values)
}

/// The step with arguments that are evaluated once; `None` if that fails or they may differ the next time.
fn at_once(call: &Call, context: Context<'_>) -> Option<Transform> {
    let mut values = vec![Arg::Datum(Datum::Null)];
    for term in call.args.iter().skip(1) {
        if purity::is_random(term) {
            return None;
        }
        values.push(arg_at(term, context).ok()?);
    }
    transform::step_of(call.op, &Args::new(&values, &[], context.env)).ok()
}

/// A function where a term expects one: the function itself, or one that returns the datum. The datum is evaluated
/// with every call if that makes a difference. Source: `CONSTANT_SHORTCUT` in val.cc of RethinkDB 2.4.
pub(super) fn constant(term: &Term, context: Context<'_>) -> Result<Closure, EvalError> {
    let known = match purity::is_random(term) && !matches!(term, Term::Func(_)) {
        true => None,
        false => func_at(term, context).ok(),
    };
    match known {
        Some(Arg::Func(closure)) => Ok(closure),
        Some(Arg::Datum(datum)) => deferred(&Term::Datum(datum), context.scope, ResultKind::Constant),
        None => deferred(term, context.scope, ResultKind::Constant),
    }
}

/// Wraps a term in a function without parameters that captures the variables it uses.
pub(super) fn deferred(term: &Term, scope: &Scope<'_>, result: ResultKind) -> Result<Closure, EvalError> {
    let mut captures = Vec::new();
    collect_used(term, &mut captures);
    captures.retain(|id| scope.get(*id).is_some());
    let (body, closed) = (term.clone(), !term.is_open());
    let func = FuncTerm { params: Vec::new(), body, captures, closed, path: None };
    closures::close(&Arc::new(func), scope, result)
}

/// Collects the variables that a term uses, each once.
fn collect_used(term: &Term, used: &mut Vec<VarId>) {
    match term {
        Term::Datum(_) => {}
        Term::Var(id) if used.contains(id) => {}
        Term::Var(id) => used.push(*id),
        Term::Func(func) => deep::level(|| collect_used(&func.body, used)),
        Term::Call(call) => deep::level(|| {
            let optargs = call.optargs.iter().map(|(_, term)| term);
            call.args.iter().chain(optargs).for_each(|term| collect_used(term, used));
        }),
    }
}
