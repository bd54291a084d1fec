//! Sums the seconds of all threads to totals of the measured part and to one point per second.

use std::collections::BTreeMap;

use super::histogram;
use super::interval::{FailureCount, Failures, Interval, KindLatencies};
use crate::result::{Point, PointLatency};

/// The totals of all threads in the measured part.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// One per kind of operation.
    pub kinds: Vec<KindLatencies>,
    /// Whole operations that succeeded.
    pub ok: u64,
    /// Whole operations that failed.
    pub failed: u64,
    /// Arrivals that were due.
    pub arrived: u64,
    /// Dropped arrivals.
    pub skipped: u64,
    /// Longest queue of one thread.
    pub waiting_max: u64,
    /// Bytes written.
    pub sent_bytes: u64,
    /// Bytes read.
    pub received_bytes: u64,
    /// Responses of which only the type was checked.
    pub checked_by_type: u64,
    /// Responses that were parsed and compared.
    pub parsed: u64,
    pub failures: Failures,
    /// When the last query was sent.
    pub last_sent_ns: i64,
    /// When the last response arrived.
    pub last_answer_ns: i64,
    /// Processor time of each thread within the measured part.
    pub thread_cpu_seconds: Vec<f64>,
}

/// Collects intervals, in any order of threads.
pub struct Collector {
    names: &'static [&'static str],
    totals: Totals,
    open: BTreeMap<i64, Interval>,
    points: Vec<Point>,
    thread_second: Vec<i64>,
}

impl Collector {
    /// A collector for operations with these `names` on `threads` threads.
    pub fn new(names: &'static [&'static str], threads: usize) -> Self {
        let totals = Totals {
            kinds: vec![KindLatencies::default(); names.len()],
            thread_cpu_seconds: vec![0.0; threads],
            ..Totals::default()
        };
        Collector {
            names,
            totals,
            open: BTreeMap::new(),
            points: Vec::new(),
            thread_second: vec![i64::MIN; threads],
        }
    }

    /// Adds one second of one thread.
    pub fn take(&mut self, interval: Interval) {
        self.thread_second[interval.thread] = interval.second;
        if interval.second >= 0 {
            self.add_to_totals(&interval);
        }
        match self.open.get_mut(&interval.second) {
            Some(known) => add_second(known, &interval),
            None => drop(self.open.insert(interval.second, interval)),
        }
    }

    /// The next second that all threads have completed, in order; `None` if there is none yet.
    pub fn next_complete(&mut self) -> Option<&Point> {
        let complete = *self.thread_second.iter().min()?;
        let entry = self.open.first_entry().filter(|e| *e.key() <= complete)?;
        let point = point_of(self.names, &entry.remove());
        self.points.push(point);
        self.points.last()
    }

    /// Returns the totals of the measured part and all seconds.
    pub fn finish(mut self) -> (Totals, Vec<Point>) {
        let rest = std::mem::take(&mut self.open);
        self.points.extend(rest.values().map(|interval| point_of(self.names, interval)));
        self.points.sort_by_key(|p| p.second);
        (self.totals, self.points)
    }

    fn add_to_totals(&mut self, interval: &Interval) {
        let totals = &mut self.totals;
        for (kind, seen) in totals.kinds.iter_mut().zip(&interval.kinds) {
            kind.merge(seen);
        }
        totals.ok += interval.ok;
        totals.failed += interval.failed;
        totals.arrived += interval.arrived;
        totals.skipped += interval.skipped;
        totals.waiting_max = totals.waiting_max.max(interval.waiting_max);
        totals.sent_bytes += interval.sent_bytes;
        totals.received_bytes += interval.received_bytes;
        totals.checked_by_type += interval.checked_by_type;
        totals.parsed += interval.parsed;
        totals.thread_cpu_seconds[interval.thread] +=
            interval.cpu_after_seconds - interval.cpu_before_seconds;
        totals.last_sent_ns = totals.last_sent_ns.max(interval.last_sent_ns);
        totals.last_answer_ns = totals.last_answer_ns.max(interval.last_answer_ns);
        add_failures(&mut totals.failures, &interval.failures);
    }
}

