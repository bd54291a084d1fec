//! `bench idle`: the cost of a cluster with many tables and no queries, and the time it takes to report the status of
//! its tables and to create another one.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use client::admin::Admin;
use client::handshake::Login;
use client::terms;
use hdrhistogram::Histogram;
use serde_json::json;

use crate::assemble::{RunDescription, blank};
use crate::conditions::{Mark, disturbed};
use crate::flags::OutputFlags;
use crate::fleet::flags::NodeFlags;
use crate::fleet::{Fleet, data_folder, folder_bytes, system_rows};
use crate::limits::{above_zero, at_least_one, seconds};
use crate::machine::watch::{Sample, Watched};
use crate::measure::histogram;
use crate::result::{OperationResult, RunResult, Throughput, Times, Versions};
use crate::sut::BENCH_VERSION;
use crate::terminal::thousands;

const DATABASE: &str = "idle";
/// How often `table_status` is read.
const STATUS_TIMES: usize = 5;

/// Measures a cluster with many tables and no queries
#[derive(Args, Clone, Debug)]
pub struct IdleArgs {
    /// Servers
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one::<u16>)]
    nodes: u16,
    /// Tables
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one::<usize>)]
    tables: usize,
    /// Shards of each
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one::<u32>)]
    shards: u32,
    /// Replicas of each
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one::<u32>)]
    replicas: u32,
    /// Seconds between the last table and the measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0, value_parser = seconds)]
    settle: f64,
    /// Length of the measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = above_zero)]
    seconds: f64,
    /// Temporary folder for the nodes' data
    #[arg(long, value_name = "FOLDER", default_value = "idle-nodes")]
    folder: PathBuf,
    #[command(flatten)]
    fleet: NodeFlags,
    #[command(flatten)]
    output: OutputFlags,
}

pub fn run(args: IdleArgs) -> anyhow::Result<ExitCode> {
    args.fleet.fit(usize::from(args.nodes))?;
    let folder = data_folder(&args.folder)?;
    let fleet = Fleet::start(&args.fleet.plan(usize::from(args.nodes), &folder)?, None)?;
    let outcome = measure(&args, fleet);
    let released = folder.release();
    let result = outcome?;
    // The result is written first: the reader of the output may have closed it.
    args.output.keep(&result)?;
    released?;
    println!("{}", said(&result));
    args.output.show(&result)
}

fn measure(args: &IdleArgs, fleet: Fleet) -> anyhow::Result<RunResult> {
    let started = SystemTime::now();
    let login = Login { user: "admin".to_owned(), password: String::new() };
    let addresses = fleet.addresses();
    let mut admin = Admin::connect(&addresses[0], &login)?;
    let watched: Vec<Watched> =
        addresses.iter().map(|address| Watched::find(address, None, Some("none".to_owned()))).collect();

    let creates = create_tables(args, &mut admin)?;
    std::thread::sleep(Duration::try_from_secs_f64(args.settle)?);
    let around = Mark::now(&watched);
    let before: Vec<Sample> = watched.iter().map(Watched::sample).collect();
    let since = Instant::now();
    std::thread::sleep(Duration::try_from_secs_f64(args.seconds)?);
    let seconds = since.elapsed().as_secs_f64();
    let after: Vec<Sample> = watched.iter().map(Watched::sample).collect();
    let others = around.others_until(&Mark::now(&watched));
    let mut statuses = histogram::empty();
    for _ in 0..STATUS_TIMES {
        let asked = Instant::now();
        let rows = system_rows(&mut admin, "table_status")?;
        anyhow::ensure!(rows.len() >= args.tables, "table_status has {} rows", rows.len());
        histogram::record(&mut statuses, asked.elapsed().as_nanos() as u64);
    }
    let dead = fleet.dead();
    anyhow::ensure!(dead.is_empty(), "{}", dead.join("\n"));

    let mut result = blank(about(args, started));
    let bytes: u64 = fleet.folders().iter().map(|folder| folder_bytes(folder)).sum();
    result.notes.push(format!("data folders: {} MB", bytes / 1_000_000));
    let samples = before.iter().zip(&after);
    result.servers = watched.iter().zip(samples).map(|(w, (a, b))| w.used(a, b, seconds)).collect();
    result.time = Times { warmup_seconds: args.settle, measured_seconds: seconds, drain_seconds: 0.0 };
    result.operations = vec![operation("TABLE-CREATE", &creates), operation("TABLE-STATUS", &statuses)];
    let operations = result.operations.iter().map(|one| one.ok).sum();
    result.throughput = Throughput { operations, operations_per_second: 0.0, units: Vec::new() };
    result.pacing.kind = "closed".to_owned();
    result.pacing.connections = 1;
    result.pacing.pipeline = 1;
    result.versions = Versions {
        bench: BENCH_VERSION.to_owned(),
        server: Some(admin.server_version.clone()),
        ..Versions::default()
    };
    result.alarms.extend(disturbed(&[others]));
    Ok(result)
}

/// Creates the tables one after the other and waits for the last; returns how long each took.
fn create_tables(args: &IdleArgs, admin: &mut Admin) -> anyhow::Result<Histogram<u64>> {
    let mut times = histogram::empty();
    admin.ask(&terms::db_create(DATABASE))?;
    for number in 0..args.tables {
        let options = json!({"shards": args.shards, "replicas": args.replicas});
        let asked = Instant::now();
        admin.ask(&terms::table_create(DATABASE, &format!("table{number}"), options))?;
        histogram::record(&mut times, asked.elapsed().as_nanos() as u64);
        if !args.output.quiet && (number + 1) % 100 == 0 {
            eprintln!("idle: {} tables", thousands(number as u64 + 1));
        }
    }
    admin.ask(&terms::wait(terms::db(DATABASE)))?;
    Ok(times)
}

fn operation(name: &str, times: &Histogram<u64>) -> OperationResult {
    OperationResult {
        name: name.to_owned(),
        ok: times.len(),
        failed: 0,
        per_second: 0.0,
        service: histogram::latency(times),
        intended: None,
        failed_service: None,
        server_cpu_us_per_operation: None,
    }
}

fn about(args: &IdleArgs, started: SystemTime) -> RunDescription {
    let mut settings = args.fleet.describe();
    let own = json!({
        "nodes": args.nodes,
        "tables": args.tables,
        "shards": args.shards,
        "replicas": args.replicas,
        "settle": args.settle,
        "seconds": args.seconds,
    });
    settings.extend(own.as_object().cloned().unwrap_or_default());
    RunDescription {
        kind: "idle",
        workload: String::new(),
        name: format!("Idle: {} nodes, {} tables", args.nodes, args.tables),
        label: args.output.label.clone(),
        published: None,
        seed: args.output.seed,
        settings,
        notes: Vec::new(),
        started,
    }
}

/// The totals of all servers.
fn said(result: &RunResult) -> String {
    let cpu: f64 = result.servers.iter().filter_map(|server| server.cpu_seconds).sum();
    let memory: u64 = result.servers.iter().filter_map(|server| server.memory_bytes).sum();
    let busiest = result.servers.iter().filter_map(|server| server.cpu_seconds).fold(0.0, f64::max);
    let seconds = result.time.measured_seconds;
    format!(
        "idle        {:.1} % of one core for all {} nodes, {:.1} % for the busiest; {} MB of memory together\n",
        cpu / seconds * 100.0,
        result.servers.len(),
        busiest / seconds * 100.0,
        thousands(memory / 1_000_000)
    )
}
