//! The evaluator: a recursive walk over a term.
//!
//! Evaluates closed terms, which use only their arguments, on any server. A call that contains an open term is
//! passed to [`crate::OpenTerms`].

mod closures;
mod control;
mod leaf;
mod order_by;
mod per_item;
mod sequence;
mod several;
mod splice;

use std::sync::Arc;

use datum::{Datum, Text};

use crate::args::{Arg, Args};
use crate::closure::{Closure, ResultKind};
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

pub use sequence::{IndexOption, difference_that_fails};
pub use splice::splice;

/// The context in which a term is evaluated.
#[derive(Clone, Copy)]
struct Context<'a> {
    scope: &'a Scope<'a>,
    env: &'a Env<'a>,
    /// Whether `r.literal` is legal: inside a value that will be merged.
    literals: bool,
}

impl<'a> Context<'a> {
    /// The same context without literals, for an argument in which they are not legal.
    fn plain(self) -> Self {
        Context { literals: false, ..self }
    }

    fn with_literals(self) -> Self {
        Context { literals: true, ..self }
    }
}

/// Evaluates `term` to a datum; any other kind of value is a type error.
pub fn eval(term: &Term, scope: &Scope<'_>, env: &Env<'_>) -> Result<Datum, EvalError> {
    value_at(term, Context { scope, env, literals: false })?.into_datum()
}

/// Evaluates `term` to any kind of value.
pub fn eval_value(term: &Term, scope: &Scope<'_>, env: &Env<'_>) -> Result<Value, EvalError> {
    value_at(term, Context { scope, env, literals: false })
}

/// Evaluates `term`, in which literals are legal, to a function or a datum: for a value that will be merged.
pub fn eval_patch(term: &Term, scope: &Scope<'_>, env: &Env<'_>) -> Result<Arg, EvalError> {
    func_at(term, Context { scope, env, literals: true })
}

/// Makes a closure of the function: captures the variables it uses. `result` tells what its body may return.
pub fn closure(func: &Arc<FuncTerm>, scope: &Scope<'_>, result: ResultKind) -> Result<Closure, EvalError> {
    closures::close(func, scope, result)
}

/// Wraps `term`, which is not a function, in a closure that evaluates it with every call; literals are legal in its
/// result.
pub fn closure_of_argument(term: &Term, scope: &Scope<'_>) -> Result<Closure, EvalError> {
    per_item::deferred(term, scope, ResultKind::Constant)
}

/// The predicate of a join as a closure: a function, or a datum, which is evaluated only if there is a pair.
pub fn closure_of_predicate(term: &Term, scope: &Scope<'_>, env: &Env<'_>) -> Result<Closure, EvalError> {
    per_item::constant(term, Context { scope, env, literals: false })
}

/// The right side of a join as a closure that evaluates it with every call. It is the second argument of its term,
/// as a body is of a function, so that backtraces are right.
pub fn closure_of_right_side(term: &Term, scope: &Scope<'_>) -> Result<Closure, EvalError> {
    per_item::deferred(term, scope, ResultKind::Sequence)
}

/// The operation of a sequence term, made of all its arguments but the first; `None` if it is not a term over one
/// sequence.
pub fn operation(
    call: &Call,
    scope: &Scope<'_>,
    env: &Env<'_>,
    index: IndexOption,
) -> Result<Option<Operation>, EvalError> {
    let context = Context { scope, env, literals: false };
    match transform::is_over_objects(call.op) {
        true => per_item::operation(call, context).map(Some),
        false => sequence::operation(call, context, index),
    }
}

/// The order given by the `interleave` of a `union`; `None` if it asks for none.
pub fn interleave(call: &Call, scope: &Scope<'_>, env: &Env<'_>) -> Result<Option<Vec<Order>>, EvalError> {
    several::interleave(call, Context { scope, env, literals: false })
}

/// The error of a closed term when one of its `count` arguments failed with `error` and those before it have
/// `values`: `error`, unless the term finds an earlier argument invalid.
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

