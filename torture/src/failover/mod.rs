//! `failover`: the leader of a table of three replicas is killed, or stopped like a process that hangs, again and again
//! under writers that continue with the other nodes. Measures how long writes pause, and checks on every node that all
//! acknowledged writes are stored.

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
use crate::harness::options::{RunOptions, verdict};
use crate::harness::process::signal;
use crate::workload::ledger::{Ledger, WriterDocuments};
use crate::workload::quantile;
use crate::workload::writers::{WriteResponse, write_one};

/// Without a response for this long, a client tries another node.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long writers may take to continue after a failover.
const RESUME_TIMEOUT: Duration = Duration::from_secs(60);
/// Failovers between two comparisons of the whole table with the acknowledged writes.
const KILLS_PER_ROUND: u32 = 10;
/// In one failover of this many the process is stopped instead of killed.
const HANG_EVERY: u32 = 5;
const BAR_P50: Duration = Duration::from_secs(3);
const BAR_P99: Duration = Duration::from_secs(10);

/// Options of a failover run.
#[derive(clap::Args)]
pub struct Options {
    /// How often the leader is killed or stopped
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// Nodes, three of which have replicas
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..))]
    nodes: u16,
    /// Writers
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    writers: u16,
    #[command(flatten)]
    trial: RunOptions,
}

/// Runs the failovers; fails if an acknowledged write is lost or writes pause for too long.
pub fn run(options: &Options) -> ExitCode {
    println!("failover: seed {}, {} writers, {} nodes", options.trial.seed, options.writers, options.nodes);
    verdict("failover", check_failovers(options))
}

/// Whether no acknowledged write was lost and writes continued soon enough.
fn check_failovers(options: &Options) -> Result<bool> {
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
            for (writer, documents) in ledger.writers.iter_mut().enumerate() {
                let (round, seed) = (&round, random.random());
                scope.spawn(move || run_writer(writer, documents, round, StdRng::seed_from_u64(seed)));
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
        print_pauses(&mut pauses.clone(), &ledger);
    }
    pauses.sort_unstable();
    let bars = [("p50", quantile(&pauses, 0.5), BAR_P50), ("p99", quantile(&pauses, 0.99), BAR_P99)];
    let over = bars.iter().filter(|(_, pause, bar)| pause > bar);
    Ok(over
        .inspect(|(name, pause, bar)| println!("failover: {name} is {pause:.2?}, its bar {bar:?}"))
        .count()
        == 0)
}

/// State that the writers and the fault injection share between two comparisons.
struct Round {
    drivers: Vec<SocketAddr>,
    writers: usize,
    over: AtomicBool,
    // Counts failovers. Each writer reports once per failover that a write was acknowledged again.
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

    /// Reports that a write that began in `failover` was acknowledged.
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
        let deadline = Instant::now() + RESUME_TIMEOUT;
        let mut resumed = self.resumed.lock();
        while resumed.1 < self.writers {
            if self.all_resumed.wait_until(&mut resumed, deadline).timed_out() {
                bail!("after {RESUME_TIMEOUT:?} only {} of {} writers continue", resumed.1, self.writers);
            }
        }
        Ok(())
    }
}

/// One writer: continues with another node after a failure, until the round is over.
fn run_writer(writer: usize, documents: &mut WriterDocuments, round: &Round, mut random: StdRng) {
    let mut reported = 0;
    let mut nth = random.random_range(0..round.drivers.len());
    while !round.over.load(Ordering::Acquire) {
        // Any node but the last one.
        nth = (nth + random.random_range(1..round.drivers.len())) % round.drivers.len();
        let Ok(mut client) = Client::connect_for(round.drivers[nth], RESPONSE_TIMEOUT) else {
            thread::yield_now();
            continue;
        };
        while !round.over.load(Ordering::Acquire) {
            let failover = round.failover.load(Ordering::Acquire);
            let (number, response) = write_one(writer, documents, &mut client, &mut random);
            match response {
                Ok(WriteResponse::Acknowledged) if reported < failover => {
                    reported = failover;
                    round.resume(failover);
                }
                Ok(WriteResponse::Acknowledged) => {}
                // The write may still take effect, even after later ones: no later write may depend on it.
                Ok(WriteResponse::Otherwise(_)) => documents.documents[number].retired = true,
                Err(_) => {
                    documents.documents[number].retired = true;
                    break;
                }
            }
        }
    }
}

/// Kills or stops the leader, waits until every writer continues, and starts it again or continues it. Returns how long
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

/// Waits until all replicas are ready; returns the leader of the table.
fn leader(admin: &mut Client) -> Result<usize> {
    let table = "[15,[[14,[\"test\"]],\"crash\"]]";
    let deadline = Instant::now() + RESUME_TIMEOUT;
    loop {
        let wait = format!("[1,[177,[{table}],{{\"wait_for\":\"all_replicas_ready\",\"timeout\":60}}]]");
        succeed(admin, &wait)?;
        let status = admin.ask(&format!("[1,[175,[{table}]]]"))?;
        let name = status["r"][0]["shards"][0]["primary_replicas"][0].as_str();
        // On a busy machine the leader may change between the two requests.
        match name.and_then(|name| name.strip_prefix('n')?.parse().ok()) {
            Some(number) => return Ok(number),
            None if Instant::now() < deadline => {}
            None => bail!("the table has no leader: {status}"),
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

fn print_pauses(pauses: &mut [Duration], ledger: &Ledger) {
    pauses.sort_unstable();
    println!(
        "failover: {} times; every writer continues after p50 {:.2?}, p99 {:.2?}, max {:.2?}; \
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
    Client::connect_for(driver, RESUME_TIMEOUT)
}

fn succeed(client: &mut Client, query: &str) -> Result<()> {
    let answer = client.ask(query)?;
    if answer["t"] != 1 {
        bail!("{query} was answered with {answer}");
    }
    Ok(())
}
