//! `reshard`: splits, merges, moves and rebalances the shards of a table and changes its replicas, one change every few
//! seconds, under writers and readers on all nodes. No client may receive an error or a wrong result, and no write may
//! take long. At the end all acknowledged writes must be stored, and all replicas must have the same rows.

mod load;
mod options;
mod tally;

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::harness::client::Client;
use crate::harness::cluster::Cluster;
use crate::harness::node::SERVER_FLAGS;
use crate::harness::options::verdict;
use crate::harness::replica_rows::divergent_nodes;
use crate::workload::layout::{Kind, Layout, Limits, TABLE};
use crate::workload::ledger::{Ledger, Versions, WriterDocuments, document_key, filler};
use load::{GROUPS, Load};
pub use options::Options;
use tally::Tally;

/// How long all replicas may take to be ready after a change.
const READY_SECONDS: u64 = 120;
/// How often a change is tried while it is refused because an earlier one still runs, and the time between two tries.
const CHANGE_TRIES: usize = 40;
const CHANGE_RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Rows of one insert while the table is filled.
const ROWS_PER_INSERT: usize = 500;

/// Runs the changes; fails if a client received an error, writes paused for too long, or an acknowledged write is lost.
pub fn run(options: &Options) -> ExitCode {
    let Options { trial, nodes, writers, readers, .. } = options;
    println!("reshard: seed {}, {nodes} nodes, {writers} writers, {readers} readers", trial.seed);
    verdict("reshard", check_changes(options))
}

/// Whether all bars were met.
fn check_changes(options: &Options) -> Result<bool> {
    let folder = tempfile::tempdir().context("a folder for the nodes' data")?;
    let mut random = StdRng::seed_from_u64(options.trial.seed);
    let nodes = usize::from(options.nodes);
    let cluster = Cluster::start(&options.trial.program, folder.path(), nodes, SERVER_FLAGS)?;
    let mut ledger = Ledger::new(usize::from(options.writers));
    let rows = create_table(&cluster, options)?;
    let (tally, read_only) = (Tally::default(), ledger.writers.len());
    let load = Load::new(cluster.drivers(), &tally, read_only, options.rows as usize);
    thread::scope(|scope| {
        for (writer, documents) in ledger.writers.iter_mut().enumerate() {
            let (load, seed) = (&load, random.random());
            scope.spawn(move || load.write(writer, documents, StdRng::seed_from_u64(seed)));
        }
        for _ in 0..options.readers {
            let (load, seed) = (&load, random.random());
            scope.spawn(move || load.read(StdRng::seed_from_u64(seed)));
        }
        let result = make_changes(&cluster, options, &tally, &mut random);
        load.over.store(true, Ordering::Release);
        result
    })?;
    ledger.writers.push(rows);
    let kept = tally.report(options);
    Ok(is_whole(&cluster, &ledger)? && kept)
}

/// Creates the table with its read-only rows, which are the documents of one more writer. An index has only these rows.
fn create_table(cluster: &Cluster, options: &Options) -> Result<WriterDocuments> {
    let mut admin = connect(cluster, 0)?;
    let replicas = usize::from(options.nodes).min(3);
    done(&mut admin, &format!("[1,[60,[[14,[\"test\"]],\"crash\"],{{\"replicas\":{replicas}}}]]"))?;
    wait_until_ready(&mut admin)?;
    let numbers: Vec<usize> = (0..options.rows as usize).collect();
    for some in numbers.chunks(ROWS_PER_INSERT) {
        let row = |number: &usize| {
            let key = document_key(usize::from(options.writers), *number);
            let (filler, group) = (filler(&key, 1), number % GROUPS);
            format!("{{\"id\":\"{key}\",\"version\":1,\"filler\":\"{filler}\",\"group\":{group}}}")
        };
        let some: Vec<String> = some.iter().map(row).collect();
        let answer = admin.ask(&format!("[1,[56,[{TABLE},[2,[{}]]]]]", some.join(",")))?;
        if answer["r"][0]["inserted"] != some.len() {
            bail!("rows were not inserted: {answer}");
        }
    }
    done(&mut admin, &format!("[1,[75,[{TABLE},\"group\"]]]"))?;
    done(&mut admin, &format!("[1,[140,[{TABLE}]]]"))?;
    let known = Versions { acknowledged: 1, attempted: 1, retired: true };
    Ok(WriterDocuments { documents: vec![known; options.rows as usize], ..WriterDocuments::default() })
}

