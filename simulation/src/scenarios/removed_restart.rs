//! A replica is removed while one of its group hears nothing of it, and its server starts again, with what
//! its engine knew before, where only that one reaches it. Were it a member again under its old name, without
//! the log that it had, the two would be a majority of a group that goes on elsewhere.

use std::time::Duration;

use cluster::{ServerId, ShardPlaces, ShardsWanted, TableChange, places_of};
use io::Nanos;
use log::GroupId;

use super::{ThreeReplicas, three_replicas};
use crate::machine::End;
use crate::trace::say;
use crate::world::World;

/// How long the removal may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this whoever was removed has said its last word.
const FAREWELL: Duration = Duration::from_millis(200);
/// How long the two are left with each other: some elections.
const TOGETHER: Duration = Duration::from_secs(7);

/// The scheme.
pub(crate) struct RemovedRestart {
    group: GroupId,
    table: String,
    // Who keeps the only replica.
    leader: (usize, ServerId),
    away: usize,
    gone: usize,
    scene: Scene,
    pub(super) until: Nanos,
}

enum Scene {
    /// The others are being removed.
    Shrinking,
    /// They are removed.
    Gone,
    /// One of them has started again and hears only the one who knows nothing of that.
    Together,
}

/// Begins to leave a shard of three replicas with the one that leads it.
pub(super) fn begin(world: &mut World) -> Option<RemovedRestart> {
    let Some(three) = three_replicas(world, &world.workload.tables) else { return None };
    let ThreeReplicas { group, leader, others: [mut away, mut gone] } = three;
    if world.random.one_in(2) {
        (away, gone) = (gone, away);
    }
    let Some(node) = world.machines[leader].node() else { return None };
    let (own, catalog) = (node.identity().server, node.catalog());
    let of = |table: &&String| {
        let table = catalog.table("test", table);
        table.is_some_and(|table| table.shards().iter().any(|handle| handle.group() == group))
    };
    let Some(name) = world.workload.tables.iter().find(of).cloned() else { return None };
    let Some(table) = catalog.table("test", &name) else { return None };
    let (id, shards) = (table.config.id, &table.config.shards);
    if shards.iter().any(|shard| !shard.leaving.is_empty()) {
        return None;
    }
    say!("node {leader} keeps group {group}; {away} does not hear of it, {gone} forgets it");
    let mut places = places_of(shards);
    for (shard, place) in shards.iter().zip(&mut places).filter(|(shard, _)| shard.group == group) {
        *place = ShardPlaces { primary: own, replicas: vec![(own, true)] };
        tracing::trace!("group {group} was {:?}", shard.replicas);
    }
    let change = TableChange { shards: Some(ShardsWanted::Named(places)), ..TableChange::default() };
    world.repair(&[leader, away, gone]);
    // What it will know when it starts again.
    world.machines[gone].flush_engine(&world.tasks);
    world.isolate(away, None);
    world.ask_node(leader, "shrink", move |node| {
        if let Err(error) = node.change_table(id, &change) {
            tracing::info!("the replicas stay: {error}");
        }
    });
    let until = world.now().after(PATIENCE);
    let (leader, scene) = ((leader, own), Scene::Shrinking);
    Some(RemovedRestart { group, table: name, leader, away, gone, scene, until })
}

pub(super) fn step(world: &mut World, mut reborn: RemovedRestart) -> Option<RemovedRestart> {
    let now = world.now();
    match reborn.scene {
        Scene::Shrinking if is_left_alone(world, &reborn) => {
            (reborn.scene, reborn.until) = (Scene::Gone, now.after(FAREWELL));
        }
        Scene::Gone if now >= reborn.until => {
            let how = if world.fault_plan.loses_power { End::Power } else { End::Killed };
            world.isolate(reborn.gone, Some(reborn.away));
            world.net.mend(io::sim::Host(reborn.gone), io::sim::Host(reborn.away));
            world.net.mend(io::sim::Host(reborn.away), io::sim::Host(reborn.gone));
            world.restart(reborn.gone, how);
            (reborn.scene, reborn.until) = (Scene::Together, now.after(TOGETHER));
        }
        Scene::Shrinking | Scene::Together if now >= reborn.until => return None,
        Scene::Shrinking | Scene::Gone | Scene::Together => {}
    }
    Some(reborn)
}

/// Whether the leader and the one who goes know that only the leader's replica is left.
fn is_left_alone(world: &World, reborn: &RemovedRestart) -> bool {
    let (leader, server) = reborn.leader;
    let knows = |nth: usize| {
        let catalog = world.machines[nth].node()?.catalog();
        let table = catalog.table("test", &reborn.table)?;
        let shard = table.config.shards.iter().find(|shard| shard.group == reborn.group)?;
        let is_only = shard.replicas.iter().all(|replica| replica.server == server);
        Some(is_only && shard.leaving.is_empty())
    };
    knows(leader) == Some(true) && knows(reborn.gone) == Some(true)
}
