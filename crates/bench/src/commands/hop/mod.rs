//! `bench hop`: the additional cost of a query in which a second server takes part: a get sent to a server without the
//! row, and an update with a second replica.

mod cpu_time;
mod kinds;
mod servers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::ensure;
use clap::Args;
use serde_json::json;

use crate::alarms::{CUT_SHORT, TOO_SHORT};
use crate::assemble::{RunDescription, blank};
use crate::conditions::disturbed;
use crate::flags::OutputFlags;
use crate::fleet::flags::NodeFlags;
use crate::fleet::{Fleet, data_folder};
use crate::limits::{above_zero, at_least_one};
use crate::machine::facts;
use crate::result::{Alarm, ClientUse, Pacing, RunResult, Throughput, Verification};
use crate::shapes::quiescence::Quiescence;
use kinds::{PAIRS, Run, judge, middle};
use servers::Servers;

const NODES: usize = 2;
/// Length of the unmeasured trial of each kind.
const TRIAL_SECONDS: f64 = 2.0;

/// Measures how much more a query costs when a second server takes part in it
#[derive(Args, Clone, Debug)]
pub struct HopArgs {
    /// Documents of about 1 KB in each of two tables
    #[arg(long, value_name = "N", default_value_t = 30_000, value_parser = at_least_one::<u64>)]
    records: u64,
    /// Length of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 8.0, value_parser = above_zero)]
    seconds: f64,
    /// How often each of the four kinds is measured, alternately: the median ratio counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one::<u16>)]
    rounds: u16,
    /// Connections of each run, all to the server that receives the queries
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one::<usize>)]
    connections: usize,
    /// Temporary folder for the nodes' data
    #[arg(long, value_name = "FOLDER", default_value = "hop-nodes")]
    folder: PathBuf,
    #[command(flatten)]
    fleet: NodeFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the command. The exit code says whether both ratios are within their limits.
pub fn run(mut args: HopArgs) -> anyhow::Result<ExitCode> {
    cpu_time::check_possible(args.seconds, facts::cores())?;
    args.fleet.share_cores(NODES);
    args.fleet.fit(NODES)?;
    let folder = data_folder(&args.folder)?;
    let fleet = Fleet::start(&args.fleet.plan(NODES, &folder)?, None)?;
    let outcome = measure(&args, &fleet);
    let dead = fleet.dead();
    drop(fleet);
    let released = folder.release();
    // The result is written first, and also if a server died later: the reader of the output may have closed it.
    let kept = outcome.as_ref().map_or(Ok(()), |(result, _)| args.output.keep(result));
    ensure!(dead.is_empty(), "{}", dead.join("\n"));
    let (result, is_held) = outcome?;
    kept?;
    let code = args.output.show(&result)?;
    released?;
    Ok(if is_held { code } else { ExitCode::FAILURE })
}

/// The runs of each pair's kinds, one per round.
type Measured = Vec<[Vec<Run>; 2]>;

/// Measures; returns the result and whether both ratios are within their limits. Fails if there is no result to keep.
fn measure(args: &HopArgs, fleet: &Fleet) -> anyhow::Result<(RunResult, bool)> {
    let started = SystemTime::now();
    let mut servers = Servers::prepare(args, fleet)?;
    for kind in PAIRS.iter().flat_map(|pair| &pair.kinds) {
        let trial = servers.run(kind, TRIAL_SECONDS.min(args.seconds), 0)?;
        let lasted = trial.result.time.measured_seconds;
        cpu_time::check_expected(kind.name, trial.cpu_seconds, lasted, args.seconds)?;
    }
    let mut measured: Measured = PAIRS.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    let outcome = rounds(args, &mut servers, &mut measured).and_then(|()| servers.check_leaders_unchanged());
    let is_something = measured.iter().flatten().all(|runs| !runs.is_empty());
    let why_none = match outcome {
        Err(error) if !is_something => return Err(error),
        outcome => outcome.err().map(|error| format!("the measurement is invalid: {error:#}")),
    };
    let verdicts: Vec<(String, bool)> = match &why_none {
        Some(why) => vec![(why.clone(), false)],
        None => PAIRS.iter().zip(&measured).map(|(pair, runs)| judge(pair, runs)).collect(),
    };
    let is_held = verdicts.iter().all(|(_, is_held)| *is_held);
    let notes = verdicts.into_iter().map(|(text, _)| text).chain(quiescence_note(servers.rest)).collect();
    let mut result = blank(about(args, notes, started));
    gather(&mut result, args, measured);
    result.alarms.extend(why_none.map(|message| Alarm { kind: CUT_SHORT.to_owned(), message }));
    result.versions.server = Some(servers.version);
    Ok((result, is_held))
}

