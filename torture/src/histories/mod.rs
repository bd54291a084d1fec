//! `histories`: clients of the official driver read and change single documents (registers, counters, sets,
//! lists and banks) on three nodes while nodes are killed, stopped, cut off from each other or hear each other late; then
//! porcupine says of each document whether what everybody saw can have happened one after the other. Clients and judge
//! are in `tests/histories`. In the end every node is asked for every document, all replicas must have the
//! same rows, and the table takes writes again without anybody's help. Clients that are told little go on for longer; a
//! run in which that was not enough either is not judged and has failed.
//!
//! The modes ([`modes`]) are those of the published tests of RethinkDB 2.1.5: with reads and acknowledgements by
//! `majority` everything must be linearizable; with others what is promised of them, and reads with `outdated` must be
//! found out by a judge who expects more (`--expect-violation`). `--nemesis replay` is the published test
//! of 2.2.3, in which RethinkDB lost writes (jepsen.io/analyses/rethinkdb-2-2-3-reconfiguration).

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
use crate::harness::options::Trial;
use crate::harness::replica_rows::unlike;
use clients::{Clients, Job};
use modes::Modes;
use nemesis::Nemesis;

/// How much is done, and what befalls the nodes.
#[derive(clap::Args)]
pub struct Options {
    /// What befalls the nodes [default: each but `replay` and `calm` in turn; cutting off only where that is allowed]
    #[arg(long, value_enum)]
    nemesis: Option<Nemesis>,
    /// Nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..))]
    nodes: u16,
    /// So often, each time with another seed and other nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// A history that is not linearizable is what is wanted, in one of the runs
    #[arg(long)]
    expect_violation: bool,
    /// Where nodes cannot be cut off from each other it is not run, and that is no failure
    #[arg(long)]
    if_allowed: bool,
    #[command(flatten)]
    job: Job,
    #[command(flatten)]
    modes: Modes,
    #[command(flatten)]
    trial: Trial,
}

/// Runs it under each nemesis; fails unless every history is as its modes promise, or with
/// `--expect-violation` unless one is not linearizable.
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
                println!("histories: stale reads were allowed and nobody noticed");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Possible,
    Impossible,
    /// Something else went wrong, and was said.
    None,
}

fn verdict_of(options: &Options, nemesis: Nemesis, seed: u64) -> Verdict {
    run_one(options, nemesis, seed).unwrap_or_else(|error| {
        println!("histories: {}: {error:#}", nemesis.name());
        Verdict::None
    })
}

/// Whether what was seen under `nemesis` can have happened.
fn run_one(options: &Options, nemesis: Nemesis, seed: u64) -> Result<Verdict> {
    let Options { job, modes, trial: Trial { program, .. }, .. } = options;
    let nodes = usize::from(options.nodes);
    println!("histories: {}, seed {seed}, {nodes} nodes, {}", nemesis.name(), modes.name());
    let folder = tempfile::tempdir().context("a folder for the nodes' data")?;
    let flags = ["--no-http-admin"];
    let mut cluster = match nemesis {
        Nemesis::Delay => Cluster::start_late(program, folder.path(), nodes, &flags, seed)?,
        _ if nemesis.needs_network() => Cluster::start_apart(program, folder.path(), nodes, &flags)?,
        _ => Cluster::start(program, folder.path(), nodes, &flags)?,
    };
    table::create(&cluster, nodes, &modes.settings())?;
    let mut random = StdRng::seed_from_u64(seed);
    let history = folder.path().join("history.jsonl");
    let clients = Clients::start(&cluster.drivers(), job, modes, seed, &history)?;
    nemesis.haunt(&mut cluster, &mut random, || clients.is_over())?;
    table::is_writable(&cluster)?;
    let unlike = unlike(&cluster.drivers(), "histories")?;
    if !unlike.is_empty() {
        bail!("what nodes {unlike:?} have is not what n0 has");
    }
    clients.read_all()?;
    let must = if options.expect_violation { "all" } else { modes.judge() };
    judge(&history, must, job.least(), !options.expect_violation && modes.has_sessions(nemesis))
}

/// Where the clients and the judge are.
fn folder() -> PathBuf {
    root().join("tests/histories")
}

/// Has the history judged, and shows what was said of it: whether what `must` be linearizable is, where clients were
/// answered at least `least` times. Fails if something was seen that must not be in any mode, or by a client that knew better.
fn judge(history: &Path, must: &str, least: u32, with_sessions: bool) -> Result<Verdict> {
    let mut command = Command::new("go");
    command.args(["run", ".", "-judge", must, "-least", &least.to_string()]);
    command.args(with_sessions.then_some("-sessions")).arg(history).current_dir(folder());
    let output = command.output().context("running go, which the judge is written in")?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().for_each(|line| println!("histories:   {line}"));
    // `go run` ends with 1 whatever the judge ended with: what it said decides.
    match output.status.success() {
        true => Ok(Verdict::Possible),
        false if said.contains("as it never may be") => bail!("something was seen that may not be"),
        false if said.contains("is not linearizable") => Ok(Verdict::Impossible),
        false if said.contains("not judged: ") => bail!("too little was answered"),
        false => bail!("the judge did not judge: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}
