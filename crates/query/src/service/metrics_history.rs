//! The figures of this server in the last 24 hours, as the system table `_metrics` shows them. `server` adds the samples and
//! keeps them in a file.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// A sample of the figures of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricsSample {
    /// The end of the interval in seconds since 1970, a multiple of [`MetricsHistory::INTERVAL_SECS`].
    pub at: u64,
    /// The figures, in the order of [`MetricsHistory::NAMES`].
    pub values: [f32; MetricsHistory::NAMES.len()],
}

/// The samples of a server, the oldest first. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MetricsHistory(Arc<Mutex<VecDeque<MetricsSample>>>);

impl MetricsHistory {
    /// Seconds between two samples.
    pub const INTERVAL_SECS: u64 = 10;

    /// Samples of 24 hours.
    pub const SAMPLES_MAX: usize = 8640;

    /// The names of the figures; each has its unit at the end.
    pub const NAMES: [&str; 8] = [
        "queries_per_sec",
        "reads_per_sec",
        "writes_per_sec",
        "latency_mean_ms",
        "latency_p99_ms",
        "memory_bytes",
        "disk_bytes",
        "cpu_cores",
    ];

    /// Adds a sample. One that is not later than the last one is left out, so that a clock that was set back leaves no
    /// disorder.
    pub fn add(&self, sample: MetricsSample) {
        let mut samples = self.0.lock();
        if samples.back().is_some_and(|last| last.at >= sample.at) {
            return;
        }
        samples.push_back(sample);
        let oldest = sample.at.saturating_sub(Self::INTERVAL_SECS * Self::SAMPLES_MAX as u64);
        while samples.len() > Self::SAMPLES_MAX || samples.front().is_some_and(|first| first.at < oldest) {
            samples.pop_front();
        }
    }

    /// The samples later than `after`. Samples of `interval` seconds, which is a multiple of
    /// [`MetricsHistory::INTERVAL_SECS`], are averaged; their `at` is the end of their interval.
    #[must_use]
    pub fn since(&self, after: u64, interval: u64) -> Vec<MetricsSample> {
        let samples = self.0.lock();
        let mut averaged: Vec<(MetricsSample, f32)> = Vec::new();
        for sample in samples.iter().filter(|sample| sample.at > after) {
            let at = sample.at.next_multiple_of(interval.max(1));
            match averaged.last_mut().filter(|(last, _)| last.at == at) {
                Some((sum, count)) => {
                    sum.values.iter_mut().zip(sample.values).for_each(|(sum, value)| *sum += value);
                    *count += 1.0;
                }
                None => averaged.push((MetricsSample { at, values: sample.values }, 1.0)),
            }
        }
        let mean = |(sum, count): (MetricsSample, f32)| MetricsSample {
            at: sum.at,
            values: sum.values.map(|value| value / count),
        };
        averaged.into_iter().map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, value: f32) -> MetricsSample {
        MetricsSample { at, values: [value; MetricsHistory::NAMES.len()] }
    }

    fn shown(history: &MetricsHistory, after: u64, interval: u64) -> Vec<(u64, f32)> {
        history.since(after, interval).into_iter().map(|sample| (sample.at, sample.values[0])).collect()
    }

    #[test]
    fn samples_are_averaged_over_an_interval() {
        let history = MetricsHistory::default();
        [(10, 1.0), (20, 3.0), (30, 5.0), (30, 9.0), (20, 9.0)]
            .into_iter()
            .for_each(|(at, value)| history.add(sample(at, value)));
        assert_eq!(shown(&history, 0, 10), [(10, 1.0), (20, 3.0), (30, 5.0)]);
        assert_eq!(shown(&history, 0, 20), [(20, 2.0), (40, 5.0)]);
        assert_eq!(shown(&history, 20, 10), [(30, 5.0)]);
    }

    #[test]
    fn samples_of_a_day_are_kept() {
        let history = MetricsHistory::default();
        (1..=10_000).for_each(|n| history.add(sample(n * 10, 1.0)));
        assert_eq!(history.since(0, 10).len(), MetricsHistory::SAMPLES_MAX);
        history.add(sample(1_000_000, 1.0));
        assert_eq!(shown(&history, 0, 10), [(1_000_000, 1.0)], "older than a day");
    }
}
