//! Counters of a node's connections: one set per worker, added up when read.
//!
//! Each worker writes only its own set, so that two cores never share a cache line. Reading is rare, and its numbers
//! may be from slightly different moments.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::service::QueryKind;

/// Upper bounds of latency buckets: 1 µs, doubling, up to about 16 s; one more holds the rest.
pub const LATENCY_BUCKETS: usize = 25;

/// One worker's numbers.
#[derive(Default)]
pub struct Counters {
    /// Bytes received from drivers.
    pub bytes_in: AtomicU64,
    /// Bytes sent to drivers.
    pub bytes_out: AtomicU64,
    /// Connections open now, handshakes included.
    pub connections: AtomicI64,
    /// Connections ever accepted.
    pub accepted: AtomicU64,
    /// Connections whose handshake was refused.
    pub refused: AtomicU64,
    /// Queries answered with an error.
    pub failures: AtomicU64,
    /// Queries that are running, or whose write waits for the log.
    pub running: AtomicI64,
    kinds: [Latency; QueryKind::ALL.len()],
}

impl Counters {
    /// The latencies of one kind of query, and with them how many there were.
    #[must_use]
    pub fn latency(&self, kind: QueryKind) -> &Latency {
        &self.kinds[kind as usize]
    }
}

/// A histogram of latencies with buckets of doubling width.
#[derive(Default)]
pub struct Latency {
    buckets: [AtomicU64; LATENCY_BUCKETS + 1],
    total_nanos: AtomicU64,
}

/// A copy of a [`Latency`], or the sum of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencySum {
    /// How many fell between the previous bound and this one.
    pub buckets: [u64; LATENCY_BUCKETS + 1],
    /// The sum of all latencies.
    pub total_nanos: u64,
}

impl Latency {
    pub fn record(&self, elapsed: Duration) {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)].fetch_add(1, Relaxed);
        self.total_nanos.fetch_add(nanos, Relaxed);
    }

    /// Adds this histogram to `sum`.
    pub fn add_to(&self, sum: &mut LatencySum) {
        for (total, bucket) in sum.buckets.iter_mut().zip(&self.buckets) {
            *total += bucket.load(Relaxed);
        }
        sum.total_nanos += self.total_nanos.load(Relaxed);
    }
}

impl LatencySum {
    /// How many were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub fn add(&mut self, other: &LatencySum) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, count)| *sum += count);
        self.total_nanos += other.total_nanos;
    }

    /// The latencies that are not in `before`, which was read earlier.
    #[must_use]
    pub fn since(&self, before: &LatencySum) -> LatencySum {
        let mut since = self.clone();
        for (count, before) in since.buckets.iter_mut().zip(before.buckets) {
            *count = count.saturating_sub(before);
        }
        since.total_nanos = self.total_nanos.saturating_sub(before.total_nanos);
        since
    }

    /// The mean in seconds; 0 without latencies.
    #[must_use]
    pub fn mean_seconds(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.total_nanos as f64 / 1e9 / count as f64,
        }
    }

    /// The latency in seconds that a share of `quantile` does not exceed, estimated within its bucket; 0 without latencies.
    #[must_use]
    pub fn quantile_seconds(&self, quantile: f64) -> f64 {
        let wanted = self.count() as f64 * quantile;
        let mut below = 0.0;
        for (i, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let inside = *count as f64;
            if below + inside >= wanted {
                let start = if i == 0 { 0.0 } else { bound_seconds(i - 1) };
                let end = if i < LATENCY_BUCKETS { bound_seconds(i) } else { start * 2.0 };
                return start + (end - start) * ((wanted - below) / inside);
            }
            below += inside;
        }
        0.0
    }

    /// Each bucket's upper bound in seconds (infinite for the last) and its count.
    pub fn bounds(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(i, count)| (bound_seconds(i), *count))
    }
}

/// The bucket for a duration: the first with a bound that is not below it.
fn bucket(nanos: u64) -> usize {
    let micros = nanos.div_ceil(1000).max(1);
    let power = u64::BITS - (micros - 1).leading_zeros();
    (power as usize).min(LATENCY_BUCKETS)
}

fn bound_seconds(bucket: usize) -> f64 {
    if bucket < LATENCY_BUCKETS { 1e-6 * (1u64 << bucket) as f64 } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        for (nanos, expected) in
            [(0, 0), (1, 0), (1000, 0), (1001, 1), (2000, 1), (2001, 2), (4000, 2), (4001, 3)]
        {
            assert_eq!(bucket(nanos), expected, "{nanos} ns");
        }
        assert_eq!(bucket(16_777_216_000), LATENCY_BUCKETS - 1);
        assert_eq!(bucket(16_777_216_001), LATENCY_BUCKETS);
        assert_eq!(bucket(u64::MAX), LATENCY_BUCKETS);
    }

    #[test]
    fn a_quantile_is_estimated_within_its_bucket() {
        let latency = Latency::default();
        let read = || {
            let mut sum = LatencySum::default();
            latency.add_to(&mut sum);
            sum
        };
        assert_eq!((read().mean_seconds(), read().quantile_seconds(0.99)), (0.0, 0.0));
        latency.record(Duration::from_millis(1));
        let before = read();
        (0..100).for_each(|_| latency.record(Duration::from_micros(3)));
        let since = read().since(&before);
        assert_eq!(since.count(), 100);
        assert!((since.mean_seconds() - 3e-6).abs() < 1e-9, "{}", since.mean_seconds());
        let p99 = since.quantile_seconds(0.99);
        assert!((3.9e-6..=4e-6).contains(&p99), "{p99}");
        latency.record(Duration::from_secs(100));
        assert!(read().since(&before).quantile_seconds(1.0) > 16.0);
    }

    #[test]
    fn sums_add_workers() {
        let (one, other) = (Latency::default(), Latency::default());
        one.record(Duration::from_micros(3));
        other.record(Duration::from_secs(100));
        let mut sum = LatencySum::default();
        one.add_to(&mut sum);
        other.add_to(&mut sum);
        assert_eq!(sum.count(), 2);
        let filled: Vec<(f64, u64)> = sum.bounds().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(4e-6, 1), (f64::INFINITY, 1)]);
        assert_eq!(sum.total_nanos, 100_000_003_000);
    }
}
