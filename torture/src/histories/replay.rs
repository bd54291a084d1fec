//! Jepsen's test of RethinkDB 2.2.3: a shard moves during partitions.

use anyhow::{Result, bail};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::table::{ChangeResponse, await_recovery, placement};
use crate::harness::cluster::Cluster;

/// The state of the test.
#[derive(Default)]
pub(super) struct Replay {
    /// The leader after the changes that were acknowledged or had no response.
    leader: usize,
}

impl Replay {
    /// Moves the shard, and partitions the nodes while the move may still run: the previous leader is in one half, the new
    /// one in the other.
    pub(super) fn begin_fault(&mut self, cluster: &Cluster, random: &mut StdRng) -> Result<()> {
        let before = self.leader;
        self.place(cluster, random);
        partition(cluster, before, self.leader, random)
    }

    /// Moves the shard during every other partition. Then heals it and waits until the cluster has recovered, so that the
    /// next partition finds no effects of the last one.
    pub(super) fn end_fault(&mut self, cluster: &Cluster, random: &mut StdRng) -> Result<()> {
        if random.random_ratio(1, 2) {
            self.place(cluster, random);
        }
        cluster.heal()?;
        await_recovery(cluster)
    }

    /// Asks any node to put the only shard on some nodes with one of them as its leader. The request need not succeed; if
    /// it is refused, the leader stays.
    fn place(&mut self, cluster: &Cluster, random: &mut StdRng) {
        let drivers = cluster.drivers();
        let asked = random.random_range(0..drivers.len());
        let mut nodes: Vec<usize> = (0..drivers.len()).collect();
        nodes.shuffle(random);
        nodes.truncate(random.random_range(1..=drivers.len()));
        let names: Vec<String> = nodes.iter().map(|node| format!("n{node}")).collect();
        let response = ChangeResponse::request(drivers[asked], &placement(&names));
        println!("histories:   n{asked}: led by {}, on {}: {response}", names[0], names.join(","));
        self.leader = led_after(self.leader, nodes[0], &response);
    }
}

/// The leader after a request to make `wanted` the leader. Without a response the request may have succeeded.
fn led_after(before: usize, wanted: usize, response: &ChangeResponse) -> usize {
    match response {
        ChangeResponse::Done | ChangeResponse::Missing => wanted,
        ChangeResponse::Refused(_) => before,
    }
}

/// Partitions the nodes into two halves of nearly the same size, with `one` and `other` in different halves.
fn partition(cluster: &Cluster, one: usize, other: usize, random: &mut StdRng) -> Result<()> {
    let Some(network) = cluster.network() else { bail!("the nodes share one address") };
    let count = cluster.drivers().len();
    let mut nodes: Vec<usize> = (0..count).filter(|node| *node != one && *node != other).collect();
    nodes.shuffle(random);
    // `one` is at one end of the list and `other` at the other; which of them has the larger half is random.
    nodes.insert(0, one);
    if one != other {
        nodes.push(other);
    }
    let (left, right) = nodes.split_at(count / 2 + random.random_range(0..=count % 2));
    for (from, to) in left.iter().flat_map(|from| right.iter().map(move |to| (*from, *to))) {
        network.cut(from, to)?;
        network.cut(to, from)?;
    }
    println!("histories:   {left:?} without {right:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_change_keeps_the_leader() {
        assert_eq!(led_after(1, 3, &ChangeResponse::Done), 3);
        assert_eq!(led_after(1, 3, &ChangeResponse::Missing), 3);
        assert_eq!(led_after(1, 3, &ChangeResponse::Refused("no majority".to_owned())), 1);
    }
}
