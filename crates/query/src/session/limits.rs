//! Limits of a query, from its options.

use datum::Datum;
use reql::{EvalError, GlobalOption};

/// The array limit in `globals`, or the default.
pub(crate) fn array_limit(globals: &[GlobalOption]) -> Result<usize, EvalError> {
    at_least_one(globals, "array_limit", "Illegal array size limit", reql::ARRAY_LIMIT_DEFAULT)
}

fn at_least_one(
    globals: &[GlobalOption],
    name: &str,
    what: &str,
    default: usize,
) -> Result<usize, EvalError> {
    let Some(value) = reql::global(globals, name)? else { return Ok(default) };
    let n = reql::args::integer(number(value)?)?;
    match usize::try_from(n) {
        Ok(n) if n >= 1 => Ok(n),
        _ => Err(EvalError::logic(format!("{what} `{n}`.  (Must be >= 1.)"))),
    }
}

/// The size of the changefeed queue in `globals`, or the default.
pub(crate) fn feed_queue(globals: &[GlobalOption]) -> Result<usize, EvalError> {
    at_least_one(globals, "changefeed_queue_size", "Illegal changefeed queue size", 100_000)
}

fn number(value: &Datum) -> Result<f64, EvalError> {
    match value {
        Datum::Number(n) => Ok(*n),
        other => Err(EvalError::type_error("NUMBER", other)),
    }
}

#[cfg(test)]
mod tests {
    use datum::Text;

    use super::*;

    fn options(pairs: &[(&'static str, f64)]) -> Vec<GlobalOption> {
        pairs.iter().map(|(name, n)| (Text::from_static(name), Ok(Datum::Number(*n)))).collect()
    }

    #[test]
    fn limits_below_one_are_refused() {
        let error = array_limit(&options(&[("array_limit", -1.0)])).expect_err("illegal");
        assert_eq!(error.message(), "Illegal array size limit `-1`.  (Must be >= 1.)");
        let error = feed_queue(&options(&[("changefeed_queue_size", 0.0)])).expect_err("illegal");
        assert_eq!(error.message(), "Illegal changefeed queue size `0`.  (Must be >= 1.)");
    }
}
