//! What goes wrong in a certain order, at the moments at which it hurts most: chance alone hardly finds it.

use std::time::Duration;

use cluster::ServerId;
use io::Nanos;
use io::sim::{Host, Weather};
use log::{GroupId, Term};

use crate::machine::{End, PACES};
use crate::trace::say;
use crate::world::World;

/// How long somebody may take to vote, and a rival to be elected after that.
const PATIENCE: Duration = Duration::from_secs(4);
/// After this an answer has left, and what was promised in it is on the disk.
const ANSWERED: Duration = Duration::from_millis(30);

/// One who votes for one of two that do not hear each other, is ended, and asked by the other.
///
/// A vote that was not written down makes two leaders of one term.
pub(crate) struct Votes {
    group: GroupId,
    voter: usize,
    rivals: [usize; 2],
    // The last term before.
    term: Term,
    scene: Scene,
    until: Nanos,
}

enum Scene {
    /// Nobody leads, the two rivals do not hear each other.
    Vacant,
    /// One has the vote, and is not heard by the voter any more.
    Voted { rival: usize },
    /// The voter is a new process; the other rival may ask it.
    Asked { other: usize, term: Term },
}

impl World {
    /// Whether a scheme is under way: nothing else goes wrong meanwhile.
    pub(crate) fn schemes(&self) -> bool {
        self.votes.is_some()
    }

    /// When the scheme under way goes on by itself.
    pub(crate) fn scheme_at(&self) -> Option<Nanos> {
        self.votes.as_ref().map(|votes| votes.until)
    }

    /// Begins to divide the votes of a shard's replicas, if three of them live.
    pub(crate) fn divide_votes(&mut self) {
        let Some((group, voter, rivals)) = self.led_by_one_of_three() else { return };
        say!("the votes of {rivals:?} and {voter} in group {group} are divided");
        self.net.heal_cuts();
        self.net.set_weather(Weather { unreachable_after: Duration::from_secs(5), ..Weather::default() });
        for nth in [voter, rivals[0], rivals[1]] {
            self.machines[nth].plan.disk.set_pace(PACES[0]);
        }
        let [one, other] = rivals.map(Host);
        self.net.cut(one, other);
        self.net.cut(other, one);
        let term = self.elections.of(group, voter).0;
        self.bounce(voter);
        let until = self.now().after(PATIENCE);
        self.votes = Some(Votes { group, voter, rivals, term, scene: Scene::Vacant, until });
    }

    /// A group of three whose machines run, and who leads it.
    fn led_by_one_of_three(&self) -> Option<(GroupId, usize, [usize; 2])> {
        let place = |id: ServerId| {
            let is_it = |nth: &usize| {
                self.machines[*nth].node().is_some_and(|node| node.identity().server == id)
                    && !self.net.is_stalled(Host(*nth))
            };
            (0..self.machines.len()).find(is_it)
        };
        for (nth, machine) in self.machines.iter().enumerate() {
            let Some(node) = machine.node() else { continue };
            let catalog = node.catalog();
            let tables = self.workload.tables.iter().filter_map(|table| catalog.table("test", table));
            for handle in tables.flat_map(|table| table.shards()) {
                let leads = handle.near().is_some_and(|near| near.is_leader());
                let places: Option<Vec<usize>> =
                    handle.replicas().iter().map(|replica| place(replica.server)).collect();
                if let (true, Some(places)) = (leads, places)
                    && let [one, other] =
                        places.iter().copied().filter(|at| *at != nth).collect::<Vec<_>>()[..]
                    && places.len() == 3
                {
                    return Some((handle.group(), nth, [one, other]));
                }
            }
        }
        None
    }

    /// Ends a process and starts the next one at once.
    pub(crate) fn bounce(&mut self, nth: usize) {
        say!("node {nth} is killed and started at once");
        self.machines[nth].end(End::Killed, &self.tasks, &mut self.net);
        self.machines[nth].start(&self.tasks, &mut self.net);
    }

    /// Looks whether the scheme that is under way can go on.
    pub(crate) fn go_on_with_scheme(&mut self) {
        let Some(mut votes) = self.votes.take() else { return };
        let now = self.now();
        let of = |nth: usize| self.elections.of(votes.group, nth);
        match votes.scene {
            Scene::Vacant => {
                let voted = of(votes.voter).0;
                let rival = votes.rivals.into_iter().find(|rival| of(*rival).0 == voted);
                if voted > votes.term
                    && let Some(rival) = rival
                {
                    say!("node {} has voted for {rival} in term {voted}", votes.voter);
                    self.net.cut(Host(rival), Host(votes.voter));
                    (votes.scene, votes.until) = (Scene::Voted { rival }, now.after(ANSWERED));
                    votes.term = voted;
                } else if now >= votes.until || voted > votes.term {
                    // Nobody stood, or the voter itself did.
                    return self.net.heal_cuts();
                }
            }
            Scene::Voted { rival } if now >= votes.until => {
                self.bounce(votes.voter);
                let other = if rival == votes.rivals[0] { votes.rivals[1] } else { votes.rivals[0] };
                let term = votes.term;
                (votes.scene, votes.until) =
                    (Scene::Asked { other, term }, now.after(Duration::from_secs(1)));
            }
            Scene::Asked { other, term } if now >= votes.until || of(other) == (term, true) => {
                return self.net.heal_cuts();
            }
            Scene::Voted { .. } | Scene::Asked { .. } => {}
        }
        self.votes = Some(votes);
    }
}
