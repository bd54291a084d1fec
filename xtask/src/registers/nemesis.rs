//! What befalls the nodes.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use rand::Rng;
use rand::rngs::StdRng;

use crate::cluster::Cluster;
use crate::crash::client::Client;
use crate::process;

/// How often to look whether the clients are done.
const LOOK: Duration = Duration::from_millis(50);
/// Who asks for other shards gives up after so long.
const RECONFIGURE: Duration = Duration::from_secs(10);

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
    /// The table gets another number of shards and replicas, through any node.
    Reconfigure,
    /// The same, asked of a node while nodes do not reach each other: what was published of RethinkDB
    /// 2.2.3.
    ReconfigureApart,
}

impl Nemesis {
    pub(super) fn name(self) -> &'static str {
        match self {
            Nemesis::Kill => "kill",
            Nemesis::Stop => "stop",
            Nemesis::Partition => "partition",
            Nemesis::Reconfigure => "reconfigure",
            Nemesis::ReconfigureApart => "reconfigure-apart",
        }
    }

    /// Whether the nodes need addresses of their own.
    pub(super) fn needs_network(self) -> bool {
        matches!(self, Nemesis::Partition | Nemesis::ReconfigureApart)
    }

    /// Haunts the nodes until `is_over`, and leaves them whole.
    pub(super) fn haunt(
        self,
        cluster: &mut Cluster,
        random: &mut StdRng,
        is_over: impl Fn() -> bool,
    ) -> Result<()> {
        let (mut times, count) = (0, cluster.drivers().len());
        while !is_over() {
            let victim = random.random_range(0..count);
            self.strike(cluster, victim, random)?;
            rest(random.random_range(500..4000), &is_over);
            self.relent(cluster, victim)?;
            times += 1;
            rest(random.random_range(500..3000), &is_over);
        }
        println!("registers:   {} {times} times", self.name());
        Ok(())
    }

    fn strike(self, cluster: &mut Cluster, victim: usize, random: &mut StdRng) -> Result<()> {
        let count = cluster.drivers().len();
        match self {
            Nemesis::Kill => cluster.kill(victim),
            Nemesis::Stop => signal(cluster, victim, "STOP"),
            Nemesis::Partition => cut_off(cluster, victim, random),
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
            Nemesis::Reconfigure => Ok(()),
            Nemesis::Partition | Nemesis::ReconfigureApart => {
                cluster.network().map_or(Ok(()), |network| network.heal())
            }
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

/// Asks node `nth` for other shards and replicas. Whether that succeeds is not the question here.
fn reconfigure(cluster: &Cluster, nth: usize, random: &mut StdRng) {
    let drivers = cluster.drivers();
    let (shards, replicas) = (random.random_range(1..5), random.random_range(1..=drivers.len()));
    let table = "[15,[[14,[\"test\"]],\"registers\"]]";
    let query = format!("[1,[176,[{table}],{{\"shards\":{shards},\"replicas\":{replicas}}}]]");
    let asked = Client::connect_for(drivers[nth], RECONFIGURE).and_then(|mut client| client.ask(&query));
    let said = match asked {
        Ok(answer) if answer["t"] == 1 => "done".to_owned(),
        Ok(answer) => answer["r"][0].as_str().unwrap_or_default().to_owned(),
        Err(_) => "no answer".to_owned(),
    };
    println!("registers:   n{nth}: {shards} shards, {replicas} replicas: {said}");
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
