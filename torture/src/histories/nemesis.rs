//! What befalls the nodes.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use rand::Rng;
use rand::rngs::StdRng;

use super::replay::Replay;
use super::table::{Said, reconfiguration};
use crate::harness::cluster::Cluster;
use crate::harness::process;

/// How often to look whether the clients are done.
const LOOK: Duration = Duration::from_millis(50);

/// How late bytes come at most.
const LATE_MOST: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(800), Duration::from_millis(4000)];

/// One kind of fault, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Nemesis {
    /// `kill -9` of any node, and back.
    Kill,
    /// A node that hangs and goes on later (SIGSTOP, SIGCONT).
    Stop,
    /// Nodes that do not reach each other: one alone, one that only hears or is only heard, two that
    /// reach each other by nobody but a third.
    Partition,
    /// Messages between nodes that come late, in their order: those from one node, to one, both, or all; each for
    /// another while.
    Delay,
    /// The table gets another number of shards and replicas, through any node.
    Reconfigure,
    /// The same, asked of a node while nodes do not reach each other.
    ReconfigureApart,
    /// What was published of RethinkDB 2.2.3: one shard on any nodes, led by any of them, asked of any node, also of nodes
    /// that fell apart; then the nodes fall into two halves, with the leader of before in one and the new one in the other.
    Replay,
    /// Nothing.
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

    /// Whether the nodes need addresses of their own.
    pub(super) fn needs_network(self) -> bool {
        matches!(self, Nemesis::Partition | Nemesis::Delay | Nemesis::ReconfigureApart | Nemesis::Replay)
    }

    /// Whether it is one of those that are run when none is named.
    pub(super) fn is_usual(self) -> bool {
        !matches!(self, Nemesis::Replay | Nemesis::Calm)
    }

    /// Haunts the nodes until `is_over`, and leaves them whole.
    pub(super) fn haunt(
        self,
        cluster: &mut Cluster,
        random: &mut StdRng,
        is_over: impl Fn() -> bool,
    ) -> Result<()> {
        let (mut times, mut replay, count) = (0, Replay::default(), cluster.drivers().len());
        while !is_over() {
            let victim = random.random_range(0..count);
            match self {
                Nemesis::Replay => replay.strike(cluster, random)?,
                _ => self.strike(cluster, victim, random)?,
            }
            rest(random.random_range(500..4000), &is_over);
            times += 1;
            match self {
                Nemesis::Replay => replay.relent(cluster, random)?,
                _ => self.relent(cluster, victim)?,
            }
            rest(random.random_range(500..3000), &is_over);
        }
        println!("histories:   {} {times} times", self.name());
        Ok(())
    }

    fn strike(self, cluster: &mut Cluster, victim: usize, random: &mut StdRng) -> Result<()> {
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

    fn relent(self, cluster: &mut Cluster, victim: usize) -> Result<()> {
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

/// Holds what goes between nodes, for moments or for longer than who leads is heard of in.
fn delay(cluster: &Cluster, victim: usize, random: &mut StdRng) -> Result<()> {
    let Some(late) = cluster.late() else { bail!("the nodes reach each other directly") };
    let count = cluster.drivers().len();
    let most = LATE_MOST[random.random_range(0..LATE_MOST.len())];
    let (from_it, to_it) = [(true, false), (false, true), (true, true)][random.random_range(0..3)];
    let is_all = random.random_ratio(1, 4);
    for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
        if is_all || (from_it && from == victim) || (to_it && to == victim) {
            late.hold(from, to, most);
        }
    }
    Ok(())
}

/// Asks node `nth` for other shards and replicas. Whether that succeeds is not the question here.
fn reconfigure(cluster: &Cluster, nth: usize, random: &mut StdRng) {
    let drivers = cluster.drivers();
    let (shards, replicas) = (random.random_range(1..5), random.random_range(1..=drivers.len()));
    let said = Said::to(drivers[nth], &reconfiguration(shards, replicas));
    println!("histories:   n{nth}: {shards} shards, {replicas} replicas: {said}");
}

/// Lets the clients work for so many milliseconds, less if they are done.
fn rest(ms: u64, is_over: impl Fn() -> bool) {
    let mut left = Duration::from_millis(ms);
    while !left.is_zero() && !is_over() {
        thread::sleep(LOOK.min(left));
        left = left.saturating_sub(LOOK);
    }
}

fn signal(cluster: &Cluster, nth: usize, name: &str) -> Result<()> {
    let Some(pid) = cluster.pid(nth) else { return Ok(()) };
    process::signal(pid, name)
}
