//! `crash`: `kill -9` at random moments under writers; every acknowledged write must be stored.
//!
//! Each cycle starts the node on the same folder, checks every document against the ledger of acknowledged writes, lets
//! the writers run, and kills the process. One cycle in five also kills it during its start. With `--failpoints` half of
//! the kills are at failpoints of the program, and tables come and go beside the writers. With `--power-cuts` the directory
//! loses unsynced data after most kills; then soft writes may lose the newest of them, in order.

mod failpoints;
mod options;
mod power_cut;
mod side_tables;
mod soft_loss;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::client::Client;
use crate::harness::node::{Node, SERVER_FLAGS};
use crate::harness::options::RunOptions;
use crate::workload::ledger::{self, Ledger, Verdict};
use crate::workload::writers;
use failpoints::Kill;
pub use options::Options;
use options::{Durability, Phase};
use power_cut::Power;
use powercut::ReplayError;
use side_tables::SideTables;

/// How long a node may run that is to end at a failpoint.
const FAILPOINT_TIMEOUT: Duration = Duration::from_secs(3);
/// The share of kills under writers with a power cut. After the others the next process finds unsynced data.
const CUTS_UNDER_WRITERS: f64 = 0.8;
/// The same for kills of a node that starts or is idle.
const CUTS_OTHERWISE: f64 = 0.3;

