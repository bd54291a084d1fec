//! `failover`: the node that leads a table of three replicas is killed, or stopped like one that
//! hangs, again and again under writers that go on with the others. How long writes rest, and
//! whether everything acknowledged is there in the end, whichever node is asked.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::{Condvar, Mutex};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::client::Client;
use crate::harness::cluster::Cluster;
use crate::harness::node::SERVER_FLAGS;
use crate::harness::options::{Trial, verdict};
use crate::harness::process::signal;
use crate::workload::ledger::{Ledger, Page};
use crate::workload::quantile;
use crate::workload::writers::{Answered, write_one};

/// A client gives up on a node that says nothing for so long, and tries another.
const PATIENCE: Duration = Duration::from_secs(2);
/// Writers that have not gone on by then never will.
const RESUME_MAX: Duration = Duration::from_secs(60);
/// Kills between two comparisons of the whole table with what was acknowledged.
const KILLS_PER_ROUND: u32 = 10;
/// Every so many times the process is stopped instead of killed.
const HANG_EVERY: u32 = 5;
const BAR_P50: Duration = Duration::from_secs(3);
const BAR_P99: Duration = Duration::from_secs(10);

/// How often, and under what.
#[derive(clap::Args)]
pub struct Options {
    /// How often the node that leads is killed or stopped
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// Nodes, three of which have replicas
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..))]
    nodes: u16,
    /// Writers
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    writers: u16,
    #[command(flatten)]
    trial: Trial,
}

/// Runs it; fails when anything acknowledged is lost or writes rest for too long.
pub fn run(options: &Options) -> ExitCode {
    println!("failover: seed {}, {} writers, {} nodes", options.trial.seed, options.writers, options.nodes);
    verdict("failover", storm(options))
}

/// Whether nothing was lost and writes went on soon enough.
fn storm(options: &Options) -> Result<bool> {
    let folder = tempfile::tempdir().context("a folder for the nodes' data")?;
    let mut random = StdRng::seed_from_u64(options.trial.seed);
    let mut cluster =
        Cluster::start(&options.trial.program, folder.path(), options.nodes.into(), SERVER_FLAGS)?;
    let mut admin = connect(cluster.drivers()[0])?;
    succeed(&mut admin, "[1,[60,[[14,[\"test\"]],\"crash\"],{\"replicas\":3}]]")?;
    let mut ledger = Ledger::new(options.writers.into());
    let mut pauses = Vec::new();
    let mut left = options.kills;
    while left > 0 {
        let kills = left.min(KILLS_PER_ROUND);
        left -= kills;
        let round = Round::new(cluster.drivers(), options.writers.into());
        thread::scope(|scope| {
            for (writer, page) in ledger.pages.iter_mut().enumerate() {
                let (round, seed) = (&round, random.random());
                scope.spawn(move || write_on(writer, page, round, StdRng::seed_from_u64(seed)));
            }
            let result: Result<()> = (0..kills).try_for_each(|_| {
                let hangs = (pauses.len() as u32 + 1).is_multiple_of(HANG_EVERY);
                pauses.push(one_failover(&mut cluster, &round, hangs)?);
                Ok(())
            });
            round.over.store(true, Ordering::Release);
            result
        })?;
        if !everything_is_there(&cluster, &ledger)? {
            return Ok(false);
        }
        say_pauses(&mut pauses.clone(), &ledger);
    }
    pauses.sort_unstable();
    let bars = [("p50", quantile(&pauses, 0.5), BAR_P50), ("p99", quantile(&pauses, 0.99), BAR_P99)];
    let over = bars.iter().filter(|(_, pause, bar)| pause > bar);
    Ok(over
        .inspect(|(name, pause, bar)| println!("failover: {name} is {pause:.2?}, its bar {bar:?}"))
        .count()
        == 0)
}

/// What writers and the killer share between two comparisons.
struct Round {
    drivers: Vec<SocketAddr>,
    writers: usize,
    over: AtomicBool,
    // Counts failovers; a writer tells once per failover that it was acknowledged again.
    failover: AtomicU64,
    resumed: Mutex<(u64, usize)>,
    all_resumed: Condvar,
}

impl Round {
    fn new(drivers: Vec<SocketAddr>, writers: usize) -> Round {
        Round {
            drivers,
            writers,
            over: AtomicBool::new(false),
            failover: AtomicU64::new(0),
            resumed: Mutex::default(),
            all_resumed: Condvar::new(),
        }
    }

    fn begin(&self) {
        *self.resumed.lock() = (self.failover.fetch_add(1, Ordering::AcqRel) + 1, 0);
    }

    /// A write that was begun in `failover` was acknowledged.
    fn resume(&self, failover: u64) {
        let mut resumed = self.resumed.lock();
        if resumed.0 == failover {
            resumed.1 += 1;
            if resumed.1 == self.writers {
                self.all_resumed.notify_all();
            }
        }
    }

