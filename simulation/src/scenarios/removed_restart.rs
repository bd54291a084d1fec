//! A replica is removed while one member of its group receives nothing, and its server restarts with the older state of
//! its engine, reachable only for that member. If it became a member again with its old identity and without its log, the
//! two would form a quorum of a group that continues elsewhere.

use std::time::Duration;

use cluster::{DesiredShards, ServerId, ShardPlaces, TableChange, places_of};
use io::Nanos;
use log::GroupId;

use super::{ThreeReplicas, three_replicas};
use crate::machine::End;
use crate::trace::trace_line;
use crate::world::World;

/// How long the removal may take.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// By then the removed replica has sent its last message.
const LAST_MESSAGE: Duration = Duration::from_millis(200);
/// How long the two are alone: some elections.
const TOGETHER: Duration = Duration::from_secs(7);

/// The state of the scenario.
pub(crate) struct RemovedRestart {
    group: GroupId,
    table: String,
    // The server that keeps the only replica.
    leader: (usize, ServerId),
    away: usize,
    removed: usize,
    phase: Phase,
    pub(super) until: Nanos,
}

enum Phase {
    /// The other replicas are being removed.
    Shrinking,
    /// The other replicas are removed.
    Removed,
    /// A removed replica has restarted and reaches only the one that does not know of the removal.
    Together,
}

/// Begins to reduce a shard of three replicas to its leader.
pub(super) fn begin(world: &mut World) -> Option<RemovedRestart> {
    let three = three_replicas(world, &world.workload.tables)?;
    let ThreeReplicas { group, leader, others: [mut away, mut removed] } = three;
    if world.random.one_in(2) {
        (away, removed) = (removed, away);
    }
    let node = world.machines[leader].node()?;
    let (own, catalog) = (node.identity().server, node.catalog());
    let of = |table: &&String| {
        let table = catalog.table("test", table);
        table.is_some_and(|table| table.shards().iter().any(|handle| handle.group() == group))
    };
    let name = world.workload.tables.iter().find(of).cloned()?;
    let table = catalog.table("test", &name)?;
    let (id, shards) = (table.config.id, &table.config.shards);
    if shards.iter().any(|shard| !shard.leaving.is_empty()) {
        return None;
    }
    trace_line!(
        "node {leader} keeps group {group}; {away} does not learn of the removal, {removed} forgets it"
    );
    let mut places = places_of(shards);
    for (shard, place) in shards.iter().zip(&mut places).filter(|(shard, _)| shard.group == group) {
        *place = ShardPlaces { primary: own, replicas: vec![(own, true)] };
        tracing::trace!("group {group} was {:?}", shard.replicas);
    }
    let change = TableChange { shards: Some(DesiredShards::Named(places)), ..TableChange::default() };
    world.repair(&[leader, away, removed]);
    // The state of its engine after the restart.
    world.machines[removed].flush_engine(&world.tasks);
    world.isolate(away, None);
    world.ask_node(leader, "remove replicas", move |node| {
        if let Err(error) = node.resharder().change_table(id, &change) {
            tracing::info!("the replicas stay: {error}");
        }
    });
    let until = world.now().after(REMOVAL_TIMEOUT);
    let (leader, phase) = ((leader, own), Phase::Shrinking);
    Some(RemovedRestart { group, table: name, leader, away, removed, phase, until })
}

pub(super) fn step(world: &mut World, mut restart: RemovedRestart) -> Option<RemovedRestart> {
    let now = world.now();
    match restart.phase {
        Phase::Shrinking if is_reduced(world, &restart) => {
            (restart.phase, restart.until) = (Phase::Removed, now.after(LAST_MESSAGE));
        }
        Phase::Removed if now >= restart.until => {
            let how = if world.fault_plan.loses_power { End::Power } else { End::Killed };
            world.isolate(restart.removed, Some(restart.away));
            world.net.mend(io::sim::Host(restart.removed), io::sim::Host(restart.away));
            world.net.mend(io::sim::Host(restart.away), io::sim::Host(restart.removed));
            world.restart(restart.removed, how);
            (restart.phase, restart.until) = (Phase::Together, now.after(TOGETHER));
        }
        Phase::Shrinking | Phase::Together if now >= restart.until => return None,
        Phase::Shrinking | Phase::Removed | Phase::Together => {}
    }
    Some(restart)
}

/// Whether the leader and the removed server know that only the leader's replica is left.
fn is_reduced(world: &World, restart: &RemovedRestart) -> bool {
    let (leader, server) = restart.leader;
    let knows = |nth: usize| {
        let catalog = world.machines[nth].node()?.catalog();
        let table = catalog.table("test", &restart.table)?;
        let shard = table.config.shards.iter().find(|shard| shard.group == restart.group)?;
        let is_only = shard.replicas.iter().all(|replica| replica.server == server);
        Some(is_only && shard.leaving.is_empty())
    };
    knows(leader) == Some(true) && knows(restart.removed) == Some(true)
}
