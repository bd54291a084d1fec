//! Conversion of numbers to integers.

use crate::error::EvalError;
use crate::printf;

/// Largest magnitude of an integer argument: 2^53.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// `number` as an integer. Fails if it is not one.
pub fn integer(number: f64) -> Result<i64, EvalError> {
    if number > INTEGER_MAX {
        return Err(not_an_integer(" (>2^53)", number));
    }
    if number < -INTEGER_MAX {
        return Err(not_an_integer(" (<-2^53)", number));
    }
    if number.fract() != 0.0 {
        return Err(not_an_integer("", number));
    }
    // The number is in range and has no fraction, so the cast is exact.
    Ok(number as i64)
}

/// `number` as an integer of type `T`. Fails if it is not an integer or does not fit. Source: `as_int<T>` in
/// val.hpp of RethinkDB.
pub fn narrow<T: TryFrom<i64>>(number: f64) -> Result<T, EvalError> {
    let whole = integer(number)?;
    T::try_from(whole).map_err(|_| EvalError::logic(format!("Integer too large: {whole}")))
}

fn not_an_integer(why: &str, number: f64) -> EvalError {
    EvalError::logic(format!("Number not an integer{why}: {}", printf::g20(number)))
}
