//! A table is divided, and the server that did so ends the moment another has heard of it: it starts again
//! with what its engine knew before, and nobody can tell it better for a while. Writes that it takes for the
//! old shards must not be lost to the new ones.

use std::time::Duration;

use cluster::{GroupId, TableChange};
use io::Nanos;
use io::sim::Host;

use crate::machine::End;
use crate::trace::say;
use crate::world::World;
use crate::world::shards_wanted;

/// How long the division may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the server is left alone.
const ALONE: Duration = Duration::from_secs(4);

/// The scheme.
pub(crate) struct InterruptedReshard {
    divider: usize,
    table: String,
    old: Vec<GroupId>,
    is_alone: bool,
    pub(super) until: Nanos,
}

/// Begins to divide a table where somebody leads all of it.
pub(super) fn begin(world: &mut World) -> Option<InterruptedReshard> {
    let leads = |nth: usize, table: &String| {
        let catalog = world.machines[nth].node()?.catalog();
        let shards = catalog.table("test", table)?.shards();
        let leads_all = shards.iter().all(|shard| shard.near().is_some_and(|near| near.is_leader()));
        let is_well = leads_all && !world.net.is_stalled(Host(nth));
        is_well.then(|| shards.iter().map(|shard| shard.group()).collect::<Vec<_>>())
    };
    let tables = &world.workload.tables;
    let table = tables[world.random.below(tables.len() as u64) as usize].clone();
    let found = (0..world.machines.len()).find_map(|nth| Some((nth, leads(nth, &table)?)));
    let Some((divider, old)) = found else { return None };
    let shards = if old.len() > 2 { 1 } else { old.len() + 1 };
    let replicas = 1 + world.random.below(3) as usize;
    say!("node {divider} divides {table} into {shards}, and ends when that is heard of");
    world.repair(&[divider]);
    let change = TableChange { shards: Some(shards_wanted(shards, replicas)), ..TableChange::default() };
    let name = table.clone();
    world.ask_node(divider, "divide", move |node| {
        let Some(id) = node.catalog().table("test", &name).map(|table| table.config.id) else { return };
        if let Err(error) = node.change_table(id, &change) {
            tracing::info!("the table is not divided: {error}");
        }
    });
    let until = world.now().after(PATIENCE);
    Some(InterruptedReshard { divider, table, old, is_alone: false, until })
}

pub(super) fn step(world: &mut World, mut cleft: InterruptedReshard) -> Option<InterruptedReshard> {
    let now = world.now();
    if !cleft.is_alone && is_divided(world, &cleft) {
        let how = if world.fault_plan.loses_power { End::Power } else { End::Killed };
        world.isolate(cleft.divider, None);
        world.restart(cleft.divider, how);
        (cleft.is_alone, cleft.until) = (true, now.after(ALONE));
    }
    (now < cleft.until).then_some(cleft)
}

/// Whether any node has heard that the table has other shards now.
fn is_divided(world: &World, cleft: &InterruptedReshard) -> bool {
    world.machines.iter().filter_map(|machine| machine.node()).any(|node| {
        let catalog = node.catalog();
        let table = catalog.table("test", &cleft.table);
        table.is_some_and(|table| table.shards().iter().all(|shard| !cleft.old.contains(&shard.group())))
    })
}
