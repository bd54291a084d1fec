//! A soft write that two of three have applied, and that those two who go on do not have: one never got it,
//! the other lost it with its power. The third must give up the rows that it built on it.

use std::time::Duration;

use io::Nanos;

use super::{ThreeReplicas, three_replicas};
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
pub(crate) struct LostSoftWrite {
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

/// Writes something that will be lost, to a soft shard of three replicas.
pub(super) fn begin(world: &mut World) -> Option<LostSoftWrite> {
    let Some(three) = three_replicas(world, &[SOFT.to_owned()]) else { return None };
    let ThreeReplicas { group, leader, others: [mut keeper, mut without] } = three;
    if world.random.one_in(2) {
        (keeper, without) = (without, keeper);
    }
    let Some(document) = document_in(world, leader, group) else { return None };
    let Some(hand) = world.scenario_client.filter(|hand| world.clients[*hand].is_idle()) else { return None };
    say!("{document:?} is for nodes {leader} and {keeper}, and will be lost by {leader}");
    world.repair(&[leader, keeper, without]);
    world.machines[leader].plan.disk.set_pace(PACES[3]);
    world.isolate(without, None);
    let op = world.history.ask(document, Kind::Put);
    let now = world.now();
    world.clients[hand].send(op, now, &world.machines[leader], &world.tasks);
    let until = now.after(PATIENCE);
    Some(LostSoftWrite { leader, keeper, scene: Scene::Asked, until })
}

/// A document that nobody has asked for and that belongs to `group`.
fn document_in(world: &World, leader: usize, group: log::GroupId) -> Option<Document> {
    let catalog = world.machines[leader].node()?.catalog();
    let table = catalog.table("test", SOFT)?;
    let first = ONCE + world.history.records().len() as u64;
    let documents = (first..first + 100).map(|number| Document { table: SOFT.to_owned(), number });
    documents.into_iter().find(|document| table.shard(&document.key()).group() == group)
}

pub(super) fn step(world: &mut World, mut lapse: LostSoftWrite) -> Option<LostSoftWrite> {
    let now = world.now();
    let is_answered = world.scenario_client.is_some_and(|hand| world.clients[hand].is_idle());
    match lapse.scene {
        Scene::Asked if is_answered => {
            (lapse.scene, lapse.until) = (Scene::Done, now.after(SPREAD));
            // Now and then its engine would have it, and waits for the log, which is slow.
            if world.random.one_in(3) {
                world.machines[lapse.leader].flush_engine(&world.tasks);
            }
        }
        Scene::Done if now >= lapse.until => {
            world.net.heal_cuts();
            world.isolate(lapse.keeper, None);
            world.restart(lapse.leader, End::Power);
            world.machines[lapse.leader].plan.disk.set_pace(PACES[0]);
            (lapse.scene, lapse.until) = (Scene::Without, now.after(WITHOUT));
        }
        Scene::Asked | Scene::Without if now >= lapse.until => return None,
        Scene::Asked | Scene::Done | Scene::Without => {}
    }
    Some(lapse)
}
