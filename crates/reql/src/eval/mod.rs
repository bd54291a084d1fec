//! The walk over a term that is its evaluation.
//!
//! Everything that uses only its arguments is evaluated here, wherever the evaluation takes
//! place. A call with a term that touches the world in it is handed to [`crate::OpenTerms`].

mod answer;
mod control;
mod late;
mod leaf;
mod order_by;
mod plural;
mod sequence;
mod splice;

use std::sync::Arc;

use datum::{Datum, Text};

use crate::args::{Arg, Args};
use crate::closure::{Answer, Closure};
use crate::deep;
use crate::env::{Env, OpenValue};
use crate::error::EvalError;
use crate::operation::{self, Extras, Operation};
use crate::order::Order;
use crate::scope::Scope;
use crate::signature::Op;
use crate::term::{Call, FuncTerm, Term};
use crate::value::Value;
use crate::{op, select::OnMissing, transform};

pub use sequence::IndexOption;
pub use splice::splice;

/// Where a term is evaluated.
#[derive(Clone, Copy)]
struct Place<'a> {
    scope: &'a Scope<'a>,
    env: &'a Env<'a>,
    /// Whether `r.literal` is legal: in what is merged into something.
    literals: bool,
}

impl<'a> Place<'a> {
    /// The same place for an argument in which literals are not legal.
    fn plain(self) -> Self {
        Place { literals: false, ..self }
    }

    fn with_literals(self) -> Self {
        Place { literals: true, ..self }
    }
}

/// The datum that `term` answers; any other kind of value is a type error.
pub fn eval(term: &Term, scope: &Scope<'_>, env: &Env<'_>) -> Result<Datum, EvalError> {
    value_at(term, Place { scope, env, literals: false })?.into_datum()
}

/// The value that `term` answers.
pub fn eval_value(term: &Term, scope: &Scope<'_>, env: &Env<'_>) -> Result<Value, EvalError> {
    value_at(term, Place { scope, env, literals: false })
}

/// The function that `term` answers, or the datum that stands for one, where literals are legal: in what will be merged
/// into something.
pub fn eval_patch(term: &Term, scope: &Scope<'_>, env: &Env<'_>) -> Result<Arg, EvalError> {
    func_at(term, Place { scope, env, literals: true })
}

/// The function with the variables it uses, ready to be called; `answer` says what its body
/// may answer.
pub fn closure(func: &Arc<FuncTerm>, scope: &Scope<'_>, answer: Answer) -> Result<Closure, EvalError> {
    answer::close(func, scope, answer)
}

/// `term`, which is no function, as one that evaluates it anew with every call; literals are legal in what it answers.
pub fn closure_of_argument(term: &Term, scope: &Scope<'_>) -> Result<Closure, EvalError> {
    late::later(term, scope, Answer::Constant)
}

/// The predicate of a join, which is looked at when there is a pair: a function, or a datum that stands for one.
pub fn closure_of_predicate(term: &Term, scope: &Scope<'_>, env: &Env<'_>) -> Result<Closure, EvalError> {
    late::constant(term, Place { scope, env, literals: false })
}

/// The right side of a join as a function that evaluates it anew with every call. That it is the second argument of its
/// term, as the body of a function is, makes the way to what goes wrong in it right.
pub fn closure_of_right_side(term: &Term, scope: &Scope<'_>) -> Result<Closure, EvalError> {
    late::later(term, scope, Answer::Sequence)
}

/// The operation that a sequence term is once its arguments but for the first are evaluated;
/// `None` when it is not a term over one sequence.
pub fn operation(
    call: &Call,
    scope: &Scope<'_>,
    env: &Env<'_>,
    index: IndexOption,
) -> Result<Option<Operation>, EvalError> {
    let place = Place { scope, env, literals: false };
    match transform::is_over_objects(call.op) {
        true => late::operation(call, place).map(Some),
        false => sequence::operation(call, place, index),
    }
}

/// What the `interleave` of a `union` asks to merge by; `None` when it asks for no order.
pub fn interleave(call: &Call, scope: &Scope<'_>, env: &Env<'_>) -> Result<Option<Vec<Order>>, EvalError> {
    plural::interleave(call, Place { scope, env, literals: false })
}

/// What a closed term fails with one of whose `count` arguments failed with `error`, when those before it have `values`:
/// that, or what it finds wrong with one of those first.
#[must_use]
pub fn failed(
    op: Op,
    values: &[Arg],
    count: usize,
    error: EvalError,
    optargs: &[(Text, Datum)],
    env: &Env<'_>,
) -> EvalError {
    let Some(leaf) = op::leaf(op) else { return error };
    leaf(&Args::until(values, count, &error, optargs, env)).err().unwrap_or(error)
}

