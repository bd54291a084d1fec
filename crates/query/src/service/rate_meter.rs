//! Rates per second, from counters that are sampled from time to time.
//!
//! Nothing runs between two samples. A rate is the growth since the newest sample that is at least a second old, so a
//! reader that samples every few seconds sees the rate in between.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use io::Nanos;
use parking_lot::Mutex;
use storage::TableId;

/// The shortest time over which a rate is measured.
const SPAN_MIN: Duration = Duration::from_secs(1);
const SAMPLES_MAX: usize = 4;

/// Samples of `N` counters.
#[derive(Debug)]
pub(crate) struct RateMeter<const N: usize>(Mutex<VecDeque<(Nanos, [u64; N])>>);

impl<const N: usize> RateMeter<N> {
    /// Counters that were all zero at `start`.
    pub fn new(start: Nanos) -> RateMeter<N> {
        RateMeter(Mutex::new([(start, [0; N])].into()))
    }

    /// The growth per second of the counters, which are at `counts` now.
    pub fn sample(&self, now: Nanos, counts: [u64; N]) -> [f64; N] {
        let mut samples = self.0.lock();
        let old_enough = |(at, _): &&(Nanos, [u64; N])| now.since(*at) >= SPAN_MIN;
        let (at, before) =
            samples.iter().rev().find(old_enough).or(samples.front()).copied().unwrap_or((now, counts));
        let newest = samples.back().map(|(at, _)| *at);
        if newest.is_none_or(|newest| now.since(newest) >= SPAN_MIN) {
            samples.push_back((now, counts));
            if samples.len() > SAMPLES_MAX {
                samples.pop_front();
            }
        }
        let seconds = now.since(at).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        let rate = |nth: usize| match seconds > 0.0 {
            true => counts[nth].saturating_sub(before[nth]) as f64 / seconds,
            false => 0.0,
        };
        std::array::from_fn(rate)
    }
}

/// Rates of every table: rows read and rows written per second.
#[derive(Debug)]
pub(crate) struct TableRateMeters {
    start: Nanos,
    tables: Mutex<HashMap<TableId, RateMeter<2>>>,
}

impl TableRateMeters {
    /// Without tables; the counters were zero at `start`.
    pub fn new(start: Nanos) -> TableRateMeters {
        TableRateMeters { start, tables: Mutex::default() }
    }

    /// The growth per second of the counters of `table`, which are at `counts` now.
    pub fn sample(&self, table: TableId, now: Nanos, counts: [u64; 2]) -> [f64; 2] {
        let mut tables = self.tables.lock();
        tables.entry(table).or_insert_with(|| RateMeter::new(self.start)).sample(now, counts)
    }

    /// Removes the tables that are gone.
    pub fn retain(&self, is_there: impl Fn(TableId) -> bool) {
        self.tables.lock().retain(|table, _| is_there(*table));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    #[test]
    fn a_rate_covers_the_last_second_or_longer() {
        let rates = RateMeter::new(at(0));
        assert_eq!(rates.sample(at(2000), [100, 0]), [50.0, 0.0]);
        // Less than a second after the last sample: the rate since the one before it.
        assert_eq!(rates.sample(at(2500), [100, 25]), [40.0, 10.0]);
        assert_eq!(rates.sample(at(3000), [110, 25]), [10.0, 25.0]);
        assert_eq!(rates.sample(at(13_000), [110, 25]), [0.0, 0.0]);
    }

    #[test]
    fn a_rate_over_no_time_is_zero() {
        assert_eq!(RateMeter::new(at(5)).sample(at(5), [7]), [0.0]);
    }
}
