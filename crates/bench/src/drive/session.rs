//! One run from the first connection to the last response: starts the threads, samples the servers once a second,
//! reports progress, and combines all measurements.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use client::dial::{DialError, dial, dial_and_greet};
use client::handshake::Login;

use super::arrivals::{ArrivalQueue, Arrivals, Spacing};
use super::clock::{RunClock, nanoseconds};
use super::connection::Connection;
use super::worker::{Limits, OpenLoop, Worker, WorkerCounters};
use super::workload::Workload;
use crate::machine::own_process::{self, OwnCpu};
use crate::machine::watch::{Sample, Watched};
use crate::measure::collect::{Collector, Totals};
use crate::measure::interval::{Interval, Recorder};
use crate::result::Point;
use crate::rng::Rng;

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;
/// Time for all threads to become ready before the warm-up starts.
const HEAD_START: Duration = Duration::from_millis(20);

/// When a connection sends its next operation.
#[derive(Clone, Debug)]
pub enum LoopKind {
    /// When the last one is answered.
    Closed,
    /// At scheduled times.
    Open {
        /// Arrivals per second.
        rate: f64,
        /// How they are spaced.
        spacing: Spacing,
        /// The capacity of the queue for a free connection.
        waiting_max: usize,
    },
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Host and port of each server; connections alternate between them.
    pub addresses: Vec<String>,
    /// The login; `None` for servers without a handshake.
    pub login: Option<Login>,
    /// Connections in total.
    pub connections: usize,
    /// Operations in flight per connection.
    pub pipeline: usize,
    /// Client threads.
    pub threads: usize,
    /// When a connection sends its next operation.
    pub kind: LoopKind,
    /// Length of the warm-up before the measured part.
    pub warmup: Duration,
    /// Length of the measured part.
    pub seconds: Option<Duration>,
    /// Operations of the measured part.
    pub operations: Option<u64>,
    /// How long to wait for the last responses.
    pub drain: Duration,
    /// Seed of random arrivals and handshakes.
    pub seed: u64,
}

/// The measurements of a run.
pub struct Driven {
    /// Sums of the measured part.
    pub totals: Totals,
    /// One per second.
    pub points: Vec<Point>,
    /// From the start of the measured part to the last response.
    pub measured_seconds: f64,
    /// From the last query to the last response.
    pub drain_seconds: f64,
    /// Processor time of this process in the measured part.
    pub client_cpu: OwnCpu,
    /// Samples of each server at the start and at the end of the measured part.
    pub server_samples: Vec<(Sample, Sample)>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// A connection could not be opened.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// A system call of a client thread failed.
    #[error("a client thread failed")]
    Thread(#[from] std::io::Error),
    /// A client thread panicked.
    #[error("a client thread panicked")]
    Panicked,
}

/// Runs `plan`. `workloads` creates the workload of one thread from its number and its number of connections; `status`
/// is called after every completed second.
pub fn drive(
    plan: &Plan,
    names: &'static [&'static str],
    mut workloads: impl FnMut(usize, usize) -> Box<dyn Workload>,
    watched: &[Watched],
    status: &mut dyn FnMut(&Point),
) -> Result<Driven, DriveError> {
    let threads = plan.threads.clamp(1, plan.connections.max(1));
    let (interval_sink, intervals) = mpsc::channel();
    let (ready_sink, ready) = mpsc::channel();
    let mut starts = Vec::new();
    let mut handles = Vec::new();
    let operations_left = plan.operations.map(|n| Arc::new(AtomicI64::new(n as i64)));
    for thread in 0..threads {
        let (start_sink, start) = mpsc::channel();
        starts.push(start_sink);
        let places: Vec<usize> = (thread..plan.connections).step_by(threads).collect();
        let inputs = ThreadInputs {
            plan: plan.clone(),
            thread,
            threads,
            kinds: names.len(),
            workload: workloads(thread, places.len()),
            places,
            operations_left: operations_left.clone(),
        };
        let (ready_sink, interval_sink) = (ready_sink.clone(), interval_sink.clone());
        let work = move || inputs.work(&ready_sink, &start, interval_sink);
        handles.push(thread::Builder::new().name(format!("bench-{thread}")).spawn(work)?);
    }
    drop((ready_sink, interval_sink));
    for _ in 0..threads {
        ready.recv().map_err(|_| DriveError::Panicked)??;
    }
    let zero = Instant::now() + HEAD_START + plan.warmup;
    for start in &starts {
        // A thread that has ended is detected when it is joined.
        let _ = start.send(zero);
    }
    let observer = Observer::new(RunClock::new(zero), watched);
    let seen = observer.observe(Collector::new(names, threads), &intervals, status);
    for handle in handles {
        handle.join().map_err(|_| DriveError::Panicked)??;
    }
    Ok(seen)
}

