//! `histories`: clients of the official driver read and change single documents (registers, counters, sets, lists and
//! banks) on three nodes while nodes are killed, stopped, cut off from each other or receive messages late. Then porcupine
//! checks for each document whether the history of all clients is linearizable. The clients and this checker are in
//! `tests/histories`. At the end every node is asked for every document, all replicas must have the same rows, and the
//! table must take writes again without intervention. Clients with few responses run for longer; a run with too few
//! responses even then is not checked and fails.
//!
//! The modes ([`modes`]) come from the published tests of RethinkDB 2.1.5. With reads and acknowledgements by
//! `majority` every history must be linearizable; the other modes promise less. A check for linearizability must detect
//! the stale reads of `outdated` (`--expect-violation`). `--nemesis replay` is the published test of 2.2.3, in which
//! RethinkDB lost writes (jepsen.io/analyses/rethinkdb-2-2-3-reconfiguration).

mod clients;
mod modes;
mod nemesis;
mod replay;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::harness::checkout::root;
use crate::harness::cluster::Cluster;
use crate::harness::namespaces::Namespaces;
use crate::harness::options::RunOptions;
use crate::harness::replica_rows::divergent_nodes;
use clients::{Clients, Job};
use modes::Modes;
use nemesis::Nemesis;

/// The load, the faults, and the expected result.
#[derive(clap::Args)]
pub struct Options {
    /// The faults [default: each but `replay` and `calm` in turn; network faults only where they are allowed]
    #[arg(long, value_enum)]
    nemesis: Option<Nemesis>,
    /// Nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..))]
    nodes: u16,
    /// The number of runs, each with another seed and new nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Succeed if the history of one of the runs is not linearizable
    #[arg(long)]
    expect_violation: bool,
    /// Skip faults that are not allowed on this machine instead of failing
    #[arg(long)]
    if_allowed: bool,
    #[command(flatten)]
    job: Job,
    #[command(flatten)]
    modes: Modes,
    #[command(flatten)]
    trial: RunOptions,
}

/// Runs the clients under each nemesis. Fails if a history breaks a promise of its modes; with `--expect-violation`, fails
/// if all histories are linearizable.
pub fn run(options: &Options) -> ExitCode {
    let in_turn = || Nemesis::value_variants().iter().copied().filter(|one| one.is_usual()).collect();
    let nemeses: Vec<Nemesis> = options.nemesis.map_or_else(in_turn, |only| vec![only]);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for nemesis in &nemeses {
        if nemesis.needs_network()
            && (options.nemesis.is_none() || options.if_allowed)
            && let Err(error) = Namespaces::create(1)
        {
            println!("histories: {} is not run: {error:#}", nemesis.name());
            skipped += 1;
            continue;
        }
        let seeds = (0..u64::from(options.runs)).map(|run| options.trial.seed.wrapping_add(run));
        let mut verdicts = seeds.map(|seed| verdict_of(options, *nemesis, seed));
        if !options.expect_violation {
            verdicts.for_each(|one| match one {
                Verdict::Possible => passed += 1,
                Verdict::Impossible | Verdict::None => failed += 1,
            });
            continue;
        }
        match verdicts.find(|one| *one != Verdict::Possible) {
            Some(Verdict::Impossible) => passed += 1,
            Some(_) => failed += 1,
            None => {
                println!("histories: stale reads were allowed and not detected");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Possible,
    Impossible,
    /// Another failure, which was printed.
    None,
}

fn verdict_of(options: &Options, nemesis: Nemesis, seed: u64) -> Verdict {
    run_one(options, nemesis, seed).unwrap_or_else(|error| {
        println!("histories: {}: {error:#}", nemesis.name());
        Verdict::None
    })
}

/// Runs the clients under `nemesis` and checks their history.
fn run_one(options: &Options, nemesis: Nemesis, seed: u64) -> Result<Verdict> {
    let Options { job, modes, trial: RunOptions { program, .. }, .. } = options;
    let nodes = usize::from(options.nodes);
    println!("histories: {}, seed {seed}, {nodes} nodes, {}", nemesis.name(), modes.name());
    let folder = tempfile::tempdir().context("a folder for the nodes' data")?;
    let flags = ["--no-http-admin"];
    let mut cluster = match nemesis {
        Nemesis::Delay => Cluster::start_with_delays(program, folder.path(), nodes, &flags, seed)?,
        _ if nemesis.needs_network() => Cluster::start_in_namespaces(program, folder.path(), nodes, &flags)?,
        _ => Cluster::start(program, folder.path(), nodes, &flags)?,
    };
    table::create(&cluster, nodes, &modes.settings())?;
    let mut random = StdRng::seed_from_u64(seed);
    let history = folder.path().join("history.jsonl");
    let clients = Clients::start(&cluster.drivers(), job, modes, seed, &history)?;
    nemesis.inject(&mut cluster, &mut random, || clients.is_over())?;
    table::check_writable(&cluster)?;
    let divergent = divergent_nodes(&cluster.drivers(), "histories")?;
    if !divergent.is_empty() {
        bail!("nodes {divergent:?} have other rows than n0");
    }
    clients.read_all()?;
    let must = if options.expect_violation { "all" } else { modes.judge() };
    judge(&history, must, job.least(), !options.expect_violation && modes.has_sessions(nemesis))
}

/// The folder of the clients and the checker.
fn folder() -> PathBuf {
    root().join("tests/histories")
}

/// Runs the checker over the history and prints its output. The operations that `must` names have to be linearizable, and
/// clients need at least `least` responses. Fails on results that are wrong in any mode or for the session of a client.
fn judge(history: &Path, must: &str, least: u32, with_sessions: bool) -> Result<Verdict> {
    let mut command = Command::new("go");
    command.args(["run", ".", "-judge", must, "-least", &least.to_string()]);
    command.args(with_sessions.then_some("-sessions")).arg(history).current_dir(folder());
    let output = command.output().context("running go, which the checker needs")?;
    let verdict = String::from_utf8_lossy(&output.stdout);
    verdict.lines().for_each(|line| println!("histories:   {line}"));
    // `go run` exits with 1 for every exit status of the checker, so its output decides.
    match output.status.success() {
        true => Ok(Verdict::Possible),
        false if verdict.contains("as it never may be") => {
            bail!("a client received a result that is wrong in any mode")
        }
        false if verdict.contains("is not linearizable") => Ok(Verdict::Impossible),
        false if verdict.contains("not judged: ") => bail!("there were too few responses"),
        false => bail!("the checker failed: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}
