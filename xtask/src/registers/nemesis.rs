//! What befalls the nodes.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use rand::Rng;
use rand::rngs::StdRng;

use crate::cluster::Cluster;

/// How often to look whether the clients are done.
const LOOK: Duration = Duration::from_millis(50);

/// One kind of fault, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nemesis {
    /// `kill -9` of any node, and back.
    Kill,
    /// A node that hangs and goes on later (SIGSTOP, SIGCONT).
    Stop,
    /// Nodes that do not reach each other: one alone, one that only hears or is only heard, two that
    /// reach each other by nobody but a third.
    Partition,
}

impl Nemesis {
    pub(super) const ALL: [Nemesis; 3] = [Nemesis::Kill, Nemesis::Stop, Nemesis::Partition];

    pub(super) fn name(self) -> &'static str {
        match self {
            Nemesis::Kill => "kill",
            Nemesis::Stop => "stop",
            Nemesis::Partition => "partition",
        }
    }

    pub(super) fn parse(name: &str) -> Result<Nemesis> {
        match Nemesis::ALL.into_iter().find(|nemesis| nemesis.name() == name) {
            Some(nemesis) => Ok(nemesis),
            None => bail!("there is no nemesis {name}: kill, stop, partition"),
        }
    }

    /// Whether the nodes need addresses of their own.
    pub(super) fn needs_network(self) -> bool {
        self == Nemesis::Partition
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
            Nemesis::Partition => {
                let Some(network) = cluster.network() else { bail!("the nodes share one address") };
                let others = (0..count).filter(|other| *other != victim);
                let next = (victim + 1) % count;
                match random.random_range(0..4) {
                    0 => others.into_iter().try_for_each(|other| network.cut(victim, other)),
                    1 => others.into_iter().try_for_each(|other| network.cut(other, victim)),
                    2 => network.cut(victim, next).and_then(|()| network.cut(next, victim)),
                    _ => others.into_iter().try_for_each(|other| {
                        network.cut(victim, other)?;
                        network.cut(other, victim)
                    }),
                }
            }
        }
    }

    fn relent(self, cluster: &mut Cluster, victim: usize) -> Result<()> {
        match self {
            Nemesis::Kill => cluster.start_node(victim),
            Nemesis::Stop => signal(cluster, victim, "CONT"),
            Nemesis::Partition => cluster.network().map_or(Ok(()), |network| network.heal()),
        }
    }
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
    let status = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status()?;
    match status.success() {
        true => Ok(()),
        false => bail!("kill -{name} {pid}: {status}"),
    }
}
