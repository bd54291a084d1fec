//! `reshard`: a table is split, merged, moved, given and deprived of replicas, and rebalanced, one change
//! every few seconds, under writers and readers that go on with any node. No client may see an error or a
//! wrong answer, no writer may wait for long, and at the end everything acknowledged is there, on every
//! replica alike.

mod layout;
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
use crate::harness::replica_rows::unlike;
use crate::workload::ledger::{Known, Ledger, Page, document_key, filler};
use layout::{Kind, Layout, TABLE};
use load::{GROUPS, Load};
pub use options::Options;
use tally::Tally;

/// Every replica has everything after so long, or never.
const READY_SECONDS: u64 = 120;
/// A change that is refused because another is still going on is asked for again, this often.
const TRIES: usize = 40;
const AGAIN: Duration = Duration::from_millis(250);
/// Rows of one insert while the table is filled.
const BATCH: usize = 500;

/// Runs it; fails when a client saw an error, writes rested for too long, or anything acknowledged is lost.
pub fn run(options: &Options) -> ExitCode {
    let Options { trial, nodes, writers, readers, .. } = options;
    println!("reshard: seed {}, {nodes} nodes, {writers} writers, {readers} readers", trial.seed);
    verdict("reshard", storm(options))
}

/// Whether all bars were kept.
fn storm(options: &Options) -> Result<bool> {
    let folder = tempfile::tempdir().context("a folder for the nodes' data")?;
    let mut random = StdRng::seed_from_u64(options.trial.seed);
    let nodes = usize::from(options.nodes);
    let cluster = Cluster::start(&options.trial.program, folder.path(), nodes, SERVER_FLAGS)?;
    let mut ledger = Ledger::new(usize::from(options.writers));
    let rows = filled(&cluster, options)?;
    let (tally, still) = (Tally::default(), ledger.pages.len());
    let load = Load::new(cluster.drivers(), &tally, still, options.rows as usize);
    thread::scope(|scope| {
        for (writer, page) in ledger.pages.iter_mut().enumerate() {
            let (load, seed) = (&load, random.random());
            scope.spawn(move || load.write(writer, page, StdRng::seed_from_u64(seed)));
        }
        for _ in 0..options.readers {
            let (load, seed) = (&load, random.random());
            scope.spawn(move || load.read(StdRng::seed_from_u64(seed)));
        }
        let result = change_all_the_time(&cluster, options, &tally, &mut random);
        load.over.store(true, Ordering::Release);
        result
    })?;
    ledger.pages.push(rows);
    let kept = tally.report(options);
    Ok(is_whole(&cluster, &ledger)? && kept)
}

/// A new table with rows that nobody writes any more, the page after those of the writers. An index finds these alone.
fn filled(cluster: &Cluster, options: &Options) -> Result<Page> {
    let mut admin = connect(cluster, 0)?;
    let replicas = usize::from(options.nodes).min(3);
    done(&mut admin, &format!("[1,[60,[[14,[\"test\"]],\"crash\"],{{\"replicas\":{replicas}}}]]"))?;
    wait_until_ready(&mut admin)?;
    let numbers: Vec<usize> = (0..options.rows as usize).collect();
    for some in numbers.chunks(BATCH) {
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
    let known = Known { acknowledged: 1, attempted: 1, retired: true };
    Ok(Page { documents: vec![known; options.rows as usize], acknowledged: 0 })
}

/// One change after the other, each kind once before any comes again.
fn change_all_the_time(
    cluster: &Cluster,
    options: &Options,
    tally: &Tally,
    random: &mut StdRng,
) -> Result<()> {
    let count = (options.minutes * 60.0 / options.every).ceil() as usize;
    let every = Duration::from_secs_f64(options.every);
    let mut waiting = Vec::new();
    // How long writes rest without any change, for comparison.
    thread::sleep(every);
    println!("reshard:       no change: writes rested {:.2?}", tally.paused());
    let mut due = Instant::now();
    for nth in 0..count {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if waiting.is_empty() {
            waiting = Kind::ALL.to_vec();
            waiting.shuffle(random);
        }
        let kind = waiting.pop().context("there are kinds of changes")?;
        let through = random.random_range(0..usize::from(options.nodes));
        tally.begin_change();
        let began = Instant::now();
        let what = change(cluster, options, tally, kind, through, random)?;
        let asked = began.elapsed();
        wait_until_ready(&mut connect(cluster, through)?).with_context(|| format!("after {what}"))?;
        let (ready, paused) = (began.elapsed(), tally.paused());
        println!(
            "reshard:   {:>3} n{through} {what}: done after {asked:.2?}, ready after {ready:.2?}, writes rested {paused:.2?}",
            nth + 1,
        );
        tally.ended(ready > every);
        // A change that took longer than its time does not take that of the next ones.
        due = (due + every).max(Instant::now());
    }
    thread::sleep(due.saturating_duration_since(Instant::now()));
    Ok(())
}

/// One change of a kind that is possible now; in words.
fn change(
    cluster: &Cluster,
    options: &Options,
    tally: &Tally,
    kind: Kind,
    through: usize,
    random: &mut StdRng,
) -> Result<String> {
    let mut admin = connect(cluster, through)?;
    let (mut said, chance) = (Value::Null, random.random());
    for _ in 0..TRIES {
        let layout = Layout::read(&mut admin)?;
        // The same change each time, as far as the table is the same.
        let (what, query) = layout.change(kind, options, &mut StdRng::seed_from_u64(chance));
        let answer = admin.ask(&query).with_context(|| what.clone())?;
        let result = &answer["r"][0];
        if answer["t"] == 1 && result["errors"].as_u64().unwrap_or(0) == 0 {
            return Ok(what);
        }
        tally.refused(&answer);
        said = answer;
        thread::sleep(AGAIN);
    }
    bail!("{} was refused {TRIES} times: {said}", kind.name())
}

/// Whether every node shows every acknowledged write, counts them right, and has the same rows itself.
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
    let unlike = unlike(&cluster.drivers(), "crash")?;
    if !unlike.is_empty() {
        println!("reshard: what nodes {unlike:?} have is not what n0 has");
    }
    Ok(unlike.is_empty() && whole)
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
