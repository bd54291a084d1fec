//! `feeds`: feeds of all kinds on a table of three nodes, while writers change it, leaders are killed, servers of feeds are restarted,
//! and shards are split, merged and moved. Feeds are opened, closed, and resumed by their tokens all the time. No feed may have a
//! gap, a repeat, or a write that was refused; at quiescent points each must have led to the rows of the table. Another table
//! has one writer, and feeds of its first rows are compared after each of its changes.
//!
//! - `model`: the documents as functions of the number of their writes; `view`: sequences of them
//! - `check`: the rules that what feeds deliver must follow, without any connection
//! - `writes`, `writer`: the writes of documents; `feed`, `session`, `connection`: the feeds
//! - `faults`, `nodes`, `rest`: faults, the nodes that run, and quiescent points; `ranking`: the first rows after each change

mod check;
mod connection;
mod faults;
mod feed;
mod model;
mod nodes;
mod options;
mod ranking;
mod rest;
mod session;
mod shared;
mod tally;
mod trace;
mod view;
mod writer;
mod writes;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::harness::client::Client;
use crate::harness::cluster::Cluster;
use crate::harness::node::SERVER_FLAGS;
use crate::harness::options::verdict;
use faults::{Faults, Trouble, succeed, wait_until_ready};
use model::Model;
use nodes::Nodes;
pub use options::Options;
use session::Session;
use shared::{Resting, Shared, table};
use tally::Tally;
use writer::Writer;
use writes::Writes;

const NODES: usize = 3;
/// Feeds on one connection.
const FEEDS_PER_SESSION: u32 = 5;
/// Changes before the first feed is opened.
const CHANGES_BEFORE: u64 = 3000;
/// The share of the time of a run in which first rows are compared after each change.
const RANKING_SHARE: f64 = 0.2;
/// How long writers may take for the changes between two quiescent points.
const PART_TIMEOUT: Duration = Duration::from_secs(600);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the feeds; fails if one of them has a fault, or if not everything was done.
pub fn run(options: &Options) -> ExitCode {
    println!(
        "feeds: seed {}, {} feeds, {} writers, {NODES} nodes",
        options.trial.seed, options.feeds, options.writers
    );
    verdict("feeds", check_feeds(options))
}

/// Whether all was as it should be.
fn check_feeds(options: &Options) -> Result<bool> {
    let folder = tempfile::tempdir().context("a folder for the nodes' data")?;
    let mut random = StdRng::seed_from_u64(options.trial.seed);
    let cluster = Cluster::start(&options.trial.program, folder.path(), NODES, SERVER_FLAGS)?;
    create_table(&cluster)?;
    let shared = Shared {
        writes: Writes::new(Model { seed: random.random() }, options.writers),
        nodes: Nodes::new(cluster.drivers()),
        tally: Tally::default(),
        mutant: options.mutant,
        over: AtomicBool::new(false),
        resting: Resting::default(),
    };
    let began = Instant::now();
    let time = options.seconds.map(Duration::from_secs);
    let ranked_until = time.map(|time| began + time.mul_f64(RANKING_SHARE));
    let mut faults = Faults { cluster, shared: &shared, random: StdRng::seed_from_u64(random.random()) };
    let whole = ranking::compare(
        &faults.cluster,
        options.first_rows_changes,
        ranked_until,
        &shared.tally,
        &mut random,
    )
    .and_then(|()| follow(&mut faults, options, time.map(|time| began + time), &mut random));
    shared.tally.print(shared.writes.changes());
    println!("feeds: {:.0?}", began.elapsed());
    let expects_faults = options.mutant.is_some() || options.expect_faults;
    match whole {
        Err(error) if expects_faults => println!("feeds: {error:#}"),
        whole => whole?,
    }
    Ok((shared.tally.faults() > 0) == expects_faults)
}

/// Runs writers and feeds while faults are injected.
fn follow(
    faults: &mut Faults<'_>,
    options: &Options,
    deadline: Option<Instant>,
    random: &mut StdRng,
) -> Result<()> {
    let shared = faults.shared;
    let sessions = options.feeds.div_ceil(FEEDS_PER_SESSION) as usize;
    thread::scope(|scope| {
        for writer in 0..options.writers {
            let writer = Writer::new(shared, writer, StdRng::seed_from_u64(random.random()));
            scope.spawn(|| writer.run());
        }
        faults.wait_for_changes(CHANGES_BEFORE, Instant::now() + CONNECT_TIMEOUT);
        for number in 0..sessions {
            let feeds = FEEDS_PER_SESSION.min(options.feeds - number as u32 * FEEDS_PER_SESSION) as usize;
            let session = Session::new(shared, number, feeds, StdRng::seed_from_u64(random.random()));
            scope.spawn(|| session.run());
        }
        let result = rounds(faults, options, deadline, sessions);
        shared.over.store(true, Ordering::Release);
        result
    })
}

/// One fault after another, in random order, with changes and quiescent points between them.
fn rounds(
    faults: &mut Faults<'_>,
    options: &Options,
    deadline: Option<Instant>,
    sessions: usize,
) -> Result<()> {
    let shared = faults.shared;
    let count = |trouble, count: u32| std::iter::repeat_n(Some(trouble), count as usize);
    let mut troubles: Vec<Option<Trouble>> = count(Trouble::Kill, options.kills)
        .chain(count(Trouble::Restart, options.restarts))
        .chain(count(Trouble::Reshard, options.reshards))
        .collect();
    troubles.shuffle(&mut faults.random);
    if troubles.is_empty() {
        troubles.push(None);
    }
    let rounds = troubles.len();
    for (nth, trouble) in troubles.into_iter().enumerate() {
        let left = (rounds - nth) as u64;
        let rests = u64::from(options.rests)
            .saturating_sub(shared.tally.rests.load(Ordering::Relaxed))
            .div_ceil(left);
        // Rounds that took long leave less time for the others.
        let until = deadline.map(|deadline| {
            Instant::now() + deadline.saturating_duration_since(Instant::now()) / left as u32
        });
        let fault_at = faults.random.random_range(0..=rests);
        for part in 0..=rests {
            let changes = options.changes.saturating_sub(shared.writes.changes());
            let portion = changes / left / (rests - part + 1);
            if let Some(trouble) = trouble.filter(|_| part == fault_at) {
                faults.inject(trouble)?;
            }
            let parts_left = (rests - part + 1) as u32;
            let pause = until.map(|until| until.saturating_duration_since(Instant::now()) / parts_left);
            faults.wait_for_changes(portion, Instant::now() + pause.unwrap_or(PART_TIMEOUT));
            if shared.tally.has_too_many() {
                return Ok(());
            }
            if part < rests {
                rest::rest(shared, &mut faults.client()?, sessions)?;
            }
        }
    }
    Ok(())
}

/// Creates the table with its indexes.
fn create_table(cluster: &Cluster) -> Result<()> {
    let mut admin = Client::connect_for(cluster.drivers()[0], CONNECT_TIMEOUT)?;
    succeed(&mut admin, &json!([60, [[14, ["test"]], "crash"], { "replicas": NODES, "shards": 2 }]))?;
    for (index, options) in [("group", json!({})), ("score", json!({})), ("tags", json!({ "multi": true }))] {
        succeed(&mut admin, &json!([75, [table(), index], options]))?;
    }
    succeed(&mut admin, &json!([140, [table()]]))?;
    wait_until_ready(&mut admin)
}
