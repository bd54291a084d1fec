//! Sizes of the batches of a stream, from the options of the query.

use std::time::Duration;

use datum::Datum;

use crate::error::EvalError;

/// Longest time, in seconds, that a query may set for a batch.
const SECONDS_MAX: f64 = 86_400.0;

/// Limits of one batch. A batch ends when a maximum is reached, but (unless the stream ends) not before it has the
/// minimum number of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchLimits {
    /// Minimum number of rows.
    pub rows_min: usize,
    /// Maximum number of rows.
    pub rows_max: usize,
    /// Approximate maximum number of bytes of JSON.
    pub bytes_max: usize,
    /// Longest time to fill the batch. Zero is legal and gives a few rows.
    pub time_max: Duration,
    /// Divides the limits of rows, bytes and time for the first batch.
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
    /// The limits set by the options of a query, which `option` looks up. Fails if one of them fails or is invalid. Source:
    /// `batchspec_t::user` of RethinkDB, including the order of its checks.
    pub fn of_options<'a>(
        option: impl Fn(&str) -> Result<Option<&'a Datum>, EvalError>,
    ) -> Result<BatchLimits, EvalError> {
        let rows_min = option("min_batch_rows")?;
        let rows_max = option("max_batch_rows")?;
        let bytes_max = option("max_batch_bytes")?;
        let time_max = option("max_batch_seconds")?;
        let first_divisor = option("first_batch_scaledown_factor")?;
        let mut limits = BatchLimits::default();
        let size = |name, value: Option<_>, default| value.map_or(Ok(default), |value| count(name, value));
        limits.rows_max = size("max_batch_rows", rows_max, limits.rows_max)?;
        limits.rows_min = size("min_batch_rows", rows_min, limits.rows_min)?.min(limits.rows_max);
        limits.bytes_max = size("max_batch_bytes", bytes_max, limits.bytes_max)?;
        limits.first_divisor = size("first_batch_scaledown_factor", first_divisor, limits.first_divisor)?;
        limits.time_max = time_max.map_or(Ok(limits.time_max), seconds)?;
        Ok(limits)
    }

    /// The limits of the first batch, which should be sent early.
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

/// Without an argument number in the backtrace: RethinkDB raises these errors where the stream is read.
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
        let value = Datum::Number(n);
        BatchLimits::of_options(|option| Ok((option == name).then_some(&value))).expect("legal")
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
