//! The most that a copy may read a second.

use std::str::FromStr;
use std::time::Duration;

use crate::error::InputError;

/// The unit of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateUnit {
    Rows,
    Bytes,
}

/// A limit of all readers together, as in `--max-rate`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    pub unit: RateUnit,
    pub per_second: f64,
}

impl FromStr for Rate {
    type Err = InputError;

    /// `5000` rows, or bytes with `KB`, `MB` or `GB`.
    fn from_str(text: &str) -> Result<Rate, InputError> {
        let (digits, unit, factor) = match text.get(text.len().saturating_sub(2)..) {
            Some("KB") => (&text[..text.len() - 2], RateUnit::Bytes, 1e3),
            Some("MB") => (&text[..text.len() - 2], RateUnit::Bytes, 1e6),
            Some("GB") => (&text[..text.len() - 2], RateUnit::Bytes, 1e9),
            _ => (text, RateUnit::Rows, 1.0),
        };
        match digits.trim().parse::<f64>() {
            Ok(number) if number > 0.0 && number.is_finite() => {
                Ok(Rate { unit, per_second: number * factor })
            }
            _ => Err(InputError::new(format!(
                "{text:?} is no rate: give rows a second (5000), or bytes a second with KB, MB or GB (20MB)"
            ))),
        }
    }
}

/// Chunks that each reader reads in a second.
const CHUNKS_PER_SECOND: f64 = 4.0;

/// The most of one chunk, so that a limit is kept evenly: a part of what may be read a second, and never more than `most`.
pub fn chunk_size(rate: Option<Rate>, readers: usize, most: ChunkSize) -> ChunkSize {
    let chunks_per_second = CHUNKS_PER_SECOND * readers.max(1) as f64;
    const ROWS_MIN: f64 = 50.0;
    const BYTES_MIN: f64 = 65_536.0;
    match rate {
        None => most,
        Some(Rate { unit: RateUnit::Rows, per_second }) => {
            let rows = (per_second / chunks_per_second).max(ROWS_MIN) as usize;
            ChunkSize { rows: most.rows.min(rows), ..most }
        }
        Some(Rate { unit: RateUnit::Bytes, per_second }) => {
            let bytes = (per_second / chunks_per_second).max(BYTES_MIN) as u64;
            ChunkSize { bytes: most.bytes.min(bytes), ..most }
        }
    }
}

/// Bounds of one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkSize {
    pub rows: usize,
    pub bytes: u64,
}

/// A bucket that fills evenly: how long a reader waits before it reads on.
#[derive(Debug)]
pub struct Throttle {
    rate: Rate,
    /// When everything that was taken so far is paid for.
    paid_until: Duration,
}

impl Throttle {
    pub fn new(rate: Rate) -> Throttle {
        Throttle { rate, paid_until: Duration::ZERO }
    }

    /// Adds an amount that was read at `now` (since any fixed moment), and returns the time to wait.
    pub fn take(&mut self, rows: u64, bytes: u64, now: Duration) -> Duration {
        let amount = match self.rate.unit {
            RateUnit::Rows => rows,
            RateUnit::Bytes => bytes,
        };
        let cost = Duration::from_secs_f64((amount as f64 / self.rate.per_second).min(1e9));
        self.paid_until = self.paid_until.max(now) + cost;
        self.paid_until - now
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ChunkSize, Rate, RateUnit, Throttle, chunk_size};

    #[test]
    fn rates_are_rows_or_bytes() {
        let rate = |text: &str| text.parse::<Rate>().map(|rate| (rate.unit, rate.per_second));
        assert_eq!(rate("500").unwrap(), (RateUnit::Rows, 500.0));
        assert_eq!(rate("1.5MB").unwrap(), (RateUnit::Bytes, 1.5e6));
        for bad in ["", "MB", "-1", "0", "1TB", "inf", "éé"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn chunks_are_parts_of_a_second() {
        let most = ChunkSize { rows: 4000, bytes: 1 << 22 };
        let size = |text: &str| chunk_size(Some(text.parse().unwrap()), 2, most);
        assert_eq!((size("1000").rows, size("1").rows, size("1000000").rows), (125, 50, 4000));
        assert_eq!((size("1MB").bytes, size("1GB")), (125_000, most));
        assert_eq!(chunk_size(None, 2, most), most);
    }

    #[test]
    fn what_was_taken_is_paid_with_time() {
        let mut throttle = Throttle::new("100".parse().unwrap());
        assert_eq!(throttle.take(50, 0, Duration::ZERO), Duration::from_millis(500));
        assert_eq!(throttle.take(50, 0, Duration::from_millis(500)), Duration::from_millis(500));
        // Time without reading is not saved up.
        assert_eq!(throttle.take(10, 0, Duration::from_secs(60)), Duration::from_millis(100));
    }
}
