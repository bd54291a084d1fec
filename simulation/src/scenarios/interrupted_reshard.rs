//! A server reshards a table and ends at the moment when another server has the new layout. It restarts with the older
//! state of its engine, isolated for a while. Writes that it accepts for the old shards must not be lost for the new ones.

use std::time::Duration;

use cluster::{GroupId, TableChange};
use io::Nanos;
use io::sim::Host;

use crate::machine::End;
use crate::trace::trace_line;
use crate::world::World;
use crate::world::desired_shards;

/// How long the reshard may take.
const RESHARD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server is isolated.
const ISOLATION: Duration = Duration::from_secs(4);

/// The state of the scenario.
pub(crate) struct InterruptedReshard {
    resharder: usize,
    table: String,
    old: Vec<GroupId>,
    is_isolated: bool,
    pub(super) until: Nanos,
}

/// Begins to reshard a table if one server leads all of its shards.
pub(super) fn begin(world: &mut World) -> Option<InterruptedReshard> {
    let leads = |nth: usize, table: &String| {
        let catalog = world.machines[nth].node()?.catalog();
        let shards = catalog.table("test", table)?.shards();
        let leads_all = shards.iter().all(|shard| shard.local().is_some_and(|near| near.is_leader()));
        let is_well = leads_all && !world.net.is_stalled(Host(nth));
        is_well.then(|| shards.iter().map(|shard| shard.group()).collect::<Vec<_>>())
    };
    let tables = &world.workload.tables;
    let table = tables[world.random.below(tables.len() as u64) as usize].clone();
    let found = (0..world.machines.len()).find_map(|nth| Some((nth, leads(nth, &table)?)));
    let (resharder, old) = found?;
    let shards = if old.len() > 2 { 1 } else { old.len() + 1 };
    let replicas = 1 + world.random.below(3) as usize;
    trace_line!("node {resharder} reshards {table} into {shards}, and ends when another node has the layout");
    world.repair(&[resharder]);
    let change = TableChange { shards: Some(desired_shards(shards, replicas)), ..TableChange::default() };
    let name = table.clone();
    world.ask_node(resharder, "reshard", move |node| {
        let Some(id) = node.catalog().table("test", &name).map(|table| table.config.id) else { return };
        if let Err(error) = node.resharder().change_table(id, &change) {
            tracing::info!("the table is not resharded: {error}");
        }
    });
    let until = world.now().after(RESHARD_TIMEOUT);
    Some(InterruptedReshard { resharder, table, old, is_isolated: false, until })
}

pub(super) fn step(world: &mut World, mut reshard: InterruptedReshard) -> Option<InterruptedReshard> {
    let now = world.now();
    if !reshard.is_isolated && is_resharded(world, &reshard) {
        let how = if world.fault_plan.loses_power { End::Power } else { End::Killed };
        world.isolate(reshard.resharder, None);
        world.restart(reshard.resharder, how);
        (reshard.is_isolated, reshard.until) = (true, now.after(ISOLATION));
    }
    (now < reshard.until).then_some(reshard)
}

/// Whether any node has the new layout.
fn is_resharded(world: &World, reshard: &InterruptedReshard) -> bool {
    world.machines.iter().filter_map(|machine| machine.node()).any(|node| {
        let catalog = node.catalog();
        let table = catalog.table("test", &reshard.table);
        table.is_some_and(|table| table.shards().iter().all(|shard| !reshard.old.contains(&shard.group())))
    })
}