/// Measures every kind once in each round. If one fails, the earlier runs stay in `measured`.
fn rounds(args: &HopArgs, servers: &mut Servers, measured: &mut Measured) -> anyhow::Result<()> {
    for round in 1..=u64::from(args.rounds) {
        for (pair, runs) in PAIRS.iter().zip(measured.iter_mut()) {
            // Alternates the order of the two kinds.
            for nth in if round % 2 == 1 { [0, 1] } else { [1, 0] } {
                let kind = &pair.kinds[nth];
                let run = servers.run(kind, args.seconds, round)?;
                if !args.output.quiet {
                    eprintln!("hop: round {round}, {}: {:.1} us of server CPU", kind.name, run.cpu_us);
                }
                runs[nth].push(run);
            }
        }
    }
    Ok(())
}

/// A note if the servers were not quiet before every run.
fn quiescence_note(rest: Quiescence) -> Option<String> {
    match rest {
        Quiescence::Reached => None,
        Quiescence::Busy => {
            Some("a server never became idle: the figures include its flushes and compactions".to_owned())
        }
        Quiescence::Unknown => Some(
            "it is not known whether the servers flushed or compacted meanwhile: they serve no metrics"
                .to_owned(),
        ),
    }
}

/// Fills the result: sums over all measured runs, and for each kind the operations of its median run.
fn gather(result: &mut RunResult, args: &HopArgs, measured: Measured) {
    let all = || measured.iter().flatten().flatten();
    let seconds: f64 = all().map(|run| run.result.time.measured_seconds).sum();
    let operations: u64 = all().map(|run| run.operation.ok).sum();
    result.throughput = Throughput {
        operations,
        operations_per_second: operations as f64 / seconds.max(1e-9),
        units: Vec::new(),
    };
    result.time.measured_seconds = seconds;
    result.client = client(all().map(|run| &run.result.client));
    result.cost.client_cpu_us_per_operation = Some(result.client.cpu_seconds * 1e6 / operations as f64);
    result.verification = Verification {
        checked_by_type: all().map(|run| run.result.verification.checked_by_type).sum(),
        parsed: all().map(|run| run.result.verification.parsed).sum(),
        wrong: all().map(|run| run.result.verification.wrong).sum(),
        ..Verification::default()
    };
    for alarm in all().flat_map(|run| &run.result.alarms) {
        if result.alarms.iter().all(|known| known.kind != alarm.kind) {
            result.alarms.push(alarm.clone());
        }
    }
    let others: Vec<_> = all().map(|run| run.others_core_share).collect();
    result.alarms.extend(disturbed(&others));
    let too_little = cpu_time::too_little(all().map(|run| run.cpu_seconds));
    result.alarms.extend(too_little.map(|message| Alarm { kind: TOO_SHORT.to_owned(), message }));
    result.pacing = Pacing {
        kind: "closed".to_owned(),
        connections: args.connections,
        pipeline: 1,
        client_threads: result.client.threads,
        ..Pacing::default()
    };
    let kinds = measured.into_iter().flatten();
    result.operations = kinds.map(|runs| middle(runs, |run| run.cpu_us).operation).collect();
}

/// The total resources of the client in all runs.
fn client<'a>(runs: impl Iterator<Item = &'a ClientUse>) -> ClientUse {
    runs.fold(ClientUse::default(), |sum, one| ClientUse {
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

fn about(args: &HopArgs, notes: Vec<String>, started: SystemTime) -> RunDescription {
    let mut settings = args.fleet.describe();
    let own = json!({
        "records": args.records,
        "seconds": args.seconds,
        "rounds": args.rounds,
        "connections": args.connections,
    });
    settings.extend(own.as_object().cloned().unwrap_or_default());
    RunDescription {
        kind: "hop",
        workload: String::new(),
        name: "A second server".to_owned(),
        label: args.output.label.clone(),
        published: None,
        seed: args.output.seed,
        settings,
        notes,
        started,
    }
}
