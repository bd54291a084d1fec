//! `eq`, `ne`, `lt`, `le`, `gt`, `ge` and `not`: the total order of datums, and truth.

use datum::Datum;

use crate::EvalError;
use crate::args::{Arg, Args};
use crate::signature::Op;

/// `eq`: whether all values equal the first.
pub fn eq(args: &Args<'_>) -> Result<Datum, EvalError> {
    all_equal(args).map(Datum::Bool)
}

/// `ne`: whether some value differs from the first.
pub fn ne(args: &Args<'_>) -> Result<Datum, EvalError> {
    all_equal(args).map(|equal| Datum::Bool(!equal))
}

/// `lt`: whether each value is below the next.
pub fn lt(args: &Args<'_>) -> Result<Datum, EvalError> {
    chain(args, |a, b| a < b)
}

/// `le`: whether no value is above the next.
pub fn le(args: &Args<'_>) -> Result<Datum, EvalError> {
    chain(args, |a, b| a <= b)
}

/// `gt`: whether each value is above the next.
pub fn gt(args: &Args<'_>) -> Result<Datum, EvalError> {
    chain(args, |a, b| a > b)
}

/// `ge`: whether no value is below the next.
pub fn ge(args: &Args<'_>) -> Result<Datum, EvalError> {
    chain(args, |a, b| a >= b)
}

/// `not`: whether the value is `false` or `null`.
pub fn not(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Bool(!args.datum(0)?.is_truthy()))
}

/// The result of a chain of comparisons if the neighbours `left` and `right` decide it: operands after them are not
/// evaluated. `None` if they do not, and for other terms.
#[must_use]
pub fn decided(op: Op, left: &Datum, right: &Datum) -> Option<Datum> {
    let goes_on = match op {
        Op::Eq | Op::Ne => left == right,
        Op::Lt => left < right,
        Op::Le => left <= right,
        Op::Gt => left > right,
        Op::Ge => left >= right,
        _ => true,
    };
    (!goes_on).then_some(Datum::Bool(op == Op::Ne))
}

#[must_use]
pub fn is_comparison(op: Op) -> bool {
    matches!(op, Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge)
}

fn all_equal(args: &Args<'_>) -> Result<bool, EvalError> {
    if let [Arg::Datum(a), Arg::Datum(b)] = args.values {
        return Ok(a == b);
    }
    let first = args.datum(0)?;
    let mut equal = true;
    for i in 1..args.len() {
        equal &= args.datum(i)? == first;
    }
    Ok(equal)
}

fn chain(args: &Args<'_>, holds: fn(&Datum, &Datum) -> bool) -> Result<Datum, EvalError> {
    if let [Arg::Datum(a), Arg::Datum(b)] = args.values {
        return Ok(Datum::Bool(holds(a, b)));
    }
    let mut all = true;
    for i in 1..args.len() {
        all &= holds(args.datum(i - 1)?, args.datum(i)?);
    }
    Ok(Datum::Bool(all))
}
