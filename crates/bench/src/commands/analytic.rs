//! `bench analytic`: the published map-reduce query, timed and checked.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use client::admin::Admin;
use client::answer;
use client::terms;
use serde_json::{Value, json};

use crate::assemble::{Extras, RunDescription, assemble};
use crate::drive::session::{LoopKind, Plan, drive};
use crate::drive::workload::{CheckDepth, OperationPart, Verdict, Workload};
use crate::flags::{OutputFlags, ServerFlags, duration};
use crate::limits::{above_zero, at_least_one};
use crate::machine::watch::{Watched, difference};
use crate::result::{CheckOutcome, Published, RunResult, TimedRun};
use crate::sut::SystemUnderTest;
use crate::terminal::{Goal, ProgressLine};
use crate::ycsb::settings::DATABASE;
use crate::ycsb::table::{self, Loaded};

const NAMES: &[&str] = &["QUERY"];
/// The longest published query took a minute; a slow machine may take an hour.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3600);

/// How the answer is verified.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// The loader's sum if the table has not changed since, else a recount
    Auto,
    /// The loader's sum
    Loaded,
    /// A sum that the client computes from every document
    Recount,
    /// Nothing
    None,
}

/// Times the published query map(row => row('field0').split('.').count()).sum()
#[derive(Args, Clone, Debug)]
pub struct AnalyticArgs {
    /// Minimum number of timed runs of the query
    #[arg(long, default_value_t = 5, value_parser = at_least_one::<u64>)]
    runs: u64,
    /// Repeat it for at least this long
    #[arg(long, value_name = "SECONDS", value_parser = above_zero)]
    seconds: Option<f64>,
    /// Number of untimed runs before them
    #[arg(long, default_value_t = 1)]
    warm: u64,
    /// Table of the documents
    #[arg(long, default_value = "usertable")]
    table: String,
    /// Database of the table
    #[arg(long, default_value = DATABASE)]
    db: String,
    /// Field whose sentences are counted
    #[arg(long, default_value = "field0")]
    field: String,
    /// How the answer is verified
    #[arg(long, value_enum, default_value_t = Check::Auto)]
    check: Check,
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    output: OutputFlags,
}

pub fn run(args: AnalyticArgs) -> anyhow::Result<ExitCode> {
    let output = args.output.clone();
    output.finish(&measure(args)?)
}

/// Times the query and returns the result.
pub fn measure(args: AnalyticArgs) -> anyhow::Result<RunResult> {
    let started = SystemTime::now();
    let seed = args.output.seed;
    let (sut, mut admin) = SystemUnderTest::open(args.server.request())?;
    let target = terms::table(&args.db, &args.table);
    let documents = match admin.ask(&terms::count(target.clone())) {
        Ok(count) => count.as_u64().unwrap_or(0),
        Err(error) => bail!("{error} (run `rekindle bench ycsb load` first)"),
    };
    if documents == 0 {
        bail!("{}.{} is empty: run `rekindle bench ycsb load` first", args.db, args.table);
    }
    let query = terms::sum_of_split_counts(target, &args.field, ".");
    for _ in 0..args.warm {
        admin.ask(&query)?;
    }
    let plan = plan(&sut, seed);
    let runs = Arc::new(Mutex::new(Vec::new()));
    let at_least = duration(args.seconds.unwrap_or(0.0)).context("--seconds")?;
    let make = |_, _| -> Box<dyn Workload> {
        Box::new(Repeated {
            query: json!([1, query, {}]).to_string().into_bytes(),
            watched: sut.watched.clone(),
            left: args.runs.max(1),
            until: None,
            at_least,
            start: None,
            runs: Arc::clone(&runs),
        })
    };
    let goal = args.seconds.map_or(Goal::Operations(args.runs), Goal::Seconds);
    let mut line = ProgressLine::new(args.output.quiet, Some(goal));
    let driven = drive(&plan, NAMES, make, &sut.watched, &mut |point| line.show(point))?;
    line.end();

    let runs = std::mem::take(&mut *runs.lock().unwrap_or_else(|e| e.into_inner()));
    let checks = check(&args, &mut admin, &runs, documents)?;
    let extras = Extras {
        units: vec![("documents", documents * driven.totals.ok)],
        runs,
        checks,
        ..Extras::default()
    };
    let about = about(&args, &sut, documents, started);
    Ok(assemble(about, &plan, &sut, NAMES, driven, extras))
}

fn plan(sut: &SystemUnderTest, seed: u64) -> Plan {
    Plan {
        addresses: sut.addresses.clone(),
        login: Some(sut.login.clone()),
        connections: 1,
        pipeline: 1,
        threads: 1,
        kind: LoopKind::Closed,
        warmup: Duration::ZERO,
        seconds: None,
        operations: None,
        drain: QUERY_TIMEOUT,
        seed,
    }
}

