//! A soft write that two of three have applied, and that those two who go on do not have: one never got it,
//! the other lost it with its power. The third must give up the rows that it built on it.

use std::time::Duration;

use io::Nanos;

use super::{Scheme, Three};
use crate::history::{Document, Kind};
use crate::machine::{End, PACES};
use crate::trace::say;
use crate::world::{SOFT, World};

/// How long the write may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// After this the third has heard that two have it; a slow disk may not have it yet.
const SPREAD: Duration = Duration::from_millis(110);
/// How long the other two are left with each other: some elections.
const WITHOUT: Duration = Duration::from_secs(5);
/// Documents from here on are written once: nothing that comes later hides what became of them.
const ONCE: u64 = 1_000_000;

/// The scheme.
pub(crate) struct Lapse {
    leader: usize,
    keeper: usize,
    scene: Scene,
    pub(super) until: Nanos,
}

enum Scene {
    /// The write is asked for.
    Asked,
    /// It is done, and two hear of it.
    Done,
    /// Those who do not have it elect one of them.
    Without,
}

impl World {
    /// Writes something that will be lost, to a soft shard of three replicas.
    pub(crate) fn lapse(&mut self) {
        let Some(three) = self.led_by_one_of_three(&[SOFT.to_owned()]) else { return };
        let Three { group, leader, others: [mut keeper, mut without] } = three;
        if self.random.one_in(2) {
            (keeper, without) = (without, keeper);
        }
        let Some(document) = self.document_in(leader, group) else { return };
        let Some(hand) = self.hand.filter(|hand| self.clients[*hand].is_idle()) else { return };
        say!("{document:?} is for nodes {leader} and {keeper}, and will be lost by {leader}");
        self.clear_up(&[leader, keeper, without]);
        self.machines[leader].plan.disk.set_pace(PACES[3]);
        self.isolate(without, None);
        let op = self.history.ask(document, Kind::Put);
        let now = self.now();
        self.clients[hand].send(op, now, &self.machines[leader], &self.tasks);
        let until = now.after(PATIENCE);
        self.scheme = Some(Scheme::Lapse(Lapse { leader, keeper, scene: Scene::Asked, until }));
    }

    /// A document that nobody has asked for and that belongs to `group`.
    fn document_in(&self, leader: usize, group: log::GroupId) -> Option<Document> {
        let catalog = self.machines[leader].node()?.catalog();
        let table = catalog.table("test", SOFT)?;
        let first = ONCE + self.history.records().len() as u64;
        let documents = (first..first + 100).map(|number| Document { table: SOFT.to_owned(), number });
        documents.into_iter().find(|document| table.shard(&document.key()).group() == group)
    }

    pub(super) fn go_on_with_lapse(&mut self, mut lapse: Lapse) -> Option<Lapse> {
        let now = self.now();
        let is_answered = self.hand.is_some_and(|hand| self.clients[hand].is_idle());
        match lapse.scene {
            Scene::Asked if is_answered => {
                (lapse.scene, lapse.until) = (Scene::Done, now.after(SPREAD));
                // Now and then its engine would have it, and waits for the log, which is slow.
                if self.random.one_in(3) {
                    self.machines[lapse.leader].flush_engine(&self.tasks);
                }
            }
            Scene::Done if now >= lapse.until => {
                self.net.heal_cuts();
                self.isolate(lapse.keeper, None);
                self.bounce(lapse.leader, End::Power);
                self.machines[lapse.leader].plan.disk.set_pace(PACES[0]);
                (lapse.scene, lapse.until) = (Scene::Without, now.after(WITHOUT));
            }
            Scene::Asked | Scene::Without if now >= lapse.until => return None,
            Scene::Asked | Scene::Done | Scene::Without => {}
        }
        Some(lapse)
    }
}
