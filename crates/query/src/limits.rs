//! How a stream is cut into batches, from the options of the query.

use std::time::Duration;

use datum::{Datum, Text};
use reql::EvalError;

/// The largest number of seconds a batch may be asked to take.
const SECONDS_MAX: f64 = 86_400.0;

/// Bounds on one batch. A batch ends when a maximum is reached, but not before it has the
/// minimum of rows (unless the stream ends).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchLimits {
    /// Fewest rows worth sending.
    pub rows_min: usize,
    /// Most rows.
    pub rows_max: usize,
    /// Most bytes of JSON, roughly.
    pub bytes_max: usize,
    /// Longest time to fill it; none at all is legal, and a few rows then.
    pub time_max: Duration,
    /// What rows, bytes and time are divided by for the first batch.
    pub first_divisor: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        BatchLimits {
            rows_min: 1,
            rows_max: usize::MAX,
            bytes_max: 1 << 20,
            time_max: Duration::from_millis(500),
            first_divisor: 4,
        }
    }
}

impl BatchLimits {
    /// The bounds `globals` ask for.
    pub(crate) fn of_options(globals: &[(Text, Datum)]) -> Result<BatchLimits, EvalError> {
        let mut limits = BatchLimits::default();
        for (name, value) in globals {
            match name.as_ref() {
                "min_batch_rows" => limits.rows_min = count(name, value)?,
                "max_batch_rows" => limits.rows_max = count(name, value)?,
                "max_batch_bytes" => limits.bytes_max = count(name, value)?,
                "max_batch_seconds" => limits.time_max = seconds(value)?,
                "first_batch_scaledown_factor" => limits.first_divisor = count(name, value)?,
                _ => {}
            }
        }
        limits.rows_min = limits.rows_min.min(limits.rows_max);
        Ok(limits)
    }

    /// The bounds of the first batch, which should come soon.
    #[must_use]
    pub fn first(&self) -> BatchLimits {
        let divisor = self.first_divisor.max(1);
        let divided = |n: usize| (n / divisor).max(1);
        let rows_max = divided(self.rows_max).max(self.rows_min);
        let divisor_ms = u32::try_from(divisor).unwrap_or(u32::MAX);
        BatchLimits {
            rows_max,
            bytes_max: divided(self.bytes_max),
            time_max: self.time_max / divisor_ms,
            ..*self
        }
    }
}

fn number(name: &str, value: &Datum) -> Result<f64, EvalError> {
    match value {
        Datum::Number(n) => Ok(*n),
        other => Err(EvalError::type_error("NUMBER", other).at(name)),
    }
}

fn count(name: &str, value: &Datum) -> Result<usize, EvalError> {
    let n = reql::args::integer(number(name, value)?)?;
    match usize::try_from(n) {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(EvalError::logic(format!("{name} must be positive (got {n})."))),
    }
}

fn seconds(value: &Datum) -> Result<Duration, EvalError> {
    let seconds = number("max_batch_seconds", value)?;
    let shown = reql::g20(seconds);
    if seconds >= SECONDS_MAX {
        let why = format!("max_batch_seconds is too large (got `{shown}`, must be less than 86400).");
        return Err(EvalError::logic(why));
    }
    if seconds < 0.0 {
        return Err(EvalError::logic(format!("max_batch_seconds must be positive (got `{shown}`).")));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// The array limit `globals` ask for.
pub(crate) fn array_limit(globals: &[(Text, Datum)]) -> Result<usize, EvalError> {
    at_least_one(globals, "array_limit", "Illegal array size limit", reql::ARRAY_LIMIT_DEFAULT)
}

fn at_least_one(
    globals: &[(Text, Datum)],
    name: &str,
    what: &str,
    default: usize,
) -> Result<usize, EvalError> {
    let Some((_, value)) = globals.iter().find(|(key, _)| key == name) else {
        return Ok(default);
    };
    let n = reql::args::integer(number(name, value)?)?;
    match usize::try_from(n) {
        Ok(n) if n >= 1 => Ok(n),
        _ => Err(EvalError::logic(format!("{what} `{n}`.  (Must be >= 1.)"))),
    }
}

/// Fails if the changefeed queue `globals` ask for cannot be.
pub(crate) fn check_feed_queue(globals: &[(Text, Datum)]) -> Result<usize, EvalError> {
    at_least_one(globals, "changefeed_queue_size", "Illegal changefeed queue size", 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&'static str, f64)]) -> Vec<(Text, Datum)> {
        pairs.iter().map(|(name, n)| (Text::from_static(name), Datum::Number(*n))).collect()
    }

    #[test]
    fn the_first_batch_is_a_quarter() {
        let limits = BatchLimits::of_options(&options(&[("max_batch_rows", 100.0)])).expect("legal");
        assert_eq!(limits.first().rows_max, 25);
        assert_eq!(limits.first().bytes_max, 1 << 18);
    }

    #[test]
    fn three_rows_make_a_first_batch_of_one() {
        let limits = BatchLimits::of_options(&options(&[("max_batch_rows", 3.0)])).expect("legal");
        assert_eq!(limits.first().rows_max, 1);
    }

    #[test]
    fn limits_below_one_are_refused() {
        let error = array_limit(&options(&[("array_limit", -1.0)])).expect_err("illegal");
        assert_eq!(error.message(), "Illegal array size limit `-1`.  (Must be >= 1.)");
        let error = check_feed_queue(&options(&[("changefeed_queue_size", 0.0)])).expect_err("illegal");
        assert_eq!(error.message(), "Illegal changefeed queue size `0`.  (Must be >= 1.)");
    }
}
