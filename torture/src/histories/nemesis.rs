//! The faults.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use rand::Rng;
use rand::rngs::StdRng;

use super::replay::Replay;
use super::table::{ChangeResponse, reconfiguration};
use crate::harness::cluster::Cluster;
use crate::harness::process;

/// How often to check whether the clients have finished.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The longest delays of messages.
const DELAYS_MAX: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(800), Duration::from_millis(4000)];

/// One kind of fault, injected again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Nemesis {
    /// `kill -9` and restart of any node.
    Kill,
    /// A node that hangs and continues later (SIGSTOP, SIGCONT).
    Stop,
    /// Nodes that cannot reach each other: one isolated in both directions or in one, or two that reach each other only
    /// through a third.
    Partition,
    /// Messages between nodes are delayed and keep their order: those from one node, to one node, both, or all. Each
    /// delay is random, up to a longest one.
    Delay,
    /// Any node reconfigures the table to another number of shards and replicas.
    Reconfigure,
    /// The same while nodes cannot reach each other.
    ReconfigureApart,
    /// The published test of RethinkDB 2.2.3: one shard is put on any nodes with any of them as its leader, by a request to
    /// any node, also during a partition. Then a partition separates the previous leader from the new one.
    Replay,
    /// No faults.
    Calm,
}

impl Nemesis {
    pub(super) fn name(self) -> &'static str {
        match self {
            Nemesis::Kill => "kill",
            Nemesis::Stop => "stop",
            Nemesis::Partition => "partition",
            Nemesis::Delay => "delay",
            Nemesis::Reconfigure => "reconfigure",
            Nemesis::ReconfigureApart => "reconfigure-apart",
            Nemesis::Replay => "replay",
            Nemesis::Calm => "calm",
        }
    }

    /// Whether the nodes need network namespaces.
    pub(super) fn needs_network(self) -> bool {
        matches!(self, Nemesis::Partition | Nemesis::Delay | Nemesis::ReconfigureApart | Nemesis::Replay)
    }

    /// Whether it runs when no nemesis is named.
    pub(super) fn is_usual(self) -> bool {
        !matches!(self, Nemesis::Replay | Nemesis::Calm)
    }

    /// Injects faults until `is_over`, and ends the last one.
    pub(super) fn inject(
        self,
        cluster: &mut Cluster,
        random: &mut StdRng,
        is_over: impl Fn() -> bool,
    ) -> Result<()> {
        let (mut times, mut replay, count) = (0, Replay::default(), cluster.drivers().len());
        while !is_over() {
            let victim = random.random_range(0..count);
            match self {
                Nemesis::Replay => replay.begin_fault(cluster, random)?,
                _ => self.begin_fault(cluster, victim, random)?,
            }
            wait(random.random_range(500..4000), &is_over);
            times += 1;
            match self {
                Nemesis::Replay => replay.end_fault(cluster, random)?,
                _ => self.end_fault(cluster, victim)?,
            }
            wait(random.random_range(500..3000), &is_over);
        }
        println!("histories:   {} {times} times", self.name());
        Ok(())
    }

    fn begin_fault(self, cluster: &mut Cluster, victim: usize, random: &mut StdRng) -> Result<()> {
        let count = cluster.drivers().len();
        match self {
            Nemesis::Kill => cluster.kill(victim),
            Nemesis::Stop => signal(cluster, victim, "STOP"),
            Nemesis::Partition => cut_off(cluster, victim, random),
            Nemesis::Delay => delay(cluster, victim, random),
            Nemesis::Calm | Nemesis::Replay => Ok(()),
            Nemesis::Reconfigure => {
                reconfigure(cluster, victim, random);
                Ok(())
            }
            Nemesis::ReconfigureApart => {
                cut_off(cluster, victim, random)?;
                reconfigure(cluster, random.random_range(0..count), random);
                Ok(())
            }
        }
    }

    fn end_fault(self, cluster: &mut Cluster, victim: usize) -> Result<()> {
        match self {
            Nemesis::Kill => cluster.start_node(victim),
            Nemesis::Stop => signal(cluster, victim, "CONT"),
            Nemesis::Reconfigure | Nemesis::Calm | Nemesis::Replay => Ok(()),
            Nemesis::Partition | Nemesis::Delay | Nemesis::ReconfigureApart => cluster.heal(),
        }
    }
}

fn cut_off(cluster: &Cluster, victim: usize, random: &mut StdRng) -> Result<()> {
    let Some(network) = cluster.network() else { bail!("the nodes share one address") };
    let count = cluster.drivers().len();
    let mut others = (0..count).filter(|other| *other != victim);
    let next = (victim + 1) % count;
    match random.random_range(0..4) {
        0 => others.try_for_each(|other| network.cut(victim, other)),
        1 => others.try_for_each(|other| network.cut(other, victim)),
        2 => network.cut(victim, next).and_then(|()| network.cut(next, victim)),
        _ => others.try_for_each(|other| {
            network.cut(victim, other)?;
            network.cut(other, victim)
        }),
    }
}

/// Delays messages between nodes, briefly or for longer than the election timeout.
fn delay(cluster: &Cluster, victim: usize, random: &mut StdRng) -> Result<()> {
    let Some(proxies) = cluster.delays() else { bail!("the nodes reach each other directly") };
    let count = cluster.drivers().len();
    let most = DELAYS_MAX[random.random_range(0..DELAYS_MAX.len())];
    let (sends, receives) = [(true, false), (false, true), (true, true)][random.random_range(0..3)];
    let is_all = random.random_ratio(1, 4);
    for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
        if is_all || (sends && from == victim) || (receives && to == victim) {
            proxies.delay(from, to, most);
        }
    }
    Ok(())
}

/// Asks node `nth` for other shards and replicas; it need not succeed.
fn reconfigure(cluster: &Cluster, nth: usize, random: &mut StdRng) {
    let drivers = cluster.drivers();
    let (shards, replicas) = (random.random_range(1..5), random.random_range(1..=drivers.len()));
    let response = ChangeResponse::request(drivers[nth], &reconfiguration(shards, replicas));
    println!("histories:   n{nth}: {shards} shards, {replicas} replicas: {response}");
}

/// Waits for `ms` milliseconds, or until the clients have finished.
fn wait(ms: u64, is_over: impl Fn() -> bool) {
    let mut left = Duration::from_millis(ms);
    while !left.is_zero() && !is_over() {
        thread::sleep(POLL_INTERVAL.min(left));
        left = left.saturating_sub(POLL_INTERVAL);
    }
}

fn signal(cluster: &Cluster, nth: usize, name: &str) -> Result<()> {
    let Some(pid) = cluster.pid(nth) else { return Ok(()) };
    process::signal(pid, name)
}