    /// Waits until every writer had a write acknowledged that it began after [`Round::begin`].
    fn wait_until_resumed(&self) -> Result<()> {
        let deadline = Instant::now() + RESUME_MAX;
        let mut resumed = self.resumed.lock();
        while resumed.1 < self.writers {
            if self.all_resumed.wait_until(&mut resumed, deadline).timed_out() {
                bail!("after {RESUME_MAX:?} only {} of {} writers go on", resumed.1, self.writers);
            }
        }
        Ok(())
    }
}

/// One writer: goes on with another node when one is gone, until the round is over.
fn write_on(writer: usize, page: &mut Page, round: &Round, mut random: StdRng) {
    let mut told = 0;
    let mut nth = random.random_range(0..round.drivers.len());
    while !round.over.load(Ordering::Acquire) {
        // Any other than the one that did not answer.
        nth = (nth + random.random_range(1..round.drivers.len())) % round.drivers.len();
        let Ok(mut client) = Client::connect_for(round.drivers[nth], PATIENCE) else {
            thread::yield_now();
            continue;
        };
        while !round.over.load(Ordering::Acquire) {
            let failover = round.failover.load(Ordering::Acquire);
            let (number, answered) = write_one(writer, page, &mut client, &mut random);
            match answered {
                Ok(Answered::Acknowledged) if told < failover => {
                    told = failover;
                    round.resume(failover);
                }
                Ok(Answered::Acknowledged) => {}
                // It may still come to pass, even after later ones: nothing later may depend on it.
                Ok(Answered::Otherwise(_)) => page.documents[number].retired = true,
                Err(_) => {
                    page.documents[number].retired = true;
                    break;
                }
            }
        }
    }
}

/// Kills or stops the node that leads, waits until every writer goes on, and brings it back: how long
/// the last writer waited.
fn one_failover(cluster: &mut Cluster, round: &Round, hangs: bool) -> Result<Duration> {
    let mut admin = connect(cluster.drivers()[0])?;
    let leader = leader(&mut admin)?;
    round.begin();
    let began = Instant::now();
    match cluster.pid(leader).filter(|_| hangs) {
        Some(pid) => signal(pid, "STOP")?,
        None => cluster.kill(leader)?,
    }
    round.wait_until_resumed()?;
    let pause = began.elapsed();
    println!("failover:   {} n{leader}: {pause:.2?}", if hangs { "stopped" } else { "killed" });
    match cluster.pid(leader) {
        Some(pid) => signal(pid, "CONT")?,
        None => cluster.start_node(leader)?,
    }
    Ok(pause)
}

/// The node that leads the table, once all replicas are ready.
fn leader(admin: &mut Client) -> Result<usize> {
    let table = "[15,[[14,[\"test\"]],\"crash\"]]";
    let deadline = Instant::now() + RESUME_MAX;
    loop {
        let wait = format!("[1,[177,[{table}],{{\"wait_for\":\"all_replicas_ready\",\"timeout\":60}}]]");
        succeed(admin, &wait)?;
        let status = admin.ask(&format!("[1,[175,[{table}]]]"))?;
        let name = status["r"][0]["shards"][0]["primary_replicas"][0].as_str();
        // Between the two questions it may have changed hands, on a busy machine.
        match name.and_then(|name| name.strip_prefix('n')?.parse().ok()) {
            Some(number) => return Ok(number),
            None if Instant::now() < deadline => {}
            None => bail!("nobody leads the table: {status}"),
        }
    }
}

fn everything_is_there(cluster: &Cluster, ledger: &Ledger) -> Result<bool> {
    for driver in cluster.drivers() {
        let verdict = ledger.check(&mut connect(driver)?)?;
        if verdict.lost + verdict.broken > 0 {
            println!("failover: {driver}: {} lost, {} broken documents", verdict.lost, verdict.broken);
            verdict.examples.iter().for_each(|example| println!("failover:   {example}"));
            return Ok(false);
        }
    }
    Ok(true)
}

fn say_pauses(pauses: &mut [Duration], ledger: &Ledger) {
    pauses.sort_unstable();
    println!(
        "failover: {} times; every writer goes on after p50 {:.2?}, p99 {:.2?}, max {:.2?}; \
         {} acknowledged writes over {} documents, 0 lost",
        pauses.len(),
        quantile(pauses, 0.5),
        quantile(pauses, 0.99),
        quantile(pauses, 1.0),
        ledger.acknowledged(),
        ledger.documents(),
    );
}

fn connect(driver: SocketAddr) -> Result<Client> {
    Client::connect_for(driver, RESUME_MAX)
}

fn succeed(client: &mut Client, query: &str) -> Result<()> {
    let answer = client.ask(query)?;
    if answer["t"] != 1 {
        bail!("{query} was answered with {answer}");
    }
    Ok(())
}