/// The value of a closed term for arguments that were already evaluated.
pub fn apply(op: Op, values: &[Arg], optargs: &[(Text, Datum)], env: &Env<'_>) -> Result<Datum, EvalError> {
    let args = Args::new(values, optargs, env);
    let extras = Extras {
        on_missing: match args.optarg("default") {
            Some(value) if value.is_truthy() => OnMissing::Keep,
            _ => OnMissing::Drop,
        },
        ..Extras::default()
    };
    if let (Some(operation), Some(source)) = (operation::build(op, &args, extras)?, values.first()) {
        let source = match source {
            Arg::Datum(datum) => Value::Datum(datum.clone()),
            Arg::Func(closure) => Value::Func(closure.clone()),
        };
        return operation.apply(source, env)?.into_datum();
    }
    match op::leaf(op) {
        Some(leaf) => leaf(&args),
        None => Err(not_here(op)),
    }
}

fn value_at(term: &Term, place: Place<'_>) -> Result<Value, EvalError> {
    match term {
        Term::Datum(datum) => Ok(Value::Datum(datum.clone())),
        Term::Var(id) => match place.scope.get(*id) {
            Some(datum) => Ok(Value::Datum(datum.clone())),
            None => Err(EvalError::internal("a variable is not bound where it is used")),
        },
        Term::Func(func) => {
            let answer = if place.literals { Answer::Literals } else { Answer::Datum };
            answer::close(func, place.scope, answer).map(Value::Func)
        }
        Term::Call(call) => {
            place.env.check_cancel()?;
            let value = deep::level(|| call_at(call, place));
            // A walk that came too deep was ended with any answer, or any error.
            place.env.cancel.unless_too_deep()?;
            value
        }
    }
}

fn datum_at(term: &Term, place: Place<'_>) -> Result<Datum, EvalError> {
    value_at(term, place)?.into_datum()
}

fn call_at(call: &Call, place: Place<'_>) -> Result<Value, EvalError> {
    if call.traits.open && !(place.literals && is_shell(call.op)) {
        return open(call, place, "DATUM");
    }
    if call.traits.splices {
        let spliced = splice::splice_at(call, place)?;
        return call_at(&spliced, place);
    }
    match call.op {
        Op::MakeObj => control::make_obj(call, place),
        Op::MakeArray => control::make_array(call, place),
        Op::Funcall => control::funcall(call, place),
        Op::Branch => control::branch(call, place),
        Op::And | Op::Or => control::and_or(call, place),
        Op::Default => control::default(call, place),
        Op::Error => control::error(call, place),
        Op::Literal => control::literal(call, place),
        Op::Args => control::args(call, place),
        Op::Range => plural::range(call, place),
        Op::Union => plural::union(call, place),
        Op::Map if call.args.len() > 2 => plural::map(call, place),
        Op::Ungroup => sequence::ungroup(call, place),
        op if operation::is_operation(op) => sequence::value(call, place),
        _ => leaf::value(call, place),
    }
}

/// Terms that hand literals on from what is in them.
fn is_shell(op: Op) -> bool {
    matches!(op, Op::MakeObj | Op::MakeArray | Op::Branch | Op::Default | Op::Literal | Op::Args)
}

/// A term of the open language, where a value of the type `expected` is.
fn open(call: &Call, place: Place<'_>, expected: &str) -> Result<Value, EvalError> {
    match place.env.open {
        Some(world) => match world.eval_open(call, place.scope)? {
            OpenValue::Datum(datum) => Ok(Value::Datum(datum)),
            OpenValue::Func(code) => Ok(Value::Func(Closure::foreign(call.clone(), code))),
            OpenValue::Other { kind, printed } => Err(EvalError::value_type_error(expected, kind, &printed)),
        },
        None => Err(not_here(call.op)),
    }
}

fn not_here(op: Op) -> EvalError {
    EvalError::internal(format!("{} cannot be evaluated here", op.name()))
}

/// An argument as terms receive it.
fn arg_at(term: &Term, place: Place<'_>) -> Result<Arg, EvalError> {
    match value_at(term, place)? {
        Value::Datum(datum) => Ok(Arg::Datum(datum)),
        Value::Func(closure) => Ok(Arg::Func(closure)),
        other => other.into_datum().map(Arg::Datum),
    }
}

/// An argument where a function is expected, or a datum that stands for one.
fn func_at(term: &Term, place: Place<'_>) -> Result<Arg, EvalError> {
    match term {
        Term::Call(call) if call.traits.open && !(place.literals && is_shell(call.op)) => {
            match deep::level(|| open(call, place, "FUNCTION"))? {
                Value::Func(closure) => Ok(Arg::Func(closure)),
                other => other.into_datum().map(Arg::Datum),
            }
        }
        _ => match value_at(term, place)? {
            Value::Datum(datum) => Ok(Arg::Datum(datum)),
            Value::Func(closure) => Ok(Arg::Func(closure)),
            other => Err(other.mismatch("FUNCTION")),
        },
    }
}

/// The optional arguments of a call that are datums.
fn optargs_at(call: &Call, place: Place<'_>) -> Result<Vec<(Text, Datum)>, EvalError> {
    let evaluated = call.optargs.iter().map(|(name, term)| {
        let value = datum_at(term, place.plain()).map_err(|error| error.at(name))?;
        Ok((name.clone(), value))
    });
    evaluated.collect()
}
