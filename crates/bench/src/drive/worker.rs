//! One client thread: waits for its connections, checks responses, sends the next operations.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use client::answer::{Failure, FailureKind};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::arrivals::{ArrivalQueue, Arrivals};
use super::clock::RunClock;
use super::connection::{Connection, InFlight, ReadOutcome};
use super::workload::{CheckDepth, Verdict, Workload};
use crate::machine::own_process;
use crate::measure::interval::{Durations, Interval, Recorder};

const EVENTS_PER_WAIT: usize = 256;
/// The thread wakes at least this often to complete its seconds and check its deadline.
const WAKE_INTERVAL_NS: i64 = 50_000_000;
/// One in this many responses is parsed and compared.
const ANSWERS_PER_SCRUTINY: u64 = 64;

/// The conditions under which a thread stops sending.
pub struct Limits {
    /// The end of the run.
    pub deadline_ns: Option<i64>,
    /// Remaining operations, shared by all threads; operations of the warm-up do not count.
    pub operations_left: Option<Arc<AtomicI64>>,
    /// How long to wait for responses afterwards.
    pub drain_ns: i64,
}

/// The state of an open loop.
pub struct OpenLoop {
    /// The schedule.
    pub arrivals: Arrivals,
    pub line: ArrivalQueue,
    /// One entry per operation that could be sent, least recently used connection first.
    pub ready: VecDeque<usize>,
}

/// One client thread.
pub struct Worker {
    pub clock: RunClock,
    pub connections: Vec<Connection>,
    /// The operations.
    pub workload: Box<dyn Workload>,
    /// The measurements.
    pub recorder: Recorder,
    /// When it stops.
    pub limits: Limits,
    /// The schedule; `None` in a closed loop.
    pub open: Option<OpenLoop>,
    /// The epoll instance.
    pub epoll: OwnedFd,
    /// Buffer for the next query.
    pub query: Vec<u8>,
    pub counters: WorkerCounters,
}

/// Counters of a thread.
#[derive(Default)]
pub struct WorkerCounters {
    judged: u64,
    in_flight: usize,
    lost: usize,
    ended: bool,
}

