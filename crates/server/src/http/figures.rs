//! The figures that the history of metrics samples.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use query::MetricsHistory;

use super::metrics::{Sources, sum};
use super::process::Process;
use crate::counters::LatencySum;
use crate::service::QueryKind;

/// The kinds of queries whose latency is sampled.
const SAMPLED: [QueryKind; 4] =
    [QueryKind::PointRead, QueryKind::PointWrite, QueryKind::Read, QueryKind::Write];

/// Counters and gauges at one moment.
pub struct Figures {
    taken: Instant,
    queries: u64,
    rows_read: u64,
    rows_written: u64,
    latency: LatencySum,
    memory_bytes: f64,
    disk_bytes: f64,
    cpu_seconds: f64,
}

impl Figures {
    /// The present figures; `None` until the node is open.
    #[must_use]
    pub fn now(sources: &Sources) -> Option<Figures> {
        let observed = sources.observed()?;
        let process = Process::now();
        let queries = observed.queries.upgrade();
        let counter = |read: fn(&query::Counters) -> u64| {
            queries.as_ref().map_or(0, |queries| read(queries.counters()))
        };
        let mut latency = LatencySum::default();
        SAMPLED.into_iter().for_each(|kind| latency.add(&sum(&observed.counters, kind)));
        let disk = observed.replicas.engine().stats().disk_bytes() + observed.log.stats().disk_bytes;
        Some(Figures {
            taken: Instant::now(),
            queries: counter(|counters| counters.queries.load(Relaxed)),
            rows_read: counter(|counters| counters.rows_read.load(Relaxed)),
            rows_written: counter(|counters| counters.rows_written.load(Relaxed)),
            latency,
            memory_bytes: process.resident_bytes,
            disk_bytes: disk as f64,
            cpu_seconds: process.cpu_seconds,
        })
    }

    /// The figures of the interval that began at `before`, in the order of [`MetricsHistory::NAMES`].
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // figures for a picture
    pub fn since(&self, before: &Figures) -> [f32; MetricsHistory::NAMES.len()] {
        let seconds = self.taken.duration_since(before.taken).as_secs_f64().max(0.001);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let latency = self.latency.since(&before.latency);
        [
            rate(self.queries, before.queries),
            rate(self.rows_read, before.rows_read),
            rate(self.rows_written, before.rows_written),
            latency.mean_seconds() * 1_000.0,
            latency.quantile_seconds(0.99) * 1_000.0,
            self.memory_bytes,
            self.disk_bytes,
            (self.cpu_seconds - before.cpu_seconds).max(0.0) / seconds,
        ]
        .map(|figure| figure as f32)
    }
}
