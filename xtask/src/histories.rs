//! `histories`: clients of the official driver read and change single documents (registers, counters, sets,
//! lists and banks) on three nodes while nodes are killed, stopped, cut off from each other or hear each other late; then
//! porcupine says
//! of each document whether what everybody saw can have happened one after the other. Clients and judge
//! are in `tests/histories`. In the end every node is asked for every document, all replicas must have the
//! same rows, and the table takes writes again without anybody's help.
//!
//! The modes ([`modes`]) are those of the published tests of RethinkDB 2.1.5: with reads and acknowledgements by
//! `majority` everything must be linearizable; with others what is promised of them, and reads with `outdated` must be
//! found out by a judge who expects more (`--expect-violation`). `--nemesis replay` is the published test
//! of 2.2.3, in which RethinkDB lost writes (jepsen.io/analyses/rethinkdb-2-2-3-reconfiguration).

mod clients;
mod modes;
mod nemesis;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::cluster::Cluster;
use crate::crash::alike::unlike;
use crate::crash::client::Client;
use crate::netns::Namespaces;
use crate::trial::Trial;
use clients::{Clients, Job};
use modes::Modes;
use nemesis::Nemesis;

/// How long a table may take to be whole when the faults are over.
const HEALED_SECONDS: u64 = 60;
/// How long the first answers of a new cluster may take.
const PATIENCE_AT_START: Duration = Duration::from_secs(60);

/// How much is done, and what befalls the nodes.
#[derive(clap::Args)]
pub(crate) struct Options {
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
    #[command(flatten)]
    job: Job,
    #[command(flatten)]
    modes: Modes,
    #[command(flatten)]
    trial: Trial,
}

/// Runs it under each nemesis; fails unless every history is as its modes promise, or with
/// `--expect-violation` unless one is not linearizable.
pub(crate) fn run(options: &Options) -> ExitCode {
    let in_turn = || Nemesis::value_variants().iter().copied().filter(|one| one.is_usual()).collect();
    let nemeses: Vec<Nemesis> = options.nemesis.map_or_else(in_turn, |only| vec![only]);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for nemesis in &nemeses {
        if nemesis.needs_network()
            && options.nemesis.is_none()
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
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Possible,
    Impossible,
    /// Something else went wrong, and was said.
    None,
}

fn verdict_of(options: &Options, nemesis: Nemesis, seed: u64) -> Verdict {
    match run_one(options, nemesis, seed) {
        Ok(true) => Verdict::Possible,
        Ok(false) => Verdict::Impossible,
        Err(error) => {
            println!("histories: {}: {error:#}", nemesis.name());
            Verdict::None
        }
    }
}

/// Whether what was seen under `nemesis` can have happened.
fn run_one(options: &Options, nemesis: Nemesis, seed: u64) -> Result<bool> {
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
    create_table(&cluster, nodes, modes)?;
    let mut random = StdRng::seed_from_u64(seed);
    let history = folder.path().join("history.jsonl");
    let clients = Clients::start(&cluster.drivers(), job, modes, seed, &history)?;
    nemesis.haunt(&mut cluster, &mut random, || clients.is_over())?;
    is_writable(&cluster)?;
    let unlike = unlike(&cluster.drivers(), "histories")?;
    if !unlike.is_empty() {
        bail!("what nodes {unlike:?} have is not what n0 has");
    }
    clients.read_all()?;
    let must = if options.expect_violation { "all" } else { modes.judge() };
    judge(&history, must, !options.expect_violation && modes.has_sessions(nemesis))
}

/// Where the clients and the judge are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/histories")
}

fn create_table(cluster: &Cluster, replicas: usize, modes: &Modes) -> Result<()> {
    let mut client = Client::connect_for(cluster.drivers()[0], PATIENCE_AT_START)?;
    let query = format!("[1,[60,[[14,[\"test\"]],\"histories\"],{{\"replicas\":{replicas}}}]]");
    let answer = client.ask(&query)?;
    let Modes { write_acks, durability, .. } = modes;
    let configure = format!(
        "[1,[53,[[174,[[15,[[14,[\"test\"]],\"histories\"]]]],\
         {{\"write_acks\":\"{write_acks}\",\"durability\":\"{durability}\"}}]]]"
    );
    let configured = client.ask(&configure)?;
    if configured["t"] != 1 || !configured["r"][0]["first_error"].is_null() {
        bail!("the table's modes could not be set: {configured}");
    }
    let wait = "[1,[177,[[15,[[14,[\"test\"]],\"histories\"]]],{\"timeout\":60}]]";
    match (answer["t"].as_u64(), client.ask(wait)?["t"].as_u64()) {
        (Some(1), Some(1)) => Ok(()),
        _ => bail!("the table could not be created: {answer}"),
    }
}

/// Afterwards the table comes back by itself: every replica is ready, and it takes a write.
fn is_writable(cluster: &Cluster) -> Result<()> {
    let table = "[15,[[14,[\"test\"]],\"histories\"]]";
    let wait =
        format!("[1,[177,[{table}],{{\"wait_for\":\"all_replicas_ready\",\"timeout\":{HEALED_SECONDS}}}]]");
    let write = format!("[1,[56,[{table},{{\"id\":\"healed\"}}]]]");
    for driver in cluster.drivers() {
        let mut client = Client::connect_for(driver, Duration::from_secs(2 * HEALED_SECONDS))?;
        let (waited, written) = (client.ask(&wait)?, client.ask(&write)?);
        if waited["t"] != 1 || written["t"] != 1 {
            bail!("the table does not come back: {waited}, {written}");
        }
    }
    Ok(())
}

/// Has the history judged, and shows what was said of it: whether what `must` be linearizable is. Fails if something
/// was seen that must not be in any mode, or by a client that knew better.
fn judge(history: &Path, must: &str, with_sessions: bool) -> Result<bool> {
    let mut command = Command::new("go");
    command.args(["run", ".", "-judge", must]).args(with_sessions.then_some("-sessions"));
    command.arg(history).current_dir(folder());
    let output = command.output().context("running go, which the judge is written in")?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().for_each(|line| println!("histories:   {line}"));
    // `go run` ends with 1 whatever the judge ended with: what it said decides.
    match output.status.success() {
        true => Ok(true),
        false if said.contains("as it never may be") => bail!("something was seen that may not be"),
        false if said.contains("is not linearizable") => Ok(false),
        false => bail!("the judge did not judge: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}
