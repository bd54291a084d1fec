//! Numbers that have to be whole.

use crate::error::EvalError;
use crate::printf;

/// The largest magnitude an integer argument may have: 2^53.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// The integer that `number` is.
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
    // In range and without a fraction, so the cast is exact.
    Ok(number as i64)
}

/// The integer that `number` is, if a `T` has room for it. Source: `as_int<T>` in val.hpp of RethinkDB.
pub fn narrow<T: TryFrom<i64>>(number: f64) -> Result<T, EvalError> {
    let whole = integer(number)?;
    T::try_from(whole).map_err(|_| EvalError::logic(format!("Integer too large: {whole}")))
}

fn not_an_integer(why: &str, number: f64) -> EvalError {
    EvalError::logic(format!("Number not an integer{why}: {}", printf::g20(number)))
}