struct ThreadInputs {
    plan: Plan,
    thread: usize,
    threads: usize,
    kinds: usize,
    workload: Box<dyn Workload>,
    places: Vec<usize>,
    operations_left: Option<Arc<AtomicI64>>,
}

impl ThreadInputs {
    fn work(
        self,
        ready: &Sender<Result<(), DialError>>,
        start: &Receiver<Instant>,
        sink: Sender<Interval>,
    ) -> std::io::Result<()> {
        let connections = match self.connect() {
            Ok(connections) => connections,
            Err(error) => {
                let _ = ready.send(Err(error));
                return Ok(());
            }
        };
        let _ = ready.send(Ok(()));
        // Another thread could not connect, so the run is cancelled.
        let Ok(zero) = start.recv() else { return Ok(()) };
        thread::sleep((zero - self.plan.warmup).saturating_duration_since(Instant::now()));
        self.into_worker(connections, RunClock::new(zero), sink)?.run()
    }

    fn connect(&self) -> Result<Vec<Connection>, DialError> {
        let open = |place: &usize| {
            let address = &self.plan.addresses[place % self.plan.addresses.len()];
            let stream = match &self.plan.login {
                Some(login) => dial_and_greet(address, login)?.0,
                None => dial(address)?,
            };
            Connection::new(stream, self.plan.pipeline)
                .map_err(|source| DialError::Unreachable { address: address.clone(), source })
        };
        self.places.iter().map(open).collect()
    }

    fn into_worker(
        self,
        connections: Vec<Connection>,
        clock: RunClock,
        sink: Sender<Interval>,
    ) -> std::io::Result<Worker> {
        let plan = &self.plan;
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
        Ok(Worker {
            clock,
            recorder: Recorder::new(
                self.thread,
                self.kinds,
                clock.now_ns(),
                own_process::thread_cpu_seconds(),
                sink,
            ),
            limits: Limits {
                deadline_ns: plan.seconds.map(nanoseconds),
                operations_left: self.operations_left.clone(),
                drain_ns: nanoseconds(plan.drain),
            },
            open: self.open_loop(connections.len()),
            workload: self.workload,
            connections,
            epoll,
            query: Vec::new(),
            counters: WorkerCounters::default(),
        })
    }

    fn open_loop(&self, connections: usize) -> Option<OpenLoop> {
        let plan = &self.plan;
        let LoopKind::Open { rate, spacing, waiting_max } = plan.kind else { return None };
        let share = 1.0 / self.threads as f64;
        let window = -nanoseconds(plan.warmup)..plan.seconds.map_or(i64::MAX, nanoseconds);
        let rng = Rng::new(plan.seed, 2_000_000 + self.thread as u64);
        let offset = self.thread as f64 * share;
        let ready: VecDeque<usize> = (0..connections * plan.pipeline).map(|n| n % connections).collect();
        Some(OpenLoop {
            arrivals: Arrivals::new(rate * share, spacing, window, offset, rng),
            line: ArrivalQueue::new(waiting_max.div_ceil(self.threads)),
            ready,
        })
    }
}

/// Samples this process and the servers once per second of a run.
struct Observer<'a> {
    clock: RunClock,
    watched: &'a [Watched],
    marks: Vec<Mark>,
}

/// The samples at the start of one second.
struct Mark {
    second: i64,
    at_ns: i64,
    client: OwnCpu,
    servers: Vec<Sample>,
}

