//! One who votes for one of two that do not hear each other, is ended, and asked by the other: a vote that
//! was not written down makes two leaders of one term.

use std::time::Duration;

use io::Nanos;
use io::sim::Host;
use log::{GroupId, Term};

use super::{ANSWERED, ThreeReplicas, three_replicas};
use crate::machine::End;
use crate::trace::say;
use crate::world::World;

/// How long somebody may take to vote, and a rival to be elected after that.
const PATIENCE: Duration = Duration::from_secs(4);

/// The scheme.
pub(crate) struct DividedVotes {
    group: GroupId,
    voter: usize,
    rivals: [usize; 2],
    // The last term before.
    term: Term,
    scene: Scene,
    pub(super) until: Nanos,
}

enum Scene {
    /// Nobody leads, the two rivals do not hear each other.
    Vacant,
    /// One has the vote, and is not heard by the voter any more.
    Voted { rival: usize },
    /// The voter is a new process; the other rival may ask it.
    Asked { other: usize, term: Term },
}

/// Begins to divide the votes of a shard's replicas, if three of them live.
pub(super) fn begin(world: &mut World) -> Option<DividedVotes> {
    let Some(three) = three_replicas(world, &world.workload.tables) else { return None };
    let ThreeReplicas { group, leader: voter, others: rivals } = three;
    say!("the votes of {rivals:?} and {voter} in group {group} are divided");
    world.repair(&[voter, rivals[0], rivals[1]]);
    let [one, other] = rivals.map(Host);
    world.net.cut(one, other);
    world.net.cut(other, one);
    let term = world.elections.of(group, voter).0;
    world.restart(voter, End::Killed);
    let until = world.now().after(PATIENCE);
    Some(DividedVotes { group, voter, rivals, term, scene: Scene::Vacant, until })
}

pub(super) fn step(world: &mut World, mut votes: DividedVotes) -> Option<DividedVotes> {
    let now = world.now();
    let of = |nth: usize| world.elections.of(votes.group, nth);
    match votes.scene {
        Scene::Vacant => {
            let voted = of(votes.voter).0;
            let rival = votes.rivals.into_iter().find(|rival| of(*rival).0 == voted);
            if voted > votes.term
                && let Some(rival) = rival
            {
                say!("node {} has voted for {rival} in term {voted}", votes.voter);
                world.net.cut(Host(rival), Host(votes.voter));
                (votes.scene, votes.until) = (Scene::Voted { rival }, now.after(ANSWERED));
                votes.term = voted;
            } else if now >= votes.until || voted > votes.term {
                // Nobody stood, or the voter itself did.
                return None;
            }
        }
        Scene::Voted { rival } if now >= votes.until => {
            world.restart(votes.voter, End::Killed);
            let other = if rival == votes.rivals[0] { votes.rivals[1] } else { votes.rivals[0] };
            let term = votes.term;
            (votes.scene, votes.until) = (Scene::Asked { other, term }, now.after(Duration::from_secs(1)));
        }
        Scene::Asked { other, term } if now >= votes.until || of(other) == (term, true) => return None,
        Scene::Voted { .. } | Scene::Asked { .. } => {}
    }
    Some(votes)
}
