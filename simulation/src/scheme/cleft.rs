//! A table is divided, and the server that did so ends the moment another has heard of it: it starts again
//! with what its engine knew before, and nobody can tell it better for a while. Writes that it takes for the
//! old shards must not be lost to the new ones.

use std::time::Duration;

use cluster::{GroupId, TableChange};
use io::Nanos;
use io::sim::Host;

use super::Scheme;
use crate::machine::End;
use crate::storm::wanted;
use crate::trace::say;
use crate::world::World;

/// How long the division may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the server is left alone.
const ALONE: Duration = Duration::from_secs(4);

/// The scheme.
pub(crate) struct Cleft {
    divider: usize,
    table: String,
    old: Vec<GroupId>,
    is_alone: bool,
    pub(super) until: Nanos,
}

impl World {
    /// Begins to divide a table where somebody leads all of it.
    pub(crate) fn cleave(&mut self) {
        let leads = |nth: usize, table: &String| {
            let catalog = self.machines[nth].node()?.catalog();
            let shards = catalog.table("test", table)?.shards();
            let leads_all = shards.iter().all(|shard| shard.near().is_some_and(|near| near.is_leader()));
            let is_well = leads_all && !self.net.is_stalled(Host(nth));
            is_well.then(|| shards.iter().map(|shard| shard.group()).collect::<Vec<_>>())
        };
        let tables = &self.workload.tables;
        let table = tables[self.random.below(tables.len() as u64) as usize].clone();
        let found = (0..self.machines.len()).find_map(|nth| Some((nth, leads(nth, &table)?)));
        let Some((divider, old)) = found else { return };
        let shards = if old.len() > 2 { 1 } else { old.len() + 1 };
        let replicas = 1 + self.random.below(3) as usize;
        say!("node {divider} divides {table} into {shards}, and ends when that is heard of");
        self.clear_up(&[divider]);
        let change = TableChange { shards: Some(wanted(shards, replicas)), ..TableChange::default() };
        let name = table.clone();
        self.ask_node(divider, "divide", move |node| {
            let Some(id) = node.catalog().table("test", &name).map(|table| table.config.id) else { return };
            if let Err(error) = node.change_table(id, &change) {
                tracing::info!("the table is not divided: {error}");
            }
        });
        let until = self.now().after(PATIENCE);
        self.scheme = Some(Scheme::Cleft(Cleft { divider, table, old, is_alone: false, until }));
    }

    pub(super) fn go_on_with_cleft(&mut self, mut cleft: Cleft) -> Option<Cleft> {
        let now = self.now();
        if !cleft.is_alone && self.is_divided(&cleft) {
            let how = if self.climate.loses_power { End::Power } else { End::Killed };
            self.isolate(cleft.divider, None);
            self.bounce(cleft.divider, how);
            (cleft.is_alone, cleft.until) = (true, now.after(ALONE));
        }
        (now < cleft.until).then_some(cleft)
    }

    /// Whether any node has heard that the table has other shards now.
    fn is_divided(&self, cleft: &Cleft) -> bool {
        self.machines.iter().filter_map(|machine| machine.node()).any(|node| {
            let catalog = node.catalog();
            let table = catalog.table("test", &cleft.table);
            table.is_some_and(|table| table.shards().iter().all(|shard| !cleft.old.contains(&shard.group())))
        })
    }
}