fn add_failures(into: &mut Failures, other: &Failures) {
    for (cause, seen) in other {
        into.entry(*cause)
            .or_insert_with(|| FailureCount { count: 0, first_message: seen.first_message.clone() })
            .count += seen.count;
    }
}

fn add_second(into: &mut Interval, other: &Interval) {
    for (kind, seen) in into.kinds.iter_mut().zip(&other.kinds) {
        kind.merge(seen);
    }
    into.ok += other.ok;
    into.failed += other.failed;
    into.arrived += other.arrived;
    into.skipped += other.skipped;
    into.waiting += other.waiting;
    into.in_flight += other.in_flight;
}

fn point_of(names: &'static [&'static str], interval: &Interval) -> Point {
    let operations = names.iter().zip(&interval.kinds).filter_map(|(name, kind)| {
        let service = kind.service.as_ref()?;
        let intended = kind.intended.as_ref();
        let intended_at = |q| intended.map(|h| histogram::quantile_us(h, q));
        Some(PointLatency {
            name: (*name).to_owned(),
            ok: service.len(),
            p50_us: histogram::quantile_us(service, 0.5),
            p95_us: histogram::quantile_us(service, 0.95),
            p99_us: histogram::quantile_us(service, 0.99),
            max_us: histogram::max_us(service),
            intended_p50_us: intended_at(0.5),
            intended_p99_us: intended_at(0.99),
            intended_max_us: intended.map(histogram::max_us),
        })
    });
    Point {
        second: interval.second,
        ok: interval.ok,
        failed: interval.failed,
        skipped: interval.skipped,
        waiting: (interval.arrived > 0 || interval.waiting > 0).then_some(interval.waiting),
        in_flight: interval.in_flight,
        operations: operations.collect(),
        ..Point::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::Collector;
    use crate::measure::histogram;
    use crate::measure::interval::{Durations, Recorder};
    use client::answer::{Failure, FailureKind};

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn threads_and_seconds_add_up_and_warm_up_stays_out() {
        let (sink, source) = mpsc::channel();
        for thread in 0..2 {
            let mut recorder = Recorder::new(thread, 1, -SECOND, 0.0, sink.clone());
            for step in 0..40i64 {
                let now = -SECOND + step * SECOND / 10;
                recorder.advance(now, |gauges| gauges.in_flight = 1);
                let service_ns = 1_000 * (step as u64 + 1);
                recorder.part(0, Durations { service_ns, intended_ns: None });
                recorder.succeeded(now);
            }
            let lost = Failure::new(FailureKind::ConnectionLost, "gone");
            recorder.failed(0, 5, lost, 3 * SECOND - 1);
            recorder.finish(|_| {});
        }
        drop(sink);
        let mut collector = Collector::new(&["READ"], 2);
        let mut completed = Vec::new();
        for interval in source {
            collector.take(interval);
            completed.extend(collector.next_complete().map(|p| (p.second, p.ok, p.in_flight)));
        }
        assert_eq!(completed[0], (-1, 20, 2));
        let (totals, points) = collector.finish();
        assert_eq!((totals.ok, totals.failed), (60, 2));
        assert_eq!(points.iter().map(|p| p.second).collect::<Vec<_>>(), [-1, 0, 1, 2]);
        let mut expected = histogram::empty();
        for step in 10..40u64 {
            (0..2).for_each(|_| histogram::record(&mut expected, 1_000 * (step + 1)));
        }
        assert_eq!(totals.kinds[0].service, Some(expected));
        let seen = totals.failures.values().next().expect("a failure");
        assert_eq!((seen.count, seen.first_message.as_str()), (2, "gone"));
    }
}
