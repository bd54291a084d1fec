//! `r.args`: the items of an array become arguments of the enclosing term.

use datum::Datum;

use super::{Context, datum_at};
use crate::env::Env;
use crate::error::EvalError;
use crate::scope::Scope;
use crate::signature::{self, Op};
use crate::term::{Call, Term, Traits};

/// Replaces every `r.args` in `call` with the items of its array. Checks the number of arguments, which was unknown
/// before.
pub fn splice(call: &Call, scope: &Scope<'_>, env: &Env<'_>) -> Result<Call, EvalError> {
    splice_at(call, Context { scope, env, literals: call.op == Op::Merge })
}

pub(super) fn splice_at(call: &Call, context: Context<'_>) -> Result<Call, EvalError> {
    if call.op == Op::OrderBy {
        return Err(EvalError::logic("r.args is not supported in an order_by or union command yet."));
    }
    let context = Context { literals: context.literals || call.op == Op::Merge, ..context };
    let mut args = Vec::with_capacity(call.args.len());
    for (i, term) in call.args.iter().enumerate() {
        match term {
            Term::Call(splice) if splice.op == Op::Args => {
                match spliced(splice, context).map_err(|error| error.at(i))? {
                    Datum::Array(items) => args.extend(items.into_vec().into_iter().map(Term::Datum)),
                    other => return Err(EvalError::type_error("ARRAY", &other).at(i)),
                }
            }
            other => args.push(other.clone()),
        }
    }
    let arity = signature::of(call.op).arity;
    if !arity.accepts(args.len()) {
        return Err(EvalError::logic(arity.mismatch(args.len())));
    }
    let traits = Traits { splices: false, ..call.traits };
    Ok(Call { op: call.op, args, optargs: call.optargs.clone(), traits, path: call.path.clone() })
}

fn spliced(splice: &Call, context: Context<'_>) -> Result<Datum, EvalError> {
    let Some(term) = splice.args.first() else {
        return Err(EvalError::internal("args without an argument"));
    };
    datum_at(term, context).map_err(|error| error.at(0))
}
