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
