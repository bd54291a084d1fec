//! The schedule of an open loop: when operations should start, independently of earlier ones.
//!
//! An arrival that finds no free connection waits in a queue with its intended start. A full queue drops the arrival
//! and counts it: latencies are then too low, and the result says so.

use std::collections::VecDeque;

use crate::rng::Rng;

/// How arrivals are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Evenly.
    Constant,
    /// With exponential gaps, as independent users arrive.
    Poisson,
}

/// An endless series of intended start times.
#[derive(Clone, Debug)]
pub struct Arrivals {
    next_ns: f64,
    gap_ns: f64,
    spacing: Spacing,
    rng: Rng,
    until_ns: i64,
}

impl Arrivals {
    /// `rate` arrivals per second within `window`. `offset` (0..1) shifts the first one by a fraction of the interval
    /// so that threads do not send at the same time.
    pub fn new(rate: f64, spacing: Spacing, window: std::ops::Range<i64>, offset: f64, rng: Rng) -> Self {
        let gap_ns = 1e9 / rate;
        let next_ns = window.start as f64 + gap_ns * offset;
        Arrivals { next_ns, gap_ns, spacing, rng, until_ns: window.end }
    }

    /// The next arrival, if it is due at `now_ns`.
    pub fn pop_due(&mut self, now_ns: i64) -> Option<i64> {
        let due = self.next_at().filter(|at| *at <= now_ns)?;
        self.next_ns += match self.spacing {
            Spacing::Constant => self.gap_ns,
            Spacing::Poisson => -(1.0 - self.rng.unit()).ln() * self.gap_ns,
        };
        Some(due)
    }

    /// The time of the next arrival; `None` after the last.
    pub fn next_at(&self) -> Option<i64> {
        let at = self.next_ns as i64;
        (at < self.until_ns).then_some(at)
    }

    /// Ends the series.
    pub fn close(&mut self) {
        self.until_ns = i64::MIN;
    }
}

/// The queue of arrivals that wait for a free connection.
#[derive(Clone, Debug)]
pub struct ArrivalQueue {
    line: VecDeque<i64>,
    length_max: usize,
}

impl ArrivalQueue {
    /// An empty queue with this capacity.
    pub fn new(length_max: usize) -> Self {
        ArrivalQueue { line: VecDeque::new(), length_max }
    }

    /// Adds an arrival; `false` when the queue is full and the arrival is dropped.
    pub fn push(&mut self, intended_ns: i64) -> bool {
        let fits = self.line.len() < self.length_max;
        if fits {
            self.line.push_back(intended_ns);
        }
        fits
    }

    /// Removes the oldest arrival.
    pub fn pop(&mut self) -> Option<i64> {
        self.line.pop_front()
    }

    /// The number of waiting arrivals.
    pub fn len(&self) -> usize {
        self.line.len()
    }

    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_arrivals_keep_their_rate_without_drift() {
        let window = 0..1_000_000_000;
        let mut arrivals = Arrivals::new(30_000.0, Spacing::Constant, window, 0.0, Rng::new(1, 0));
        let mut count = 0;
        let mut last = 0;
        while let Some(at) = arrivals.pop_due(i64::MAX) {
            assert!(at - last <= 33_334);
            (last, count) = (at, count + 1);
        }
        assert_eq!(count, 30_000);
    }

    #[test]
    fn poisson_arrivals_keep_their_rate_on_average() {
        let window = 0..20_000_000_000;
        let mut arrivals = Arrivals::new(5_000.0, Spacing::Poisson, window, 0.0, Rng::new(5, 0));
        let count = std::iter::from_fn(|| arrivals.pop_due(i64::MAX)).count();
        assert!((98_700..101_300).contains(&count), "seed 5: {count}");
    }

    /// One connection, a service time of 100 µs, and a stall from 1 s to 2 s of a run of 10 s.
    #[test]
    fn waits_behind_a_stall_are_exactly_those_of_the_arithmetic() {
        let (micro, second) = (1_000, 1_000_000_000);
        let mut arrivals = Arrivals::new(1_000.0, Spacing::Constant, 0..10 * second, 0.0, Rng::new(1, 0));
        let mut line = ArrivalQueue::new(usize::MAX);
        let mut waits = Vec::new();
        let mut free_at = 0;
        while let Some(arrival) = arrivals.pop_due(i64::MAX) {
            line.push(arrival);
            let intended = line.pop().expect("somebody waits");
            let start = intended.max(free_at);
            let start = if (second..2 * second).contains(&start) { 2 * second } else { start };
            free_at = start + 100 * micro;
            waits.push(free_at - intended);
        }
        waits.sort_unstable();
        let quantile = |q: f64| waits[(q * waits.len() as f64) as usize - 1];
        // A thousand of ten thousand arrivals meet the stall. The queue behind it shrinks by 0.9 ms per arrival, so the
        // n-th of them waits 1 s - 0.9 ms * n.
        assert_eq!(waits.len(), 10_000);
        assert_eq!(quantile(1.0), second + 100 * micro);
        assert_eq!(quantile(0.999), second + 100 * micro - 10 * 900 * micro);
        assert_eq!(quantile(0.99), second + 100 * micro - 100 * 900 * micro);
        assert_eq!(quantile(0.5), 100 * micro);
    }

    #[test]
    fn a_full_line_drops_arrivals() {
        let mut line = ArrivalQueue::new(2);
        assert!(line.push(1) && line.push(2) && !line.push(3));
        assert_eq!((line.pop(), line.pop(), line.pop()), (Some(1), Some(2), None));
    }
}
