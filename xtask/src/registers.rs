//! `registers`: readers, writers and swappers of single documents on three nodes while nodes are
//! killed, stopped or cut off from each other; then porcupine says of each document whether what
//! everybody saw can have happened one after the other. `tests/porcupine` judges. In the end every node
//! is asked for every document, all replicas must have the same rows, and the table takes writes again
//! without anybody's help.
//!
//! The modes are those of the published tests of RethinkDB 2.1.5: reads with `majority` and writes of
//! `hard` durability must pass, reads with `outdated` must not. `--nemesis replay` is the published test
//! of 2.2.3, in which RethinkDB lost writes (jepsen.io/analyses/rethinkdb-2-2-3-reconfiguration).

mod history;
mod nemesis;
mod workers;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::cluster::Cluster;
use crate::crash::alike::unlike;
use crate::crash::client::Client;
use crate::netns::Namespaces;
use crate::trial::Trial;
use nemesis::Nemesis;
use workers::Job;

/// How long a table may take to be whole when the faults are over.
const HEALED_SECONDS: u64 = 60;

/// How much is done, and what befalls the nodes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// What befalls the nodes [default: each but `replay` in turn; cutting off only where that is allowed]
    #[arg(long, value_enum)]
    nemesis: Option<Nemesis>,
    /// Nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..))]
    nodes: u16,
    /// So often, each time with another seed and other nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// A history that cannot have happened is what is wanted
    #[arg(long)]
    expect_violation: bool,
    #[command(flatten)]
    job: Job,
    #[command(flatten)]
    trial: Trial,
}

/// Runs it under each nemesis; fails unless every history is linearizable, or with
/// `--expect-violation` unless one is not.
pub(crate) fn run(options: &Options) -> ExitCode {
    let in_turn =
        || Nemesis::value_variants().iter().copied().filter(|one| *one != Nemesis::Replay).collect();
    let nemeses: Vec<Nemesis> = options.nemesis.map_or_else(in_turn, |only| vec![only]);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for nemesis in &nemeses {
        if nemesis.needs_network()
            && options.nemesis.is_none()
            && let Err(error) = Namespaces::create(1)
        {
            println!("registers: {} is not run: {error:#}", nemesis.name());
            skipped += 1;
            continue;
        }
        for run in 0..u64::from(options.runs) {
            match run_one(options, *nemesis, options.trial.seed.wrapping_add(run)) {
                Ok(linearizable) if linearizable != options.expect_violation => passed += 1,
                Ok(true) => {
                    println!("registers: stale reads were allowed and nobody noticed");
                    failed += 1;
                }
                Ok(false) => failed += 1,
                Err(error) => {
                    println!("registers: {}: {error:#}", nemesis.name());
                    failed += 1;
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether what was seen under `nemesis` can have happened.
fn run_one(options: &Options, nemesis: Nemesis, seed: u64) -> Result<bool> {
    let Options { job, trial: Trial { program, .. }, .. } = options;
    let nodes = usize::from(options.nodes);
    println!("registers: {}, seed {seed}, {nodes} nodes, reads with {}", nemesis.name(), job.read_mode);
    let folder = tempfile::tempdir().context("a folder for the nodes' data")?;
    let flags = ["--no-http-admin"];
    let mut cluster = match nemesis.needs_network() {
        true => Cluster::start_apart(program, folder.path(), nodes, &flags)?,
        false => Cluster::start(program, folder.path(), nodes, &flags)?,
    };
    create_table(&cluster, nodes)?;
    let mut random = StdRng::seed_from_u64(seed);
    let work = workers::Work::new(cluster.drivers(), job);
    thread::scope(|scope| {
        for worker in 0..job.workers() {
            let (work, seed) = (&work, random.random());
            scope.spawn(move || work.run(worker, StdRng::seed_from_u64(seed)));
        }
        let result = nemesis.haunt(&mut cluster, &mut random, || work.is_over());
        work.give_up.store(result.is_err(), Ordering::Release);
        result
    })?;
    is_writable(&cluster)?;
    let unlike = unlike(&cluster.drivers(), "registers")?;
    if !unlike.is_empty() {
        bail!("what nodes {unlike:?} have is not what n0 has");
    }
    work.read_all()?;
    let path = folder.path().join("history.jsonl");
    work.history.write(&path)?;
    judge(&path)
}

fn create_table(cluster: &Cluster, replicas: usize) -> Result<()> {
    let mut client = Client::connect_for(cluster.drivers()[0], workers::PATIENCE_AT_START)?;
    let query = format!("[1,[60,[[14,[\"test\"]],\"registers\"],{{\"replicas\":{replicas}}}]]");
    let answer = client.ask(&query)?;
    let wait = "[1,[177,[[15,[[14,[\"test\"]],\"registers\"]]],{\"timeout\":60}]]";
    match (answer["t"].as_u64(), client.ask(wait)?["t"].as_u64()) {
        (Some(1), Some(1)) => Ok(()),
        _ => bail!("the table could not be created: {answer}"),
    }
}

/// Afterwards the table comes back by itself: every replica is ready, and it takes a write.
fn is_writable(cluster: &Cluster) -> Result<()> {
    let table = "[15,[[14,[\"test\"]],\"registers\"]]";
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

/// Has the history judged, and shows what was said of it.
fn judge(history: &Path) -> Result<bool> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/porcupine");
    let mut command = Command::new("go");
    command.args(["run", "."]).arg(history).current_dir(folder);
    let output = command.output().context("running go, which the judge is written in")?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().for_each(|line| println!("registers:   {line}"));
    // `go run` ends with 1 whatever the judge ended with: what it said decides.
    match output.status.success() {
        true => Ok(true),
        false if said.contains("is not linearizable") => Ok(false),
        false => bail!("the judge did not judge: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}
