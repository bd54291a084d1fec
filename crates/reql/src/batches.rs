//! How a stream is cut into batches, from the options of the query.

use std::time::Duration;

use datum::{Datum, Text};

use crate::error::EvalError;

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
    /// The bounds that the options of a query ask for. Fails if they cannot be.
    /// Source: `batchspec_t::user` of RethinkDB, and the order in which it looks at them.
    pub fn of_options(globals: &[(Text, Datum)]) -> Result<BatchLimits, EvalError> {
        let mut limits = BatchLimits::default();
        if globals.is_empty() {
            return Ok(limits);
        }
        let option = |name| globals.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let size = |name, default| option(name).map_or(Ok(default), |value| count(name, value));
        limits.rows_max = size("max_batch_rows", limits.rows_max)?;
        limits.rows_min = size("min_batch_rows", limits.rows_min)?.min(limits.rows_max);
        limits.bytes_max = size("max_batch_bytes", limits.bytes_max)?;
        limits.first_divisor = size("first_batch_scaledown_factor", limits.first_divisor)?;
        limits.time_max = option("max_batch_seconds").map_or(Ok(limits.time_max), seconds)?;
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

/// What is wrong is found by the term that reads, not by one that stands in the query.
fn number(value: &Datum) -> Result<f64, EvalError> {
    match value {
        Datum::Number(n) => Ok(*n),
        other => Err(EvalError::type_error("NUMBER", other)),
    }
}

fn count(name: &str, value: &Datum) -> Result<usize, EvalError> {
    let n = crate::integer::integer(number(value)?)?;
    match usize::try_from(n) {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(EvalError::logic(format!("{name} must be positive (got {n})."))),
    }
}

fn seconds(value: &Datum) -> Result<Duration, EvalError> {
    let seconds = number(value)?;
    let shown = crate::g20(seconds);
    if seconds >= SECONDS_MAX {
        let why = format!("max_batch_seconds is too large (got `{shown}`, must be less than 86400).");
        return Err(EvalError::logic(why));
    }
    if seconds < 0.0 {
        return Err(EvalError::logic(format!("max_batch_seconds must be positive (got `{shown}`).")));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &'static str, n: f64) -> BatchLimits {
        BatchLimits::of_options(&[(Text::from_static(name), Datum::Number(n))]).expect("legal")
    }

    #[test]
    fn the_first_batch_is_a_quarter() {
        let limits = of("max_batch_rows", 100.0);
        assert_eq!(limits.first().rows_max, 25);
        assert_eq!(limits.first().bytes_max, 1 << 18);
    }

    #[test]
    fn three_rows_make_a_first_batch_of_one() {
        assert_eq!(of("max_batch_rows", 3.0).first().rows_max, 1);
    }
}
