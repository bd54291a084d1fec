//! Jepsen's test of RethinkDB 2.2.3: a shard moves while nodes fall apart.

use anyhow::{Result, bail};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::table::{Said, await_whole, placement};
use crate::harness::cluster::Cluster;

/// The test as it goes on.
#[derive(Default)]
pub(super) struct Replay {
    /// The node that leads, as far as changes were done.
    leader: usize,
}

impl Replay {
    /// Moves the shard, and lets the nodes fall into halves while it may still be on its way: who led before is in one, who
    /// is to lead in the other.
    pub(super) fn strike(&mut self, cluster: &Cluster, random: &mut StdRng) -> Result<()> {
        let before = self.leader;
        self.place(cluster, random);
        fall_apart(cluster, before, self.leader, random)
    }

    /// Every other time moves the shard while the nodes are apart. Then heals them, and waits until all is whole: the next
    /// halves are not to fall on what the last ones left.
    pub(super) fn relent(&mut self, cluster: &Cluster, random: &mut StdRng) -> Result<()> {
        if random.random_ratio(1, 2) {
            self.place(cluster, random);
        }
        cluster.heal()?;
        await_whole(cluster)
    }

    /// Asks any node to put the only shard on some nodes, one of which is to lead. Whether that succeeds is not the
    /// question here; where it was refused nobody else leads.
    fn place(&mut self, cluster: &Cluster, random: &mut StdRng) {
        let drivers = cluster.drivers();
        let asked = random.random_range(0..drivers.len());
        let mut nodes: Vec<usize> = (0..drivers.len()).collect();
        nodes.shuffle(random);
        nodes.truncate(random.random_range(1..=drivers.len()));
        let names: Vec<String> = nodes.iter().map(|node| format!("n{node}")).collect();
        let said = Said::to(drivers[asked], &placement(&names));
        println!("histories:   n{asked}: led by {}, on {}: {said}", names[0], names.join(","));
        self.leader = led_after(self.leader, nodes[0], &said);
    }
}

/// Who leads after `wanted` was to lead. It may have come about where nobody answered.
fn led_after(before: usize, wanted: usize, said: &Said) -> usize {
    match said {
        Said::Done | Said::Nothing => wanted,
        Said::Refused(_) => before,
    }
}

/// Two halves, or as near as that comes, with `one` and `other` in different ones.
fn fall_apart(cluster: &Cluster, one: usize, other: usize, random: &mut StdRng) -> Result<()> {
    let Some(network) = cluster.network() else { bail!("the nodes share one address") };
    let count = cluster.drivers().len();
    let mut nodes: Vec<usize> = (0..count).filter(|node| *node != one && *node != other).collect();
    nodes.shuffle(random);
    // `one` stands at one end and `other` at the other; which of them has the larger half is chance.
    nodes.insert(0, one);
    if one != other {
        nodes.push(other);
    }
    let (near, far) = nodes.split_at(count / 2 + random.random_range(0..=count % 2));
    for (from, to) in near.iter().flat_map(|from| far.iter().map(move |to| (*from, *to))) {
        network.cut(from, to)?;
        network.cut(to, from)?;
    }
    println!("histories:   {near:?} without {far:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_refused_does_not_lead() {
        assert_eq!(led_after(1, 3, &Said::Done), 3);
        assert_eq!(led_after(1, 3, &Said::Nothing), 3);
        assert_eq!(led_after(1, 3, &Said::Refused("no majority".to_owned())), 1);
    }
}
