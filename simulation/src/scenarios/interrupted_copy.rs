//! A replica is copied to a server that had none, and one of the two processes ends during the copy, up to three times.
//! The next copy continues with the rows that are there, from another moment and perhaps from another leader.

use std::time::Duration;

use cluster::{DesiredShards, GroupId, ServerId, ShardPlaces, TableChange, TableConfig, places_of};
use io::Nanos;
use io::sim::{Host, NetworkConditions};

use crate::machine::End;
use crate::trace::trace_line;
use crate::world::World;

/// How long the scenario may take.
const SCENARIO_TIMEOUT: Duration = Duration::from_secs(12);
/// Message delays with which a copy of some rows takes a while.
const SLOW_DELAY: Duration = Duration::from_millis(40);

/// The state of the scenario.
pub(crate) struct InterruptedCopy {
    table: String,
    group: GroupId,
    // The target of the copy.
    to: (usize, ServerId),
    // False while the target still has to lose its older replica.
    is_placed: bool,
    // The number of interruptions to come.
    interruptions_left: u64,
    rows_before: u64,
    pub(super) until: Nanos,
}

/// A shard of a table and its leader.
struct LedShard {
    leader: usize,
    config: TableConfig,
    at: usize,
}

impl LedShard {
    fn has(&self, server: ServerId) -> bool {
        let shard = &self.config.shards[self.at];
        shard.replicas.iter().chain(&shard.leaving).any(|replica| replica.server == server)
    }
}

/// Begins to add a replica to a shard; if every machine has one, one is removed before.
pub(super) fn begin(world: &mut World) -> Option<InterruptedCopy> {
    let tables = &world.workload.tables;
    let table = tables[world.random.below(tables.len() as u64) as usize].clone();
    let led = led_shard(world, &table, None)?;
    let servers: Vec<(usize, ServerId)> = (0..world.machines.len())
        .filter(|nth| *nth != led.leader && !world.net.is_stalled(Host(*nth)))
        .filter_map(|nth| Some((nth, world.machines[nth].node()?.identity().server)))
        .collect();
    let without = servers.iter().find(|(_, server)| !led.has(*server));
    let is_only = |server: ServerId| {
        let replicas = &led.config.shards[led.at].replicas;
        replicas.iter().all(|replica| replica.server == server || !replica.voting)
    };
    let other = servers.iter().rfind(|(_, server)| !is_only(*server));
    let to = without.or(other).copied()?;
    let group = led.config.shards[led.at].group;
    trace_line!("group {group} is copied to node {}, with interruptions", to.0);
    world.repair(&[led.leader, to.0]);
    world.net.set_conditions(NetworkConditions {
        delay_max: SLOW_DELAY,
        unreachable_after: Duration::from_secs(5),
        ..NetworkConditions::default()
    });
    let is_placed = !led.has(to.1);
    let mut places = places_of(&led.config.shards);
    let place = &mut places[led.at];
    match is_placed {
        true => place.replicas.push((to.1, true)),
        false => place.replicas.retain(|(server, _)| *server != to.1),
    }
    if let (false, Some((first, _))) = (is_placed, place.replicas.first())
        && place.primary == to.1
    {
        place.primary = *first;
    }
    place_replicas(world, &led, places);
    let until = world.now().after(SCENARIO_TIMEOUT);
    let interruptions_left = 1 + world.random.below(3);
    let halt = InterruptedCopy { table, group, to, is_placed, interruptions_left, rows_before: 0, until };
    Some(halt)
}

/// A shard with some rows and a leader: that of `group`, if given.
fn led_shard(world: &World, table: &str, group: Option<GroupId>) -> Option<LedShard> {
    (0..world.machines.len()).filter(|nth| !world.net.is_stalled(Host(*nth))).find_map(|leader| {
        let catalog = world.machines[leader].node()?.catalog();
        let handle = catalog.table("test", table)?;
        let at = handle.shards().iter().position(|shard| {
            let is_it = group.is_none_or(|group| group == shard.group());
            is_it && shard.local().is_some_and(|near| near.is_leader() && near.count() > 1)
        })?;
        Some(LedShard { leader, config: handle.config.clone(), at })
    })
}

fn place_replicas(world: &World, led: &LedShard, places: Vec<ShardPlaces>) {
    let change = TableChange { shards: Some(DesiredShards::Named(places)), ..TableChange::default() };
    let id = led.config.id;
    world.ask_node(led.leader, "place", move |node| {
        if let Err(error) = node.resharder().change_table(id, &change) {
            tracing::info!("the replicas stay: {error}");
        }
    });
}

/// Adds the replica again once the older one is removed.
fn place_again(world: &World, halt: &mut InterruptedCopy) {
    let Some(led) = led_shard(world, &halt.table, Some(halt.group)) else { return };
    if !led.has(halt.to.1) {
        let mut places = places_of(&led.config.shards);
        places[led.at].replicas.push((halt.to.1, true));
        place_replicas(world, &led, places);
        halt.is_placed = true;
    }
}

pub(super) fn step(world: &mut World, mut halt: InterruptedCopy) -> Option<InterruptedCopy> {
    if !halt.is_placed {
        place_again(world, &mut halt);
    }
    let copies = world.machines[halt.to.0].node().map(|node| node.copies().under_way()).unwrap_or_default();
    let of_group = copies.into_iter().find(|(group, _)| *group == halt.group);
    if let Some((_, getting)) = of_group
        && getting.rows != halt.rows_before
    {
        halt.rows_before = getting.rows;
        if getting.rows > 0 && getting.rows < getting.rows_total && world.random.one_in(2) {
            interrupt(world, &mut halt, getting.source);
        }
    }
    (world.now() < halt.until && halt.interruptions_left > 0).then_some(halt)
}

fn interrupt(world: &mut World, halt: &mut InterruptedCopy, source: Option<ServerId>) {
    let is_source = |nth: &usize| {
        source.is_some() && world.machines[*nth].node().map(|node| node.identity().server) == source
    };
    let source = (0..world.machines.len()).find(is_source);
    let ends = match world.random.one_in(3) {
        true => source.unwrap_or(halt.to.0),
        false => halt.to.0,
    };
    if ends == halt.to.0 && world.random.one_in(2) {
        // Make the rows of the copy so far durable, while it continues; it may be interrupted after that.
        return world.machines[ends].flush_engine(&world.tasks);
    }
    let loses_power = world.fault_plan.loses_power && world.random.one_in(2);
    trace_line!("the copy of group {} is interrupted after {} rows", halt.group, halt.rows_before);
    world.copies_interrupted += 1;
    halt.interruptions_left -= 1;
    halt.rows_before = 0;
    world.restart(ends, if loses_power { End::Power } else { End::Killed });
}