/// Makes one change after another, in random order; each kind once before any is repeated.
fn make_changes(cluster: &Cluster, options: &Options, tally: &Tally, random: &mut StdRng) -> Result<()> {
    let count = (options.minutes * 60.0 / options.every).ceil() as usize;
    let every = Duration::from_secs_f64(options.every);
    let mut kinds = Vec::new();
    // The longest write without any change, for comparison.
    thread::sleep(every);
    println!("reshard:       no change: longest write {:.2?}", tally.longest_write());
    let mut due = Instant::now();
    for nth in 0..count {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if kinds.is_empty() {
            kinds = Kind::ALL.to_vec();
            kinds.shuffle(random);
        }
        let kind = kinds.pop().context("there are kinds of changes")?;
        let through = random.random_range(0..usize::from(options.nodes));
        tally.begin_change();
        let began = Instant::now();
        let what = change(cluster, options, tally, kind, through, random)?;
        let asked = began.elapsed();
        wait_until_ready(&mut connect(cluster, through)?).with_context(|| format!("after {what}"))?;
        let (ready, paused) = (began.elapsed(), tally.longest_write());
        println!(
            "reshard:   {:>3} n{through} {what}: done after {asked:.2?}, ready after {ready:.2?}, longest write {paused:.2?}",
            nth + 1,
        );
        tally.ended(ready > every);
        // The next change is not due earlier because this one took longer than its interval.
        due = (due + every).max(Instant::now());
    }
    thread::sleep(due.saturating_duration_since(Instant::now()));
    Ok(())
}

/// Makes one change of this kind; returns its description.
fn change(
    cluster: &Cluster,
    options: &Options,
    tally: &Tally,
    kind: Kind,
    through: usize,
    random: &mut StdRng,
) -> Result<String> {
    let mut admin = connect(cluster, through)?;
    let (mut last, chance) = (Value::Null, random.random());
    let limits = Limits { nodes: options.nodes.into(), shards: options.shards.into() };
    for _ in 0..CHANGE_TRIES {
        let layout = Layout::read(&mut admin)?;
        // The same change each time, as far as the table is the same.
        let (what, query) = layout.change(kind, limits, &mut StdRng::seed_from_u64(chance));
        let answer = admin.ask(&query).with_context(|| what.clone())?;
        let result = &answer["r"][0];
        if answer["t"] == 1 && result["errors"].as_u64().unwrap_or(0) == 0 {
            return Ok(what);
        }
        tally.refused(&answer);
        last = answer;
        thread::sleep(CHANGE_RETRY_INTERVAL);
    }
    bail!("{} was refused {CHANGE_TRIES} times: {last}", kind.name())
}

/// Whether every node returns all acknowledged writes and the right count, and all replicas have the same rows.
fn is_whole(cluster: &Cluster, ledger: &Ledger) -> Result<bool> {
    wait_until_ready(&mut connect(cluster, 0)?)?;
    let mut whole = true;
    for nth in 0..cluster.drivers().len() {
        let mut client = connect(cluster, nth)?;
        let verdict = ledger.check(&mut client)?;
        if verdict.lost + verdict.broken > 0 {
            println!("reshard: n{nth}: {} lost, {} broken documents", verdict.lost, verdict.broken);
            verdict.examples.iter().for_each(|example| println!("reshard:   {example}"));
            whole = false;
        }
        let rows = client.ask_all(&format!("[1,{TABLE}]"))?.len();
        let counted = client.ask(&format!("[1,[43,[{TABLE}]]]"))?;
        if counted["r"][0] != rows {
            println!("reshard: n{nth}: {rows} rows are counted as {counted}");
            whole = false;
        }
    }
    println!("reshard: {} acknowledged writes over {} documents", ledger.acknowledged(), ledger.documents());
    let divergent = divergent_nodes(&cluster.drivers(), "crash")?;
    if !divergent.is_empty() {
        println!("reshard: nodes {divergent:?} have other rows than n0");
    }
    Ok(divergent.is_empty() && whole)
}

fn wait_until_ready(client: &mut Client) -> Result<()> {
    let until = "\"wait_for\":\"all_replicas_ready\"";
    done(client, &format!("[1,[177,[{TABLE}],{{{until},\"timeout\":{READY_SECONDS}}}]]"))
}

fn connect(cluster: &Cluster, nth: usize) -> Result<Client> {
    Client::connect_for(cluster.drivers()[nth], Duration::from_secs(READY_SECONDS + 10))
}

fn done(client: &mut Client, query: &str) -> Result<()> {
    let answer = client.ask(query)?;
    if answer["t"] != 1 {
        bail!("{query} was answered with {answer}");
    }
    Ok(())
}