impl<'a> Observer<'a> {
    fn new(clock: RunClock, watched: &'a [Watched]) -> Self {
        let mut observer = Observer { clock, watched, marks: Vec::new() };
        let second = clock.now_ns().div_euclid(NANOSECONDS_PER_SECOND);
        observer.mark(second);
        observer
    }

    fn mark(&mut self, second: i64) {
        let servers = self.watched.iter().map(Watched::sample).collect();
        self.marks.push(Mark { second, at_ns: self.clock.now_ns(), client: own_process::cpu(), servers });
    }

    fn observe(
        mut self,
        mut collector: Collector,
        intervals: &Receiver<Interval>,
        status: &mut dyn FnMut(&Point),
    ) -> Driven {
        let mut next_second = self.marks[0].second + 1;
        loop {
            let due = next_second * NANOSECONDS_PER_SECOND - self.clock.now_ns();
            match intervals.recv_timeout(Duration::from_nanos(due.max(0) as u64)) {
                Ok(interval) => collector.take(interval),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.clock.now_ns() >= next_second * NANOSECONDS_PER_SECOND {
                self.mark(next_second);
                next_second += 1;
            }
            while let Some(point) = collector.next_complete() {
                status(point);
            }
        }
        self.mark(next_second);
        self.combine(collector)
    }

    fn combine(self, collector: Collector) -> Driven {
        let (totals, mut points) = collector.finish();
        for point in &mut points {
            self.add_use(point);
        }
        let seconds = |ns: i64| ns.max(0) as f64 / NANOSECONDS_PER_SECOND as f64;
        let start = self.marks.iter().find(|m| m.second >= 0).unwrap_or(&self.marks[0]);
        let end = &self.marks[self.marks.len() - 1];
        let client_cpu = OwnCpu {
            seconds: end.client.seconds - start.client.seconds,
            user_seconds: end.client.user_seconds - start.client.user_seconds,
            system_seconds: end.client.system_seconds - start.client.system_seconds,
            // Threads may have ended before the last sample, and their waiting time is no longer counted then.
            waited_seconds: start.client.waited_seconds.map(|before| {
                let all = self.marks.iter().filter_map(|mark| mark.client.waited_seconds);
                all.fold(before, f64::max) - before
            }),
        };
        Driven {
            measured_seconds: seconds(totals.last_answer_ns).max(1e-9),
            drain_seconds: seconds(totals.last_answer_ns - totals.last_sent_ns),
            client_cpu,
            server_samples: start.servers.iter().copied().zip(end.servers.clone()).collect(),
            totals,
            points,
        }
    }

    fn add_use(&self, point: &mut Point) {
        let at = |second| self.marks.iter().find(|m: &&Mark| m.second == second);
        let (Some(start), Some(end)) = (at(point.second), at(point.second + 1)) else { return };
        let length = (end.at_ns - start.at_ns).max(1) as f64 / NANOSECONDS_PER_SECOND as f64;
        point.client_cpu_share = Some((end.client.seconds - start.client.seconds) / length);
        let sum = |value: fn(&Sample) -> Option<f64>| -> Option<f64> {
            let pairs = start.servers.iter().zip(&end.servers);
            let grown = pairs.map(|(a, b)| Some((value(b)? - value(a)?).max(0.0)));
            grown.sum::<Option<f64>>().filter(|_| !start.servers.is_empty())
        };
        let whole = |value: Option<f64>| value.map(|v| v as u64);
        point.server_cpu_share = sum(|s| s.cpu_seconds).map(|cpu| cpu / length);
        point.log_appends = whole(sum(|s| s.log_appends.map(|n| n as f64)));
        point.log_fsyncs = whole(sum(|s| s.log_fsyncs.map(|n| n as f64)));
        point.server_written_bytes = whole(sum(|s| s.written_bytes.map(|n| n as f64)));
        let memory = end.servers.iter().map(|s| s.memory_bytes).sum::<Option<u64>>();
        point.server_memory_bytes = memory.filter(|_| !end.servers.is_empty());
    }
}