/// Applies a closed term to evaluated arguments.
pub fn apply(op: Op, values: &[Arg], optargs: &[(Text, Datum)], env: &Env<'_>) -> Result<Datum, EvalError> {
    let args = Args::new(values, optargs, env);
    let extras = Extras {
        // The option of the query does not act on `filter`. Source: `lazy_literal_optarg` of RethinkDB.
        on_missing: match args.own_optarg("default") {
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

fn value_at(term: &Term, context: Context<'_>) -> Result<Value, EvalError> {
    match term {
        Term::Datum(datum) => Ok(Value::Datum(datum.clone())),
        Term::Var(id) => match context.scope.get(*id) {
            Some(datum) => Ok(Value::Datum(datum.clone())),
            None => Err(EvalError::internal("a variable is not bound where it is used")),
        },
        Term::Func(func) => {
            let result = if context.literals { ResultKind::Literals } else { ResultKind::Datum };
            closures::close(func, context.scope, result).map(Value::Func)
        }
        Term::Call(call) => {
            context.env.check_cancel()?;
            let value = deep::level(|| call_at(call, context));
            // A walk that went too deep was ended with an arbitrary result or error.
            context.env.cancel.unless_too_deep()?;
            value
        }
    }
}

fn datum_at(term: &Term, context: Context<'_>) -> Result<Datum, EvalError> {
    value_at(term, context)?.into_datum()
}

fn call_at(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    if call.traits.open && !(context.literals && is_shell(call.op)) {
        return open(call, context, "DATUM");
    }
    if call.traits.splices {
        let spliced = splice::splice_at(call, context)?;
        return call_at(&spliced, context);
    }
    match call.op {
        Op::MakeObj => control::make_obj(call, context),
        Op::MakeArray => control::make_array(call, context),
        Op::Funcall => control::funcall(call, context),
        Op::Branch => control::branch(call, context),
        Op::And | Op::Or => control::and_or(call, context),
        Op::Default => control::default(call, context),
        Op::Error => control::error(call, context),
        Op::Literal => control::literal(call, context),
        Op::Args => control::args(call, context),
        Op::Range => several::range(call, context),
        Op::Union => several::union(call, context),
        Op::Map if call.args.len() > 2 => several::map(call, context),
        Op::Ungroup => sequence::ungroup(call, context),
        op if operation::is_operation(op) => sequence::value(call, context),
        _ => leaf::value(call, context),
    }
}

/// Terms that pass on literals from their arguments.
fn is_shell(op: Op) -> bool {
    matches!(op, Op::MakeObj | Op::MakeArray | Op::Branch | Op::Default | Op::Literal | Op::Args)
}

/// Evaluates an open term where a value of type `expected` is required.
fn open(call: &Call, context: Context<'_>, expected: &str) -> Result<Value, EvalError> {
    match opened(call, context)? {
        OpenValue::Datum(datum) | OpenValue::Row(datum) => Ok(Value::Datum(datum)),
        OpenValue::Func(code) => Ok(Value::Func(Closure::foreign(call.clone(), code))),
        OpenValue::Other { kind, printed } => Err(EvalError::value_type_error(expected, kind, &printed)),
    }
}

fn opened(call: &Call, context: Context<'_>) -> Result<OpenValue, EvalError> {
    match context.env.open {
        Some(world) => world.eval_open(call, context.scope),
        None => Err(not_here(call.op)),
    }
}

fn not_here(op: Op) -> EvalError {
    EvalError::internal(format!("{} cannot be evaluated here", op.name()))
}

/// Evaluates an argument of a term.
fn arg_at(term: &Term, context: Context<'_>) -> Result<Arg, EvalError> {
    match value_at(term, context)? {
        Value::Datum(datum) => Ok(Arg::Datum(datum)),
        Value::Func(closure) => Ok(Arg::Func(closure)),
        other => other.into_datum().map(Arg::Datum),
    }
}

/// Evaluates an argument where a function, or a datum in its place, is expected.
fn func_at(term: &Term, context: Context<'_>) -> Result<Arg, EvalError> {
    match term {
        Term::Call(call) if call.traits.open && !(context.literals && is_shell(call.op)) => {
            match deep::level(|| open(call, context, "FUNCTION"))? {
                Value::Func(closure) => Ok(Arg::Func(closure)),
                other => other.into_datum().map(Arg::Datum),
            }
        }
        _ => match value_at(term, context)? {
            Value::Datum(datum) => Ok(Arg::Datum(datum)),
            Value::Func(closure) => Ok(Arg::Func(closure)),
            other => Err(other.mismatch("FUNCTION")),
        },
    }
}

/// Like [`func_at`], where no datum can replace the function: a row of a table is refused under its own name.
fn func_only_at(term: &Term, context: Context<'_>) -> Result<Arg, EvalError> {
    let Term::Call(call) = term else { return func_at(term, context) };
    if !call.traits.open {
        return func_at(term, context);
    }
    match deep::level(|| opened(call, context))? {
        OpenValue::Datum(datum) => Ok(Arg::Datum(datum)),
        OpenValue::Row(row) => {
            let printed = row.pretty();
            Err(EvalError::typed(
                &row,
                format!("Expected type FUNCTION but found SINGLE_SELECTION:\n{printed}"),
            ))
        }
        OpenValue::Func(code) => Ok(Arg::Func(Closure::foreign((**call).clone(), code))),
        OpenValue::Other { kind, printed } => Err(EvalError::value_type_error("FUNCTION", kind, &printed)),
    }
}

/// Evaluates the optional arguments of a call to datums.
fn optargs_at(call: &Call, context: Context<'_>) -> Result<Vec<(Text, Datum)>, EvalError> {
    let evaluated = call.optargs.iter().map(|(name, term)| {
        let value = datum_at(term, context.plain()).map_err(|error| error.at(name))?;
        Ok((name.clone(), value))
    });
    evaluated.collect()
}