/// Sends one query repeatedly and times each run.
struct Repeated {
    query: Vec<u8>,
    watched: Vec<Watched>,
    /// The minimum number of remaining runs.
    left: u64,
    /// When the minimum duration ends.
    until: Option<Instant>,
    at_least: Duration,
    start: Option<(Instant, Option<f64>)>,
    runs: Arc<Mutex<Vec<TimedRun>>>,
}

impl Repeated {
    fn server_cpu_seconds(&self) -> Option<f64> {
        let each = self.watched.iter().map(|server| server.sample().cpu_seconds);
        each.sum::<Option<f64>>().filter(|_| !self.watched.is_empty())
    }
}

impl Workload for Repeated {
    fn next(&mut self, _place: usize, query: &mut Vec<u8>) -> Option<OperationPart> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.at_least);
        if self.left == 0 && Instant::now() >= until {
            return None;
        }
        self.left = self.left.saturating_sub(1);
        query.extend_from_slice(&self.query);
        let cpu_before = self.server_cpu_seconds();
        self.start = Some((Instant::now(), cpu_before));
        Some(OperationPart::default())
    }

    fn judge(&mut self, _: &OperationPart, body: &[u8], _: CheckDepth, _: &mut Vec<u8>) -> Verdict {
        let end = Instant::now();
        let parsed = match answer::parse(body) {
            Ok(parsed) => parsed,
            Err(failure) => return Verdict::Failed(failure),
        };
        let Some((start, cpu_before)) = self.start.take() else { return Verdict::Done };
        let cpu = difference(cpu_before, self.server_cpu_seconds());
        let run = TimedRun {
            ms: (end - start).as_secs_f64() * 1e3,
            server_cpu_ms: cpu.map(|seconds| seconds * 1e3),
            answer: parsed.r.first().and_then(Value::as_f64).unwrap_or(f64::NAN),
        };
        self.runs.lock().unwrap_or_else(|e| e.into_inner()).push(run);
        Verdict::Done
    }
}

fn check(
    args: &AnalyticArgs,
    admin: &mut Admin,
    runs: &[TimedRun],
    documents: u64,
) -> anyhow::Result<Vec<CheckOutcome>> {
    let loaded = match args.check {
        Check::Auto | Check::Loaded if args.db == DATABASE => table::loaded(admin, &args.table)?,
        _ => None,
    };
    let is_first_field = |l: &Loaded| {
        l.shape["fieldnameprefix"].as_str().is_some_and(|prefix| args.field == format!("{prefix}0"))
    };
    let still_true = |l: &Loaded| !l.changed && l.documents == documents && is_first_field(l);
    let (expected, source) = match (args.check, loaded) {
        (Check::None, _) => return Ok(Vec::new()),
        (Check::Loaded, None) => bail!("{} has no side table: use --check recount", args.table),
        (Check::Loaded, Some(loaded)) => (loaded.sentences, side_table(args)),
        (Check::Auto, Some(loaded)) if still_true(&loaded) => (loaded.sentences, side_table(args)),
        (Check::Auto | Check::Recount, _) => {
            (recount(args, admin)?, "recount of every document by the client".to_owned())
        }
    };
    let expected = expected as f64;
    let wrong = runs.iter().map(|run| run.answer).find(|answer| *answer != expected);
    let found = wrong.or(runs.first().map(|run| run.answer)).unwrap_or(f64::NAN);
    let name = "analytic sum".to_owned();
    Ok(vec![CheckOutcome { name, expected, found, ok: found == expected, source }])
}

fn side_table(args: &AnalyticArgs) -> String {
    format!("side table {}", table::side_table(&args.table))
}

fn recount(args: &AnalyticArgs, admin: &mut Admin) -> anyhow::Result<u64> {
    let mut sentences = 0;
    let fields = terms::map_field(terms::table(&args.db, &args.table), &args.field);
    admin.stream(&fields, |text| {
        sentences += text.as_str().map_or(0, |text| text.split('.').count() as u64);
    })?;
    Ok(sentences)
}

fn about(args: &AnalyticArgs, sut: &SystemUnderTest, documents: u64, started: SystemTime) -> RunDescription {
    let settings = json!({
        "runs": args.runs,
        "seconds": args.seconds,
        "warm": args.warm,
        "db": args.db,
        "table": args.table,
        "field": args.field,
        "documents": documents,
        "hosts": sut.addresses.join(","),
    });
    RunDescription {
        kind: "analytic",
        workload: String::new(),
        name: "Analytic query".to_owned(),
        label: args.output.label.clone(),
        published: Some(Published {
            report: "rethinkdb-2.1.5".to_owned(),
            workload: "analytic".to_owned(),
            servers: sut.servers,
        }),
        seed: args.output.seed,
        settings: settings.as_object().cloned().unwrap_or_default(),
        notes: Vec::new(),
        started,
    }
}
