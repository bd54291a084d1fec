//! `add`, `sub`, `mul`, `div`, `mod`, `floor`, `ceil`, `round`.
//!
//! The type of the first operand determines the operation; operands are processed from left to right. An error in
//! an operand belongs to the operator, where its backtrace ends. Source: terms/arith.cc of RethinkDB.

use datum::{Array, Datum, Text, Time};

use crate::EvalError;
use crate::args::{Arg, Args, check_text, finite, integer};
use crate::env::Env;

/// `add`: numbers sum, strings and arrays concatenate, a time moves by seconds.
pub fn add(args: &Args<'_>) -> Result<Datum, EvalError> {
    if let Some((a, b)) = two_numbers(args) {
        return finite(a + b);
    }
    match args.datum(0)? {
        Datum::String(first) if args.len() > 1 => concat_strings(first, args),
        Datum::Array(first) if args.len() > 1 => concat_arrays(first, args),
        _ => fold(args, add_two),
    }
}

/// `sub`: numbers subtract, two times leave seconds, a time moves back by seconds.
pub fn sub(args: &Args<'_>) -> Result<Datum, EvalError> {
    if let Some((a, b)) = two_numbers(args) {
        return finite(a - b);
    }
    fold(args, sub_two)
}

/// `mul`: numbers multiply, an array times an integer repeats its elements.
pub fn mul(args: &Args<'_>) -> Result<Datum, EvalError> {
    if let Some((a, b)) = two_numbers(args) {
        return finite(a * b);
    }
    fold(args, mul_two)
}

/// `div`: the quotient of numbers.
pub fn div(args: &Args<'_>) -> Result<Datum, EvalError> {
    fold(args, div_two)
}

/// `mod`: the remainder of two integers, with the sign of the first.
pub fn modulo(args: &Args<'_>) -> Result<Datum, EvalError> {
    let dividend = args.integer(0)?;
    let divisor = args.integer(1)?;
    match dividend.checked_rem(divisor) {
        Some(remainder) => Ok(Datum::Number(remainder as f64)),
        None => Err(EvalError::logic("Cannot take a number modulo 0.")),
    }
}

/// `floor`: the largest integer that is not above the number.
pub fn floor(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number(args.number(0)?.floor()))
}

/// `ceil`: the smallest integer that is not below the number.
pub fn ceil(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number(args.number(0)?.ceil()))
}

/// `round`: the nearest integer; a half goes away from zero.
pub fn round(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number(args.number(0)?.round()))
}

fn two_numbers(args: &Args<'_>) -> Option<(f64, f64)> {
    match args.values {
        [Arg::Datum(Datum::Number(a)), Arg::Datum(Datum::Number(b))] => Some((*a, *b)),
        _ => None,
    }
}

/// Applies `operator` to the first operand and each of the others in turn.
fn fold(
    args: &Args<'_>,
    operator: fn(Datum, &Datum, &Env<'_>) -> Result<Datum, EvalError>,
) -> Result<Datum, EvalError> {
    let mut sum = args.datum(0)?.clone();
    for i in 1..args.len() {
        let operand = args.datum(i)?;
        sum = operator(sum, operand, args.env)?;
    }
    Ok(sum)
}

fn add_two(a: Datum, b: &Datum, _: &Env<'_>) -> Result<Datum, EvalError> {
    match (&a, b) {
        (Datum::Time(time), seconds) => shift(time, number(seconds)?),
        (seconds, Datum::Time(time)) => shift(time, number(seconds)?),
        (a, b) => {
            let a = number(a)?;
            finite(a + number(b)?)
        }
    }
}

fn sub_two(a: Datum, b: &Datum, _: &Env<'_>) -> Result<Datum, EvalError> {
    match (&a, b) {
        (Datum::Time(a), Datum::Time(b)) => {
            // Rounded like a time, so that rounding errors of doubles do not show.
            let seconds = Time::new(a.epoch_seconds - b.epoch_seconds, 0).epoch_seconds;
            finite(seconds)
        }
        (Datum::Time(time), b) => shift(time, -number(b)?),
        (a, b) => {
            let a = number(a)?;
            finite(a - number(b)?)
        }
    }
}

fn mul_two(a: Datum, b: &Datum, env: &Env<'_>) -> Result<Datum, EvalError> {
    match (&a, b) {
        (Datum::Array(items), copies) => repeat(items, copies, env),
        (copies, Datum::Array(items)) => repeat(items, copies, env),
        (a, b) => {
            let a = number(a)?;
            finite(a * number(b)?)
        }
    }
}

fn div_two(a: Datum, b: &Datum, _: &Env<'_>) -> Result<Datum, EvalError> {
    let dividend = number(&a)?;
    let divisor = number(b)?;
    if divisor == 0.0 {
        return Err(EvalError::logic("Cannot divide by zero."));
    }
    finite(dividend / divisor)
}

fn number(datum: &Datum) -> Result<f64, EvalError> {
    match datum {
        Datum::Number(number) => Ok(*number),
        other => Err(EvalError::type_error("NUMBER", other)),
    }
}

fn shift(time: &Time, seconds: f64) -> Result<Datum, EvalError> {
    let moved = time.epoch_seconds + seconds;
    finite(moved)?;
    Ok(Datum::Time(Time::new(moved, time.offset_minutes)))
}

fn repeat(items: &Array, copies: &Datum, env: &Env<'_>) -> Result<Datum, EvalError> {
    let copies = integer(number(copies)?)?;
    let Ok(copies) = usize::try_from(copies) else {
        return Err(EvalError::logic("Cannot multiply an ARRAY by a negative number."));
    };
    if items.is_empty() {
        return Ok(Datum::Array(items.clone()));
    }
    let count = items.len().saturating_mul(copies);
    env.check_array(count)?;
    Ok(Datum::Array(items.iter().cycle().take(count).cloned().collect()))
}

fn concat_strings(first: &Text, args: &Args<'_>) -> Result<Datum, EvalError> {
    let mut bytes = first.len();
    for i in 1..args.len() {
        if let Datum::Time(_) = args.datum(i)? {
            return Err(EvalError::type_error("NUMBER", args.datum(i - 1)?));
        }
        bytes = bytes.saturating_add(args.plain_string(i)?.len());
    }
    check_text(bytes)?;
    let mut text = String::with_capacity(bytes);
    text.push_str(first);
    for i in 1..args.len() {
        text.push_str(args.plain_string(i)?);
    }
    Ok(Datum::from(text))
}

fn concat_arrays(first: &Array, args: &Args<'_>) -> Result<Datum, EvalError> {
    let mut items = Vec::with_capacity(first.len() + args.len());
    items.extend(first.iter().cloned());
    for i in 1..args.len() {
        if let Datum::Time(_) = args.datum(i)? {
            return Err(EvalError::type_error("NUMBER", args.datum(i - 1)?));
        }
        let more = args.plain_array(i)?;
        args.env.check_array(items.len() + more.len())?;
        items.extend(more.iter().cloned());
    }
    Ok(Datum::from(items))
}