/// Runs the phases of the options and prints the result of each.
pub fn run(options: &Options) -> ExitCode {
    let RunOptions { program, seed } = &options.trial;
    println!("crash: seed {seed}, {} writers, {}", options.writers, program.display());
    let phases = options.phases();
    let mut failed = 0;
    for phase in &phases {
        match run_phase(options, phase) {
            Ok(verdict) if (verdict.lost + verdict.broken > 0) == options.expect_loss => {}
            Ok(_) if options.expect_loss => {
                println!("crash: this build loses writes on purpose and the harness did not notice");
                failed += 1;
            }
            Ok(_) => failed += 1,
            // A disk that lies can stop a node from starting.
            Err(error) if options.ignore_syncs.is_some() && error.downcast_ref::<ReplayError>().is_none() => {
                println!("crash: {error:#}");
                failed += usize::from(!options.expect_loss);
            }
            Err(error) => {
                println!("crash: {error:#}");
                failed += 1;
            }
        }
    }
    println!("{} passed, {failed} failed", phases.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The state of a phase that outlives the node.
struct Run<'a> {
    options: &'a Options,
    folder: &'a Path,
    durability: Durability,
    random: StdRng,
    ledger: Ledger,
    side_tables: SideTables,
    power: Option<Power>,
    /// When the node of the last writers ended.
    killed: Instant,
    /// The failpoints at which the node has ended.
    ends: BTreeMap<&'static str, u32>,
}

fn run_phase(options: &Options, phase: &Phase) -> Result<Verdict> {
    let folder = tempfile::tempdir().context("a folder for the node's data")?;
    let seed = options.trial.seed;
    let power = || Power::new(folder.path(), &options.recorder, options.ignore_syncs, seed);
    let mut run = Run {
        options,
        folder: folder.path(),
        durability: phase.durability,
        random: StdRng::seed_from_u64(seed),
        ledger: Ledger::new(options.writers.into()),
        side_tables: SideTables::default(),
        power: options.power_cuts.then(power).transpose()?,
        killed: Instant::now(),
        ends: BTreeMap::new(),
    };
    if options.power_cuts && phase.durability == Durability::Soft {
        run.ledger.writers.iter_mut().for_each(|documents| documents.recent = Some(Vec::new()));
    }
    let mut total = Verdict::default();
    let mut cycles = 0;
    for cycle in 0..phase.cycles {
        cycles = cycle + 1;
        let mut node = run.start()?;
        let port = node.wait_until_ready()?.driver;
        let mut client = Client::connect(port)?;
        if cycle == 0 {
            create_table(&mut client, phase.durability)?;
        }
        total.add(run.check(&mut client).with_context(|| format!("checking cycle {cycle}"))?);
        if total.lost + total.broken > 0 {
            break;
        }
        run.side_tables.check(&mut client).with_context(|| format!("checking cycle {cycle}"))?;
        // Some failpoints are not reached in time, so that about half of all kills are there.
        match options.failpoints && run.random.random_ratio(3, 4) {
            true => run.kill_at_failpoint(node)?,
            false => run.kill_at_random(node, port)?,
        }
    }
    if total.lost + total.broken == 0 {
        total.add(run.last_check()?);
    }
    println!(
        "crash: {} cycles {}: {} acknowledged writes over {} documents, {} lost, {} broken documents",
        cycles,
        phase.durability.name(),
        run.ledger.acknowledged(),
        run.ledger.documents(),
        total.lost,
        total.broken
    );
    total.examples.iter().for_each(|example| println!("crash:   {example}"));
    run.power.iter().for_each(Power::report);
    run.report_failpoints(cycles)?;
    Ok(total)
}

impl Run<'_> {
    /// Starts the node, which one time in five is killed while it starts and started again.
    fn start(&mut self) -> Result<Node> {
        let mut node = self.spawn(None)?;
        if self.random.random_ratio(1, 5) {
            thread::sleep(Duration::from_micros(self.random.random_range(0..60_000)));
            node.kill()?;
            self.after_kill(CUTS_OTHERWISE)?;
            node = self.spawn(None)?;
        }
        Ok(node)
    }

    fn spawn(&self, kill: Option<&Kill>) -> Result<Node> {
        let mut command = Command::new(&self.options.trial.program);
        kill.into_iter().for_each(|kill| kill.arm(&mut command));
        self.power.iter().for_each(|power| power.record(&mut command));
        let ports = ["--driver-port", "0", "--cluster-port", "0"];
        Node::spawn(command, &self.folder.canonicalize()?.join("data"), &[&ports, SERVER_FLAGS].concat())
    }

    fn after_kill(&mut self, cut: f64) -> Result<()> {
        self.power.as_mut().map_or(Ok(()), |power| power.after_kill(cut))
    }

    /// Compares the table with the acknowledged writes.
    fn check(&mut self, client: &mut Client) -> Result<Verdict> {
        if self.power.is_none() {
            return self.ledger.check(client);
        }
        let stored = ledger::read(client)?;
        let versions = stored.versions.clone();
        let verdict = match self.durability {
            Durability::Hard => self.ledger.compare(stored),
            Durability::Soft => soft_loss::compare(&self.ledger, stored, self.killed),
        };
        self.ledger.accept(&versions);
        Ok(verdict)
    }

    fn kill_at_random(&mut self, mut node: Node, port: u16) -> Result<()> {
        let after = Duration::from_micros(self.random.random_range(1_000..400_000));
        writers::run(port, &mut self.ledger, self.random.random(), || {
            thread::sleep(after);
            node.kill()
        })?;
        self.killed = Instant::now();
        self.after_kill(CUTS_UNDER_WRITERS)
    }

    /// Replaces the node by one that ends at a failpoint, which may be while it starts.
    fn kill_at_failpoint(&mut self, mut node: Node) -> Result<()> {
        node.kill()?;
        self.after_kill(CUTS_OTHERWISE)?;
        let kill = Kill::draw(&mut self.random);
        let mut node = self.spawn(Some(&kill))?;
        let is_reached = match node.wait_until_ready() {
            Ok(ports) => self.work_until_killed(&mut node, ports.driver),
            Err(error) => match node.wait_until_killed(FAILPOINT_TIMEOUT)? {
                true => Ok(true),
                false => Err(error),
            },
        };
        if is_reached.with_context(|| format!("at failpoint {}", kill.name()))? {
            *self.ends.entry(kill.name()).or_default() += 1;
        }
        self.killed = Instant::now();
        self.after_kill(CUTS_UNDER_WRITERS)
    }

    /// Runs the writers until the node ends. Whether it has ended by itself in time; if not, it is killed.
    fn work_until_killed(&mut self, node: &mut Node, port: u16) -> Result<bool> {
        let seed = self.random.random();
        let (ledger, side_tables) = (&mut self.ledger, &mut self.side_tables);
        thread::scope(|scope| {
            if let Ok(client) = Client::connect(port) {
                scope.spawn(|| side_tables.work(client));
            }
            let mut is_reached = Ok(false);
            let ran = writers::run(port, ledger, seed, || {
                is_reached = node.wait_until_killed(FAILPOINT_TIMEOUT);
                node.kill()
            });
            // A node that ends early refuses connections of writers.
            if ran.is_err() && node.wait_until_killed(FAILPOINT_TIMEOUT)? {
                return Ok(true);
            }
            // This ends the work on the other tables, too.
            node.kill()?;
            ran.and(is_reached)
        })
    }

    fn last_check(&mut self) -> Result<Verdict> {
        let mut node = self.spawn(None)?;
        let port = node.wait_until_ready()?.driver;
        let verdict = self.check(&mut Client::connect(port)?)?;
        node.kill()?;
        Ok(verdict)
    }

    fn report_failpoints(&self, kills: u32) -> Result<()> {
        if !self.options.failpoints {
            return Ok(());
        }
        let ends: u32 = self.ends.values().sum();
        let by_name: Vec<String> = self.ends.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!("crash: {ends} of {kills} kills at {} failpoints: {}", by_name.len(), by_name.join(", "));
        ensure!(
            ends > 0 || kills < 10,
            "no kill at a failpoint: build the program with `--features failpoints`"
        );
        Ok(())
    }
}

fn create_table(client: &mut Client, durability: Durability) -> Result<()> {
    let options = format!("{{\"durability\":\"{}\"}}", durability.name());
    let answer = client.ask(&format!("[1,[60,[[14,[\"test\"]],\"crash\"],{options}]]"))?;
    if answer["t"] != 1 {
        bail!("the table could not be created: {answer}");
    }
    Ok(())
}