impl Worker {
    /// Drives the connections until the run ends.
    pub fn run(mut self) -> std::io::Result<()> {
        self.register()?;
        if self.open.is_none() {
            (0..self.connections.len()).for_each(|place| self.refill(place));
        }
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        let mut ended_at = None;
        loop {
            let now = self.clock.now_ns();
            self.close_second(now);
            self.admit(now);
            self.counters.ended |= self.limits.deadline_ns.is_some_and(|d| now >= d);
            if self.finished() {
                break;
            }
            if self.counters.ended && now - *ended_at.get_or_insert(now) > self.limits.drain_ns {
                break;
            }
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&self.wait_time(now))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.serve(event.data.u64() as usize);
            }
        }
        self.finish();
        Ok(())
    }

    fn register(&self) -> std::io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        for (place, connection) in self.connections.iter().enumerate() {
            let data = epoll::EventData::new_u64(place as u64);
            epoll::add(&self.epoll, &connection.stream, data, flags)?;
        }
        Ok(())
    }

    fn finished(&self) -> bool {
        let no_arrivals =
            self.counters.ended || self.open.as_ref().is_some_and(|open| open.arrivals.next_at().is_none());
        let queue_is_empty = self.open.as_ref().is_none_or(|open| open.line.is_empty());
        let all_lost = self.counters.lost == self.connections.len();
        all_lost || (no_arrivals && queue_is_empty && self.counters.in_flight == 0)
    }

    fn wait_time(&self, now: i64) -> Timespec {
        let arrival = self.open.as_ref().and_then(|open| open.arrivals.next_at());
        let wait = arrival.map_or(WAKE_INTERVAL_NS, |at| (at - now).clamp(0, WAKE_INTERVAL_NS));
        Timespec { tv_sec: 0, tv_nsec: wait }
    }

    /// Queues all arrivals that are due, and sends those for which a connection is free.
    fn admit(&mut self, now: i64) {
        let Some(open) = &mut self.open else { return };
        let current = self.recorder.current();
        while let Some(intended) = open.arrivals.pop_due(now) {
            current.arrived += 1;
            if !open.line.push(intended) {
                current.skipped += 1;
            }
        }
        current.waiting_max = current.waiting_max.max(open.line.len() as u64);
        self.serve_line();
    }

    fn serve_line(&mut self) {
        while let Some(open) = self.open.as_mut().filter(|open| !open.line.is_empty()) {
            let Some(place) = open.ready.pop_front() else { return };
            if self.connections[place].closed {
                continue;
            }
            let intended = open.line.pop();
            if !self.start(place, intended) {
                return self.close_arrivals();
            }
            self.flush(place);
        }
    }

    fn close_arrivals(&mut self) {
        if let Some(open) = &mut self.open {
            open.arrivals.close();
            while open.line.pop().is_some() {}
        }
    }

    /// Reads and checks the responses on a connection, then sends the next operations.
    fn serve(&mut self, place: usize) {
        if self.connections[place].closed {
            return;
        }
        loop {
            let received = &mut self.recorder.current().received_bytes;
            let outcome = self.connections[place].fill(received);
            let now = self.clock.now_ns();
            while let Some((slot, flight, body)) = self.connections[place].take() {
                self.judge(place, slot, flight, body, now);
            }
            match outcome {
                ReadOutcome::Drained => break,
                ReadOutcome::More => {}
                ReadOutcome::Closed => return self.lose(place),
            }
        }
        if self.open.is_some() {
            self.serve_line();
        } else {
            self.refill(place);
        }
        self.flush(place);
    }

    fn judge(&mut self, place: usize, slot: usize, flight: InFlight, body: std::ops::Range<usize>, now: i64) {
        self.counters.judged += 1;
        let depth = if self.counters.judged % ANSWERS_PER_SCRUTINY == 1 {
            self.recorder.current().parsed += 1;
            CheckDepth::Whole
        } else {
            self.recorder.current().checked_by_type += 1;
            CheckDepth::Head
        };
        self.query.clear();
        let connection = &mut self.connections[place];
        let answer = connection.body(body);
        let verdict = self.workload.judge(&flight.part, answer, depth, &mut self.query);
        match verdict {
            Verdict::More => return connection.send_continue(slot, flight),
            Verdict::Stop => return connection.send_stop(slot, flight),
            Verdict::Next(part) => {
                self.recorder.part(flight.part.kind, took(&flight, flight.sent_ns, now));
                let flight = InFlight { part, sent_ns: self.clock.now_ns(), ..flight };
                return connection.send_in(slot, &self.query, flight);
            }
            Verdict::Done => {
                self.recorder.part(flight.part.kind, took(&flight, flight.sent_ns, now));
                if let Some(whole) = flight.part.whole {
                    self.recorder.part(whole, took(&flight, flight.started_ns, now));
                }
                self.recorder.succeeded(now);
            }
            Verdict::Failed(failure) => self.fail(&flight, failure, now),
        }
        self.counters.in_flight -= 1;
        self.connections[place].release(slot);
        if let Some(open) = &mut self.open {
            open.ready.push_back(place);
        }
    }

    fn refill(&mut self, place: usize) {
        while self.connections[place].has_room() && self.start(place, None) {}
        self.flush(place);
    }

    /// Queues one new operation; `false` when there is none left.
    fn start(&mut self, place: usize, intended_ns: Option<i64>) -> bool {
        let now = self.clock.now_ns();
        let too_late = self.limits.deadline_ns.is_some_and(|deadline| now >= deadline);
        // An arrival from before the deadline is sent even after it.
        self.counters.ended |= too_late;
        if (self.counters.ended && intended_ns.is_none()) || !self.take_from_budget(now) {
            self.counters.ended = true;
            return false;
        }
        self.query.clear();
        let Some(part) = self.workload.next(place, &mut self.query) else {
            self.counters.ended = true;
            return false;
        };
        let sent_ns = self.clock.now_ns();
        let flight = InFlight { part, sent_ns, started_ns: sent_ns, intended_ns };
        self.connections[place].send(&self.query, flight);
        self.counters.in_flight += 1;
        self.recorder.current().last_sent_ns = sent_ns;
        true
    }

    fn take_from_budget(&self, now: i64) -> bool {
        match &self.limits.operations_left {
            Some(left) if now >= 0 => left.fetch_sub(1, Ordering::Relaxed) > 0,
            _ => true,
        }
    }

    fn flush(&mut self, place: usize) {
        let sent = &mut self.recorder.current().sent_bytes;
        if !self.connections[place].closed && !self.connections[place].flush(sent) {
            self.lose(place);
        }
    }

    fn lose(&mut self, place: usize) {
        self.counters.lost += 1;
        self.abandon(place, FailureKind::ConnectionLost, "the server closed the connection");
    }

    fn abandon(&mut self, place: usize, kind: FailureKind, message: &str) {
        let now = self.clock.now_ns();
        for flight in self.connections[place].abandon() {
            self.counters.in_flight -= 1;
            self.fail(&flight, Failure::new(kind, message), now);
        }
    }

    fn fail(&mut self, flight: &InFlight, failure: Failure, now: i64) {
        let service_ns = (now - flight.sent_ns).max(0) as u64;
        self.recorder.failed(flight.part.kind, service_ns, failure, now);
    }

    fn close_second(&mut self, now: i64) {
        let in_flight = self.counters.in_flight;
        let waiting = self.open.as_ref().map_or(0, |open| open.line.len());
        self.recorder.advance(now, |interval| gauges(interval, in_flight, waiting));
    }

    fn finish(mut self) {
        for place in 0..self.connections.len() {
            self.abandon(place, FailureKind::NoAnswer, "no answer until the end of the run");
        }
        let never_sent = self.open.as_ref().map_or(0, |open| open.line.len());
        self.recorder.finish(|interval| {
            interval.skipped += never_sent as u64;
            gauges(interval, 0, 0);
        });
    }
}

fn gauges(interval: &mut Interval, in_flight: usize, waiting: usize) {
    interval.in_flight = in_flight as u64;
    interval.waiting = waiting as u64;
    interval.cpu_after_seconds = own_process::thread_cpu_seconds();
}

fn took(flight: &InFlight, from_ns: i64, now: i64) -> Durations {
    Durations {
        service_ns: (now - from_ns).max(0) as u64,
        intended_ns: flight.intended_ns.map(|intended| (now - intended).max(0) as u64),
    }
}
