//! `index-build`: builds secondary indexes over a table under writes. First measures the writes with and without a
//! build, then kills the node again and again during builds. Afterwards every index must equal its function over the
//! rows, in order.

mod check;
mod load;
mod options;
mod pace;
mod table;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::client::Client;
use crate::harness::node::{Node, SERVER_FLAGS};
use crate::harness::options::verdict;
use load::Load;
pub use options::Options;
use table::{INDEXES, Index};

/// Bounds of the time without a build. It is as long as the build was, so that rare slow writes are as likely in both.
const QUIET_MIN: Duration = Duration::from_secs(2);
const QUIET_MAX: Duration = Duration::from_secs(60);
/// The factor by which a build may slow the slowest hundredth of the writes.
const RATIO_MAX: f64 = 2.0;

/// Runs both halves; prints measurements and counts.
pub fn run(options: &Options) -> ExitCode {
    verdict("index-build", build(options).map(|()| true))
}

fn build(options: &Options) -> Result<()> {
    println!("index-build: seed {}, {} rows, {} kills", options.trial.seed, options.rows, options.kills);
    let folder = tempfile::tempdir()?;
    let mut random = StdRng::seed_from_u64(options.trial.seed);
    let mut node = Node::start(&options.trial.program, folder.path(), SERVER_FLAGS)?;
    let load = Load::new(node.wait_until_ready()?.driver, options);
    let mut client = Client::connect(load.port())?;
    table::create(&mut client)?;
    let filled = Instant::now();
    load.fill(options.rows)?;
    println!("index-build: filled in {:.1} s", filled.elapsed().as_secs_f64());
    let ratio = thread::scope(|scope| {
        let _stop = load.stop_at_the_end();
        load.start(scope, random.random());
        let ratio = pairs(options, &load, &mut client)?;
        kills(options, folder.path(), &mut node, &load, &mut random)?;
        anyhow::Ok(ratio)
    })?;
    let mut client = Client::connect(load.port())?;
    println!("index-build: {} writes were acknowledged", load.acknowledged());
    check::every_index_is_its_function(&mut client)?;
    let most = options.ratio_max.unwrap_or(RATIO_MAX);
    ensure!(
        ratio <= most,
        "a build slows the slowest hundredth of the writes by {ratio:.2}, not by {most:.2}"
    );
    node.kill()
}

/// The ratio of the 99th percentile of the writes with a build to that without: the median of pairs.
fn pairs(options: &Options, load: &Load, client: &mut Client) -> Result<f64> {
    let mut ratios = Vec::new();
    for pair in 0..options.pairs {
        load.take_times();
        let started = Instant::now();
        table::create_index(client, &INDEXES[0])?;
        while !table::is_ready(client, &INDEXES[0])? {
            thread::sleep(Duration::from_millis(20));
        }
        let (took, building) = (started.elapsed(), load.take_times());
        table::drop_index(client, &INDEXES[0])?;
        thread::sleep(QUIET_MIN);
        load.take_times();
        thread::sleep(took.clamp(QUIET_MIN, QUIET_MAX));
        let quiet = load.take_times();
        let (before, during) = (pace::p99(&quiet), pace::p99(&building));
        let ratio = during.as_secs_f64() / before.as_secs_f64().max(f64::MIN_POSITIVE);
        println!(
            "index-build: pair {}: p99 of {} writes {before:.1?} without, of {} writes {during:.1?} in a build of {:.1} s: \
             {ratio:.2}",
            pair + 1,
            quiet.len(),
            building.len(),
            took.as_secs_f64()
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios.get(ratios.len() / 2).copied().unwrap_or(0.0))
}

/// Kills the node during index builds, and waits until the last builds are complete.
fn kills(
    options: &Options,
    folder: &std::path::Path,
    node: &mut Node,
    load: &Load,
    random: &mut StdRng,
) -> Result<()> {
    let (mut killed, mut after, mut builds) = (0, 0, 0);
    while killed < options.kills {
        let mut client = Client::connect(load.port())?;
        builds += begin(&mut client)?;
        thread::sleep(Duration::from_millis(random.random_range(0..options.kill_after_ms)));
        // A kill counts if an index was not ready just before it.
        let is_building = INDEXES.iter().map(|index| table::is_ready(&mut client, index));
        let is_building = is_building.collect::<Result<Vec<bool>>>()?.contains(&false);
        node.kill()?;
        if is_building {
            killed += 1
        } else {
            after += 1
        }
        ensure!(
            after <= 10 * (options.kills + 1),
            "builds end too soon to be interrupted: more rows are needed"
        );
        *node = Node::start(&options.trial.program, folder, SERVER_FLAGS)?;
        load.moved_to(node.wait_until_ready()?.driver);
    }
    let mut client = Client::connect(load.port())?;
    begin(&mut client)?;
    for index in INDEXES {
        while !table::is_ready(&mut client, index)? {
            thread::sleep(Duration::from_millis(50));
        }
    }
    println!("index-build: {killed} kills in {builds} builds, {after} after the builds were over");
    Ok(())
}

/// Begins to build the missing indexes, or all of them again if none is being built. Returns the number of builds.
fn begin(client: &mut Client) -> Result<usize> {
    let known = table::indexes(client)?;
    let is_over = |index: &Index| known.iter().any(|(name, is_ready)| name == index.name && *is_ready);
    if INDEXES.iter().all(is_over) {
        for index in INDEXES {
            table::drop_index(client, index)?;
        }
    } else if INDEXES.iter().all(|index| known.iter().any(|(name, _)| name == index.name)) {
        return Ok(0);
    }
    let known = table::indexes(client)?;
    let missing = INDEXES.iter().filter(|index| known.iter().all(|(name, _)| name != index.name));
    let missing: Vec<&Index> = missing.collect();
    missing.iter().try_for_each(|index| table::create_index(client, index))?;
    Ok(missing.len())
}
