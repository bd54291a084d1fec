//! The measurements of one client thread in one second, and the recorder that collects them.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use client::answer::{Failure, FailureKind};
use hdrhistogram::Histogram;

use super::histogram;

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

/// The latencies of one kind of operation.
#[derive(Clone, Debug, Default)]
pub struct KindLatencies {
    /// Service times of successful operations.
    pub service: Option<Histogram<u64>>,
    /// Times from the intended start of successful operations; open loop only.
    pub intended: Option<Histogram<u64>>,
    /// Service times of failed operations.
    pub failed: Option<Histogram<u64>>,
}

impl KindLatencies {
    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &KindLatencies) {
        merge_into(&mut self.service, &other.service);
        merge_into(&mut self.intended, &other.intended);
        merge_into(&mut self.failed, &other.failed);
    }

    /// Number of successful operations.
    pub fn ok_count(&self) -> u64 {
        self.service.as_ref().map_or(0, Histogram::len)
    }

    /// Number of failed operations.
    pub fn failed_count(&self) -> u64 {
        self.failed.as_ref().map_or(0, Histogram::len)
    }
}

/// The count and the first message of a kind of failure.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureCount {
    /// How many.
    pub count: u64,
    pub first_message: String,
}

/// Failures by kind of operation (its number) and class.
pub type Failures = BTreeMap<(u8, FailureKind), FailureCount>;

/// One second of one thread.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    pub thread: usize,
    /// 0 is the first measured second.
    pub second: i64,
    /// One per kind of operation.
    pub kinds: Vec<KindLatencies>,
    /// Whole operations that succeeded (a read-modify-write is one).
    pub ok: u64,
    /// Whole operations that failed.
    pub failed: u64,
    /// Arrivals that were due.
    pub arrived: u64,
    /// Dropped arrivals.
    pub skipped: u64,
    /// Arrivals waiting at the end.
    pub waiting: u64,
    /// Longest queue.
    pub waiting_max: u64,
    /// Operations in flight at the end.
    pub in_flight: u64,
    /// Bytes written.
    pub sent_bytes: u64,
    /// Bytes read.
    pub received_bytes: u64,
    /// Responses of which only the type was checked.
    pub checked_by_type: u64,
    /// Responses that were parsed and compared.
    pub parsed: u64,
    pub failures: Failures,
    /// When the last query was sent, from the start of the measured part.
    pub last_sent_ns: i64,
    /// When the last response arrived, from the start of the measured part.
    pub last_answer_ns: i64,
    /// Processor time of the thread until the start of this second.
    pub cpu_before_seconds: f64,
    /// Processor time of the thread until its end.
    pub cpu_after_seconds: f64,
}

/// The duration of an operation, or of a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Durations {
    /// From sending to the response.
    pub service_ns: u64,
    /// From the intended start to the response; `None` in a closed loop.
    pub intended_ns: Option<u64>,
}

/// Fills one [`Interval`] per second and sends it to the collector at the end of the second.
pub struct Recorder {
    current: Interval,
    kinds: usize,
    sink: Sender<Interval>,
}

impl Recorder {
    /// A recorder for `kinds` kinds of operation that starts at `now_ns`, when the thread has used `cpu_seconds`.
    pub fn new(thread: usize, kinds: usize, now_ns: i64, cpu_seconds: f64, sink: Sender<Interval>) -> Self {
        let current = Interval {
            thread,
            second: now_ns.div_euclid(NANOSECONDS_PER_SECOND),
            kinds: vec![KindLatencies::default(); kinds],
            cpu_before_seconds: cpu_seconds,
            cpu_after_seconds: cpu_seconds,
            ..Interval::default()
        };
        Recorder { current, kinds, sink }
    }

    /// The present second.
    pub fn current(&mut self) -> &mut Interval {
        &mut self.current
    }

    /// Moves to the second of `now_ns`; returns whether a second was completed. `gauges` fills in the values at the end
    /// of a second.
    pub fn advance(&mut self, now_ns: i64, gauges: impl FnOnce(&mut Interval)) -> bool {
        let second = now_ns.div_euclid(NANOSECONDS_PER_SECOND);
        if second <= self.current.second {
            return false;
        }
        gauges(&mut self.current);
        self.send(second);
        true
    }

    /// Sends the last, incomplete second.
    pub fn finish(mut self, gauges: impl FnOnce(&mut Interval)) {
        gauges(&mut self.current);
        let second = self.current.second;
        self.send(second);
    }

    /// Records a part of an operation that succeeded.
    pub fn part(&mut self, kind: u8, took: Durations) {
        let kind = &mut self.current.kinds[usize::from(kind)];
        let service = kind.service.get_or_insert_with(histogram::empty);
        histogram::record(service, took.service_ns);
        if let Some(intended_ns) = took.intended_ns {
            let intended = kind.intended.get_or_insert_with(histogram::empty);
            histogram::record(intended, intended_ns);
        }
    }

    /// Counts a whole operation that succeeded at `now_ns`.
    pub fn succeeded(&mut self, now_ns: i64) {
        self.current.ok += 1;
        self.current.last_answer_ns = now_ns;
    }

    /// Records an operation that failed.
    pub fn failed(&mut self, kind: u8, service_ns: u64, failure: Failure, now_ns: i64) {
        self.current.failed += 1;
        self.current.last_answer_ns = now_ns;
        let times = self.current.kinds[usize::from(kind)].failed.get_or_insert_with(histogram::empty);
        histogram::record(times, service_ns);
        self.current
            .failures
            .entry((kind, failure.kind))
            .or_insert_with(|| FailureCount { count: 0, first_message: failure.message })
            .count += 1;
    }

    fn send(&mut self, next_second: i64) {
        let next = Interval {
            thread: self.current.thread,
            second: next_second,
            kinds: vec![KindLatencies::default(); self.kinds],
            last_sent_ns: self.current.last_sent_ns,
            last_answer_ns: self.current.last_answer_ns,
            cpu_before_seconds: self.current.cpu_after_seconds,
            cpu_after_seconds: self.current.cpu_after_seconds,
            ..Interval::default()
        };
        // The channel is closed when the run has already failed.
        let _ = self.sink.send(std::mem::replace(&mut self.current, next));
    }
}

fn merge_into(into: &mut Option<Histogram<u64>>, other: &Option<Histogram<u64>>) {
    match (into.as_mut(), other) {
        (_, None) => {}
        (Some(into), Some(other)) => histogram::merge(into, other),
        (None, Some(other)) => *into = Some(other.clone()),
    }
}
