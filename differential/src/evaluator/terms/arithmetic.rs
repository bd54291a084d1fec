//! Comparison, arithmetic and bits.

use super::{datum, number};
use crate::evaluator::Evaluator;
use crate::evaluator::args::{self, Args};
use crate::evaluator::term_value::TermValue;
use crate::fault::{Fault, Out};
use crate::value::Val;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        17..=22 => compare(args),
        24..=27 => arithmetic(args),
        28 => {
            let (a, b) = (args.whole(0)?, args.whole(1)?);
            if b == 0 {
                return Err(Fault::logic("modulo 0"));
            }
            number((a % b) as f64)
        }
        183 => number(args.number(0)?.floor()),
        184 => number(args.number(0)?.ceil()),
        185 => number(args.number(0)?.round()),
        191..=193 => bits(args),
        194 => number(!ranged(args, 0)? as f64),
        _ => shift(args),
    }
}

/// Compares each argument with the next, up to the first pair that is false.
fn compare(args: &Args<'_>) -> Out<TermValue> {
    let mut left = args.datum(0)?;
    for i in 1..args.len() {
        let right = args.datum(i)?;
        let holds = match args.id {
            17 | 18 => left == right,
            19 => left < right,
            20 => left <= right,
            21 => left > right,
            _ => left >= right,
        };
        if !holds {
            return datum(Val::Bool(args.id == 18));
        }
        left = right;
    }
    datum(Val::Bool(args.id != 18))
}

fn arithmetic(args: &Args<'_>) -> Out<TermValue> {
    let mut all = args.datum(0)?;
    for i in 1..args.len() {
        let next = args.datum(i)?;
        all = match args.id {
            24 => add(args.evaluator, all, next)?,
            25 => subtract(all, next)?,
            26 => multiply(args.evaluator, all, next)?,
            _ => {
                let (a, b) = (args::number(&all)?, args::number(&next)?);
                if b == 0.0 {
                    return Err(Fault::logic("division by zero"));
                }
                finite(a / b)?
            }
        };
    }
    datum(all)
}

fn finite(n: f64) -> Out<Val> {
    if n.is_finite() { Ok(Val::Number(n)) } else { Err(Fault::logic("non-finite number")) }
}

/// The first argument determines the kind of addition; either of two may be a time.
pub(super) fn add(evaluator: &Evaluator, a: Val, b: Val) -> Out<Val> {
    match (a, b) {
        (Val::Time(seconds, zone), other) | (other, Val::Time(seconds, zone)) => {
            super::times::moved(seconds, zone, args::number(&other)?)
        }
        (Val::Number(a), b) => finite(a + args::number(&b)?),
        (Val::Text(a), b) => Ok(Val::Text(a + &args::text(b)?)),
        (Val::Array(mut a), Val::Array(b)) => {
            a.extend(b);
            evaluator.array(a)
        }
        (Val::Array(_), other) => Err(Fault::expected("ARRAY", &other)),
        (other, _) => Err(Fault::expected("NUMBER", &other)),
    }
}

fn subtract(a: Val, b: Val) -> Out<Val> {
    match (a, b) {
        // To the millisecond. Source: `time_sub` in pseudo_time.cc of RethinkDB 2.4.
        (Val::Time(a, _), Val::Time(b, _)) => finite(((a - b) * 1000.0).round() / 1000.0),
        (Val::Time(a, zone), b) => super::times::moved(a, zone, -args::number(&b)?),
        (a, b) => finite(args::number(&a)? - args::number(&b)?),
    }
}

fn multiply(evaluator: &Evaluator, a: Val, b: Val) -> Out<Val> {
    match (a, b) {
        (Val::Array(items), times) | (times, Val::Array(items)) => {
            let times = args::whole(args::number(&times)?)?;
            if times < 0 {
                return Err(Fault::logic("an array times a negative number"));
            }
            evaluator.fits((times as usize).saturating_mul(items.len()))?;
            if times as usize * items.len() > 20_000 {
                return Err(Fault::unspecified("a large array"));
            }
            // Nothing is nothing, however often.
            let times = if items.is_empty() { 0 } else { times };
            Ok(Val::Array((0..times).flat_map(|_| items.clone()).collect()))
        }
        (a, b) => finite(args::number(&a)? * args::number(&b)?),
    }
}

fn ranged(args: &Args<'_>, i: usize) -> Out<i64> {
    let n = args.whole(i)?;
    if n >= 1 << 53 { Err(Fault::logic("integer too large")) } else { Ok(n) }
}

fn bits(args: &Args<'_>) -> Out<TermValue> {
    let mut all = ranged(args, 0)?;
    for i in 1..args.len() {
        let next = ranged(args, i)?;
        all = match args.id {
            191 => all & next,
            192 => all | next,
            _ => all ^ next,
        };
    }
    number(all as f64)
}

/// To the left by multiplication, to the right by division, rounded down.
fn shift(args: &Args<'_>) -> Out<TermValue> {
    let (n, by) = (ranged(args, 0)?, ranged(args, 1)?);
    if by < 0 {
        return Err(Fault::logic("shift by a negative value"));
    }
    if n == 0 {
        return number(0.0);
    }
    let by = i32::try_from(by).unwrap_or(i32::MAX);
    match args.id {
        195 => number(n as f64 * 2f64.powi(by)),
        _ => number((n as f64 / 2f64.powi(by.min(100))).floor()),
    }
}
