//! Bitwise terms: integers from −2^53 up to, but not including, 2^53.

use datum::Datum;

use crate::EvalError;
use crate::args::{Args, finite};

/// One more than the largest integer that bitwise terms accept: 2^53.
const INTEGER_END: i64 = 1 << 53;

/// `bit_and`: the bits that all integers have.
pub fn bit_and(args: &Args<'_>) -> Result<Datum, EvalError> {
    fold(args, |a, b| a & b)
}

/// `bit_or`: the bits that some integer has.
pub fn bit_or(args: &Args<'_>) -> Result<Datum, EvalError> {
    fold(args, |a, b| a | b)
}

/// `bit_xor`: the bits that an odd number of the integers have.
pub fn bit_xor(args: &Args<'_>) -> Result<Datum, EvalError> {
    fold(args, |a, b| a ^ b)
}

/// `bit_not`: the bits that the integer does not have.
pub fn bit_not(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number(!bits(args, 0)? as f64))
}

/// `bit_sal`: the integer times a power of two.
pub fn bit_sal(args: &Args<'_>) -> Result<Datum, EvalError> {
    let value = bits(args, 0)?;
    let places = places(args)?;
    if value == 0 {
        return Ok(Datum::Number(0.0));
    }
    if places >= 4_096 {
        return finite(f64::INFINITY);
    }
    // 2^1024 is infinite already, so a longer shift makes no difference.
    let power = 2_f64.powi(i32::try_from(places.min(1_024)).unwrap_or(1_024));
    finite(value as f64 * power)
}

/// `bit_sar`: the integer divided by a power of two, rounded down.
pub fn bit_sar(args: &Args<'_>) -> Result<Datum, EvalError> {
    let value = bits(args, 0)?;
    let places = places(args)?.min(63);
    Ok(Datum::Number((value >> places) as f64))
}

fn fold(args: &Args<'_>, operator: fn(i64, i64) -> i64) -> Result<Datum, EvalError> {
    let mut result = bits(args, 0)?;
    for i in 1..args.len() {
        result = operator(result, bits(args, i)?);
    }
    Ok(Datum::Number(result as f64))
}

fn bits(args: &Args<'_>, i: usize) -> Result<i64, EvalError> {
    let value = args.integer(i)?;
    if value >= INTEGER_END {
        return Err(EvalError::logic(format!("Integer too large: {value}")));
    }
    Ok(value)
}

fn places(args: &Args<'_>) -> Result<i64, EvalError> {
    let places = args.integer(1)?;
    if places < 0 {
        return Err(EvalError::logic("Cannot bit-shift by a negative value"));
    }
    Ok(places)
}
