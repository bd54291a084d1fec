//! Terms over objects of a sequence: their other arguments are evaluated for each item where that can be told from
//! evaluating them once, because they depend on chance or fail.

use std::sync::Arc;

use datum::Datum;

use super::{Answer, Place, answer, arg_at, func_at};
use crate::args::{Arg, Args};
use crate::closure::Closure;
use crate::deep;
use crate::error::EvalError;
use crate::operation::Operation;
use crate::purity;
use crate::scope::Scope;
use crate::signature::Op;
use crate::term::{Call, FuncTerm, Term, VarId};
use crate::transform::{self, Late, Transform};

/// The operation that such a term is.
pub(super) fn operation(call: &Call, place: Place<'_>) -> Result<Operation, EvalError> {
    let place = place.plain();
    let step = match call.op {
        Op::Merge => Transform::Merge(layers(call, place)?),
        _ => match at_once(call, place) {
            Some(step) => step,
            None => {
                let args = call.args.iter().skip(1).map(|term| later(term, place.scope, Answer::Argument));
                Transform::Late(Late { op: call.op, args: args.collect::<Result<_, _>>()? })
            }
        },
    };
    Ok(Operation::Step(step))
}

/// What is merged into each item; each item is merged with a layer of its own where it makes a difference.
fn layers(call: &Call, place: Place<'_>) -> Result<Vec<Arg>, EvalError> {
    let mut values = vec![Arg::Datum(Datum::Null)];
    for term in call.args.iter().skip(1) {
        let known = match term {
            Term::Call(_) if purity::is_by_chance(term) => None,
            term => func_at(term, place.with_literals()).ok(),
        };
        values.push(match known {
            Some(known) => known,
            None => Arg::Func(later(term, place.scope, Answer::Constant)?),
        });
    }
    Ok(values)
}

/// The step with arguments that are evaluated now; nothing if that fails, or another time they may be others.
fn at_once(call: &Call, place: Place<'_>) -> Option<Transform> {
    let mut values = vec![Arg::Datum(Datum::Null)];
    for term in call.args.iter().skip(1) {
        if purity::is_by_chance(term) {
            return None;
        }
        values.push(arg_at(term, place).ok()?);
    }
    transform::step_of(call.op, &Args::new(&values, &[], place.env)).ok()
}

/// What stands where a function is called: that function, or one that answers the datum, which is evaluated with every
/// call where that can be told from evaluating it once. Source: `CONSTANT_SHORTCUT` in val.cc of RethinkDB 2.4.
pub(super) fn constant(term: &Term, place: Place<'_>) -> Result<Closure, EvalError> {
    let known = match purity::is_by_chance(term) && !matches!(term, Term::Func(_)) {
        true => None,
        false => func_at(term, place).ok(),
    };
    match known {
        Some(Arg::Func(closure)) => Ok(closure),
        Some(Arg::Datum(datum)) => later(&Term::Datum(datum), place.scope, Answer::Constant),
        None => later(term, place.scope, Answer::Constant),
    }
}

/// A term as a function that looks at nothing but what is around it.
pub(super) fn later(term: &Term, scope: &Scope<'_>, answer: Answer) -> Result<Closure, EvalError> {
    let mut captures = Vec::new();
    collect_used(term, &mut captures);
    captures.retain(|id| scope.get(*id).is_some());
    let (body, closed) = (term.clone(), !term.is_open());
    let func = FuncTerm { params: Vec::new(), body, captures, closed, way: None };
    answer::close(&Arc::new(func), scope, answer)
}

/// The variables that stand in a term, each once.
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
