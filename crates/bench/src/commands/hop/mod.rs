//! `bench hop`: what a query costs the servers more when a second one takes part in it: a get that is asked of a
//! server without the row, an update that a second replica has to have.

mod kinds;
mod servers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::ensure;
use clap::Args;
use serde_json::json;

use crate::assemble::{About, blank};
use crate::flags::OutputFlags;
use crate::fleet::flags::FleetFlags;
use crate::fleet::{Fleet, data_folder};
use crate::limits::{above_zero, at_least_one};
use crate::machine::facts;
use crate::result::{ClientUse, RunResult, Throughput, Versions};
use crate::site::BENCH_VERSION;
use kinds::{PAIRS, Run, middle, verdict};
use servers::Bench;

const NODES: usize = 2;
/// Length of the run of each kind that nobody looks at.
const TRIAL_SECONDS: f64 = 2.0;

/// Measures what a query costs more when a second server takes part in it
#[derive(Args, Clone, Debug)]
pub struct HopArgs {
    /// Documents of about 1 KB in each of two tables
    #[arg(long, value_name = "N", default_value_t = 30_000, value_parser = at_least_one::<u64>)]
    records: u64,
    /// Length of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 8.0, value_parser = above_zero)]
    seconds: f64,
    /// How often each of the four kinds is measured, by turns: the ratio in the middle counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one::<u16>)]
    rounds: u16,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one::<usize>)]
    connections: usize,
    /// Folder for the nodes' data meanwhile
    #[arg(long, value_name = "FOLDER", default_value = "hop-nodes")]
    folder: PathBuf,
    #[command(flatten)]
    fleet: FleetFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the command. The exit code says whether both ratios are within their bars.
pub fn run(mut args: HopArgs) -> anyhow::Result<ExitCode> {
    args.fleet.share_cores(NODES);
    args.fleet.fit(NODES)?;
    let folder = data_folder(&args.folder)?;
    let fleet = Fleet::start(&args.fleet.plan(NODES, &folder)?, None)?;
    let outcome = measure(&args, &fleet);
    let dead = fleet.dead();
    drop(fleet);
    folder.give_up()?;
    ensure!(dead.is_empty(), "{}", dead.join("\n"));
    let (result, is_held) = outcome?;
    let code = args.output.finish(&result)?;
    Ok(if is_held { code } else { ExitCode::FAILURE })
}

fn measure(args: &HopArgs, fleet: &Fleet) -> anyhow::Result<(RunResult, bool)> {
    let started = SystemTime::now();
    let bench = Bench::prepare(args, fleet)?;
    let kinds = || PAIRS.iter().flat_map(|pair| &pair.kinds);
    for kind in kinds() {
        bench.run(kind, TRIAL_SECONDS.min(args.seconds), 0)?;
    }
    let mut measured: Vec<Vec<Run>> = kinds().map(|_| Vec::new()).collect();
    for round in 1..=u64::from(args.rounds) {
        for (kind, runs) in kinds().zip(&mut measured) {
            runs.push(bench.run(kind, args.seconds, round)?);
        }
    }
    let verdicts: Vec<(String, bool)> =
        PAIRS.iter().zip(measured.chunks(2)).map(|(pair, of_both)| verdict(pair, of_both)).collect();
    let mut result = blank(about(args, &verdicts, started));
    let all = || measured.iter().flatten();
    let seconds: f64 = all().map(|run| run.seconds).sum();
    let operations: u64 = all().map(|run| run.operation.ok).sum();
    result.throughput = Throughput {
        operations,
        operations_per_second: operations as f64 / seconds.max(1e-9),
        units: Vec::new(),
    };
    result.time.measured_seconds = seconds;
    result.client = client(all());
    result.cost.client_cpu_us_per_operation = Some(result.client.cpu_seconds * 1e6 / operations as f64);
    result.operations = measured.into_iter().map(|runs| middle(runs, Run::cpu).operation).collect();
    result.pacing.kind = "closed".to_owned();
    result.pacing.connections = args.connections;
    result.pacing.pipeline = 1;
    result.machine = facts::machine(true);
    result.versions =
        Versions { bench: BENCH_VERSION.to_owned(), server: bench.version, ..Versions::default() };
    Ok((result, verdicts.iter().all(|(_, is_held)| *is_held)))
}

/// What the client used in all runs.
fn client<'a>(runs: impl Iterator<Item = &'a Run>) -> ClientUse {
    runs.map(|run| &run.client).fold(ClientUse::default(), |sum, one| ClientUse {
        cpu_seconds: sum.cpu_seconds + one.cpu_seconds,
        user_seconds: sum.user_seconds + one.user_seconds,
        system_seconds: sum.system_seconds + one.system_seconds,
        threads: sum.threads.max(one.threads),
        busiest_thread_share: sum.busiest_thread_share.max(one.busiest_thread_share),
        waiting_share: None,
        peak_memory_bytes: sum.peak_memory_bytes.max(one.peak_memory_bytes),
        sent_bytes: sum.sent_bytes + one.sent_bytes,
        received_bytes: sum.received_bytes + one.received_bytes,
    })
}

fn about(args: &HopArgs, verdicts: &[(String, bool)], started: SystemTime) -> About {
    let settings = json!({
        "records": args.records,
        "seconds": args.seconds,
        "rounds": args.rounds,
        "connections": args.connections,
        "cache-size": args.fleet.cache_mb(),
        "node-flag": args.fleet.node_flag,
    });
    About {
        kind: "hop",
        workload: String::new(),
        name: "A second server".to_owned(),
        label: args.output.label.clone(),
        published: None,
        seed: args.output.seed,
        settings: settings.as_object().cloned().unwrap_or_default(),
        notes: verdicts.iter().map(|(text, _)| text.clone()).collect(),
        started,
    }
}
