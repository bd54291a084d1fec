//! `bench reql`: the server cost of typical query shapes of applications, in one run.
//!
//! Queries about few rows are sent over many connections: over one, the server's processors fall asleep between
//! queries, and waking them costs more than the query. A busy machine affects the
//! elapsed time, and hardly the processor time.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use clap::Args;
use hdrhistogram::Histogram;
use serde_json::json;

use crate::assemble::{RunDescription, blank};
use crate::drive::session::{Driven, LoopKind, Plan, drive};
use crate::drive::workload::Workload;
use crate::flags::{Format, OutputFlags, ServerFlags, duration};
use crate::limits::at_least_one;
use crate::machine::facts;
use crate::machine::watch::Sample;
use crate::measure::histogram;
use crate::result::{OperationResult, Pacing, RunResult, Verification};
use crate::rng::Rng;
use crate::shapes::quiescence::{self, Quiescence};
use crate::shapes::shape::{Per, QueryValues, SHAPES, Shape};
use crate::shapes::table;
use crate::shapes::workload::ShapeWorkload;
use crate::sut::SystemUnderTest;

/// With less processor time of a server there is no figure: the kernel counts hundredths of a second.
const CPU_SECONDS_MIN: f64 = 0.2;
/// How long to wait for the last responses of a shape.
const DRAIN: Duration = Duration::from_secs(60);
/// The kind of operation recorded for each shape.
const NAMES: &[&str] = &["QUERY"];

/// Measures the server cost of query shapes, one after the other
#[derive(Args, Clone, Debug)]
pub struct ReqlArgs {
    /// Rows of the table that is read; it is made again if it has another number
    #[arg(long, default_value_t = 100_000, value_parser = at_least_one::<u64>)]
    rows: u64,
    /// Number of queries about few rows, over all connections together
    #[arg(long, default_value_t = 20_000, value_parser = at_least_one::<u64>)]
    times: u64,
    /// Number of queries about all rows, one after the other
    #[arg(long, default_value_t = 5, value_parser = at_least_one::<u64>)]
    scans: u64,
    /// Connections for queries about few rows, with one query in flight each
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one::<usize>)]
    connections: usize,
    /// Seconds of unmeasured queries before them
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    warmup: f64,
    /// Only the shapes whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// The cost of a shape.
struct Cost {
    shape: &'static Shape,
    /// Whether the servers were quiet before.
    rest: Quiescence,
    operations: u64,
    seconds: f64,
    /// Server processor time; `None` if it is too little for a figure.
    cpu_seconds: Option<f64>,
    /// Responses that were compared with the expected ones.
    parsed: u64,
    /// Responses of which only the type was checked.
    checked_by_type: u64,
    latency: Histogram<u64>,
}

impl Cost {
    /// The number of units that share the cost: queries or rows.
    fn shares(&self, rows: u64) -> f64 {
        match self.shape.per {
            Per::Query => self.operations as f64,
            Per::Row => (self.operations * rows) as f64,
        }
    }

    fn cpu_us(&self, rows: u64) -> Option<f64> {
        Some(self.cpu_seconds? * 1e6 / self.shares(rows))
    }

    /// A line of the printed table.
    fn line(&self, rows: u64) -> String {
        let unit = if self.shape.per == Per::Row { "µs/row" } else { "µs    " };
        let cpu = self.cpu_us(rows).map_or("too few       ".to_owned(), |each| format!("{each:>7.2} {unit}"));
        let elapsed = self.seconds * 1e6 / self.shares(rows);
        format!("{:<44} {cpu:>14} {:>8.2} {elapsed:>9.2} µs", self.shape.name, self.shape.bar)
    }

    /// The verdict as a sentence, for the result.
    fn verdict(&self, rows: u64) -> String {
        let Shape { name, bar, .. } = self.shape;
        let unit = if self.shape.per == Per::Row { "row" } else { "query" };
        match self.cpu_us(rows) {
            None => format!("{name}: too few operations to compute the cost of one"),
            Some(each) if each <= *bar => {
                format!("{name}: {each:.2} us of server CPU per {unit}, at most {bar} wanted: held")
            }
            Some(each) => {
                format!("{name}: {each:.2} us of server CPU per {unit}, at most {bar} wanted: MISSED")
            }
        }
    }

    fn result(&self) -> OperationResult {
        let each = self.cpu_seconds.map(|cpu| cpu * 1e6 / self.operations as f64);
        OperationResult {
            name: self.shape.name.to_owned(),
            ok: self.operations,
            failed: 0,
            per_second: self.operations as f64 / self.seconds.max(1e-9),
            service: histogram::latency(&self.latency),
            intended: None,
            failed_service: None,
            server_cpu_us_per_operation: each,
        }
    }
}

