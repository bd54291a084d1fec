//! `crash`: `kill -9` at random moments under writers; every acknowledged write must be stored.
//!
//! Each cycle starts the node on the same folder, checks every document against the ledger of acknowledged writes, lets
//! the writers run, and kills the process. One cycle in five also kills it during its start.

mod options;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::client::Client;
use crate::harness::node::{Node, SERVER_FLAGS};
use crate::harness::options::RunOptions;
use crate::workload::ledger::{Ledger, Verdict};
use crate::workload::writers;
pub use options::Options;
use options::{Durability, Phase};

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
            Err(error) => {
                println!("crash: {error:#}");
                failed += 1;
            }
        }
    }
    println!("{} passed, {failed} failed", phases.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_phase(options: &Options, phase: &Phase) -> Result<Verdict> {
    let folder = tempfile::tempdir().context("a folder for the node's data")?;
    let mut random = StdRng::seed_from_u64(options.trial.seed);
    let mut ledger = Ledger::new(options.writers.into());
    let mut total = Verdict::default();
    let mut cycles = 0;
    for cycle in 0..phase.cycles {
        cycles = cycle + 1;
        let mut node = Node::start(&options.trial.program, folder.path(), SERVER_FLAGS)?;
        if random.random_ratio(1, 5) {
            thread::sleep(Duration::from_micros(random.random_range(0..60_000)));
            node.kill()?;
            node = Node::start(&options.trial.program, folder.path(), SERVER_FLAGS)?;
        }
        let port = node.wait_until_ready()?.driver;
        let mut client = Client::connect(port)?;
        if cycle == 0 {
            create_table(&mut client, phase.durability)?;
        }
        total.add(ledger.check(&mut client).with_context(|| format!("checking cycle {cycle}"))?);
        if total.lost + total.broken > 0 {
            break;
        }
        let after = Duration::from_micros(random.random_range(1_000..400_000));
        writers::run(port, &mut ledger, random.random(), || {
            thread::sleep(after);
            node.kill()
        })?;
    }
    total.add(last_check(options, folder.path(), &ledger, &total)?);
    println!(
        "crash: {} cycles {}: {} acknowledged writes over {} documents, {} lost, {} broken documents",
        cycles,
        phase.durability.name(),
        ledger.acknowledged(),
        ledger.documents(),
        total.lost,
        total.broken
    );
    total.examples.iter().for_each(|example| println!("crash:   {example}"));
    Ok(total)
}

fn last_check(
    options: &Options,
    folder: &std::path::Path,
    ledger: &Ledger,
    so_far: &Verdict,
) -> Result<Verdict> {
    if so_far.lost + so_far.broken > 0 {
        return Ok(Verdict::default());
    }
    let mut node = Node::start(&options.trial.program, folder, SERVER_FLAGS)?;
    let port = node.wait_until_ready()?.driver;
    let verdict = ledger.check(&mut Client::connect(port)?)?;
    node.kill()?;
    Ok(verdict)
}

fn create_table(client: &mut Client, durability: Durability) -> Result<()> {
    let options = format!("{{\"durability\":\"{}\"}}", durability.name());
    let answer = client.ask(&format!("[1,[60,[[14,[\"test\"]],\"crash\"],{options}]]"))?;
    if answer["t"] != 1 {
        bail!("the table could not be created: {answer}");
    }
    Ok(())
}