/// Runs the command. The exit code says whether all costs with a figure are within their limits.
pub fn run(args: &ReqlArgs) -> anyhow::Result<ExitCode> {
    let started = SystemTime::now();
    let warmup = duration(args.warmup).context("--warmup")?;
    let (sut, mut admin) = SystemUnderTest::open(args.server.request())?;
    let shows = args.output.format == Format::Table;
    table::prepare(&mut admin, args.rows, args.output.quiet)?;
    if shows {
        println!("{:<44} {:>12} {:>10} {:>12}", "shape", "server CPU", "bar", "elapsed");
    }
    let mut costs = Vec::new();
    for shape in SHAPES.iter().filter(|shape| shape.name.contains(&args.only)) {
        let cost = measure(shape, args, warmup, &sut).context(shape.name)?;
        if shows {
            println!("{}", cost.line(args.rows));
        }
        costs.push(cost);
    }
    let result = result(args, &sut, &costs, started);
    args.output.keep(&result)?;
    if shows {
        result.notes.iter().take(CONDITION_NOTES).for_each(|note| println!("{note}"));
    }
    if args.output.format == Format::Json {
        println!("{}", serde_json::to_string_pretty(&result)?);
    }
    let vague = costs.iter().filter(|cost| cost.cpu_seconds.is_none()).count();
    if vague > 0 {
        eprintln!(
            "{vague} shapes took less than {CPU_SECONDS_MIN} s of server CPU, which is counted in hundredths: \
             give more --times or --scans"
        );
    }
    let is_missed = |cost: &Cost| cost.cpu_us(args.rows).is_some_and(|each| each > cost.shape.bar);
    Ok(if costs.iter().any(is_missed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn measure(
    shape: &'static Shape,
    args: &ReqlArgs,
    warmup: Duration,
    sut: &SystemUnderTest,
) -> anyhow::Result<Cost> {
    // The trial run is not measured and does what only happens the first time. For instance, the first scan after a
    // load makes the engine write its buffered rows, flush and compact.
    let (trial, plan) = match shape.per {
        Per::Query => {
            let plan = plan(args, sut, args.connections, args.times, warmup);
            (plan.clone(), plan)
        }
        Per::Row => {
            let plan = |scans| plan(args, sut, 1, scans, Duration::ZERO);
            (plan(1), plan(args.scans))
        }
    };
    ask(shape, args, &trial, RunPhase::Trial, sut)?;
    let mut rest = quiescence::wait(&sut.watched);
    if shape.per == Per::Row {
        // Compaction has evicted blocks from the cache.
        ask(shape, args, &trial, RunPhase::Trial, sut)?;
        rest = quiescence::wait(&sut.watched);
    }
    let driven = ask(shape, args, &plan, RunPhase::Measured, sut)?;
    let used: Option<f64> = driven.server_samples.iter().map(cpu_between).sum();
    let used = used
        .filter(|_| !sut.watched.is_empty())
        .context("the server's process was not found (--server-pid)")?;
    Ok(Cost {
        shape,
        rest,
        operations: driven.totals.ok,
        seconds: driven.measured_seconds,
        cpu_seconds: (used >= CPU_SECONDS_MIN).then_some(used),
        parsed: driven.totals.parsed,
        checked_by_type: driven.totals.checked_by_type,
        latency: driven.totals.kinds[0].service.clone().unwrap_or_else(histogram::empty),
    })
}

fn plan(
    args: &ReqlArgs,
    sut: &SystemUnderTest,
    connections: usize,
    operations: u64,
    warmup: Duration,
) -> Plan {
    Plan {
        addresses: sut.addresses.clone(),
        login: Some(sut.login.clone()),
        connections,
        pipeline: 1,
        threads: threads(sut, connections),
        kind: LoopKind::Closed,
        warmup,
        seconds: None,
        operations: Some(operations),
        drain: DRAIN,
        seed: args.output.seed,
    }
}

/// Client threads: half of the cores if the servers need the others.
fn threads(sut: &SystemUnderTest, connections: usize) -> usize {
    let cores = facts::cores();
    if sut.is_local { cores / 2 } else { cores }.clamp(1, connections)
}

/// Whether a run is a trial or the measured run.
#[derive(Clone, Copy)]
enum RunPhase {
    /// Its cost is not measured.
    Trial,
    Measured,
}

impl RunPhase {
    /// The first number of the inserted rows; each run has its own range.
    fn first_insert(self) -> u64 {
        match self {
            RunPhase::Trial => 0,
            RunPhase::Measured => 1 << 39,
        }
    }

    /// The random stream of its first thread: the trial must not read the same rows as the measured run.
    fn first_stream(self) -> u64 {
        match self {
            RunPhase::Trial => 8_000_000,
            RunPhase::Measured => 7_000_000,
        }
    }
}

/// Sends the queries of `shape`; a wrong response ends the run with an error.
fn ask(
    shape: &'static Shape,
    args: &ReqlArgs,
    plan: &Plan,
    phase: RunPhase,
    sut: &SystemUnderTest,
) -> anyhow::Result<Driven> {
    let workload = |thread: usize, _| -> Box<dyn Workload> {
        let draw = QueryValues {
            rng: Rng::new(args.output.seed, phase.first_stream() + thread as u64),
            rows: args.rows,
            next_insert: phase.first_insert() + thread as u64,
            insert_step: plan.threads as u64,
        };
        Box::new(ShapeWorkload::new(shape, draw))
    };
    let driven = drive(plan, NAMES, workload, &sut.watched, &mut |_| {})?;
    let failed = driven.totals.failed;
    if let Some(((_, kind), seen)) = driven.totals.failures.iter().next() {
        bail!(
            "{failed} of {} queries failed: {}: {}",
            failed + driven.totals.ok,
            kind.name(),
            seen.first_message
        );
    }
    if driven.totals.ok == 0 {
        bail!("no query was answered");
    }
    Ok(driven)
}

fn cpu_between((before, after): &(Sample, Sample)) -> Option<f64> {
    Some((after.cpu_seconds? - before.cpu_seconds?).max(0.0))
}

/// The number of notes about the whole result, which come first.
const CONDITION_NOTES: usize = 2;

fn conditions(args: &ReqlArgs, costs: &[Cost]) -> [String; CONDITION_NOTES] {
    let rest = match costs.iter().map(|cost| cost.rest).max() {
        Some(Quiescence::Unknown) => {
            "it is not known whether the servers flushed or compacted meanwhile: not all of them serve metrics (--http)"
        }
        Some(Quiescence::Busy) => {
            "a server never became idle: the figures include its own flushes and compactions"
        }
        Some(Quiescence::Reached) | None => {
            "before each shape, the servers neither flushed nor compacted for a second"
        }
    };
    let asked = format!(
        "queries for few rows use {} connections, one query at a time on each, after {} s of warm-up; queries for all \
         rows use one; before, each shape runs once unmeasured",
        args.connections, args.warmup
    );
    [asked, rest.to_owned()]
}

/// The result document (docs/formats/bench-result.md): each shape is a kind of operation.
fn result(args: &ReqlArgs, sut: &SystemUnderTest, costs: &[Cost], started: SystemTime) -> RunResult {
    let settings = json!({
        "rows": args.rows,
        "times": args.times,
        "scans": args.scans,
        "connections": args.connections,
        "warmup": args.warmup,
        "only": args.only,
        "hosts": sut.addresses.join(","),
    });
    let verdicts = costs.iter().map(|cost| cost.verdict(args.rows));
    let mut result = blank(RunDescription {
        kind: "reql",
        workload: String::new(),
        name: "Shapes of queries".to_owned(),
        label: args.output.label.clone(),
        published: None,
        seed: args.output.seed,
        settings: settings.as_object().cloned().unwrap_or_default(),
        notes: conditions(args, costs).into_iter().chain(verdicts).collect(),
        started,
    });
    let seconds: f64 = costs.iter().map(|cost| cost.seconds).sum();
    let operations: u64 = costs.iter().map(|cost| cost.operations).sum();
    result.pacing = Pacing {
        kind: "closed".to_owned(),
        connections: args.connections,
        pipeline: 1,
        client_threads: threads(sut, args.connections),
        ..Pacing::default()
    };
    result.time.measured_seconds = seconds;
    let warm = costs.iter().filter(|cost| cost.shape.per == Per::Query).count();
    result.time.warmup_seconds = args.warmup * warm as f64;
    result.verification = Verification {
        checked_by_type: costs.iter().map(|cost| cost.checked_by_type).sum(),
        parsed: costs.iter().map(|cost| cost.parsed).sum(),
        ..Verification::default()
    };
    result.throughput.operations = operations;
    result.throughput.operations_per_second = operations as f64 / seconds.max(1e-9);
    result.operations = costs.iter().map(Cost::result).collect();
    result.machine = facts::machine(sut.is_local);
    result.versions = sut.versions.clone();
    result
}
