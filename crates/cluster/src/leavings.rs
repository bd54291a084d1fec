//! Replicas on their way out. Who wants another in their place waits until they have gone. Rows of those that left
//! their groups before the catalog here said that they should are kept until it does, since until then the server may
//! be given another replica of the same rows.

use std::time::{Duration, Instant};

use io::task;
use storage::TableId;

use crate::majority::MAJORITY_PATIENCE;
use crate::node::Core;
use crate::plan::preparation;
use crate::{AdminError, Catalog, ReplicaConfig, ShardHandle, TableChange, TableConfig, TableHandle};

/// Between two looks whether replicas have gone.
const PAUSE: Duration = Duration::from_millis(50);

/// How long somebody waits for replicas of a table to go: as long as for everything that comes before a division, and
/// not for long where nobody leads who could let them go.
struct LeavingPatience<'a> {
    core: &'a Core,
    table: TableId,
    deadline: Instant,
    led_at: Instant,
}

impl<'a> LeavingPatience<'a> {
    /// From now on.
    fn new(core: &'a Core, table: TableId) -> LeavingPatience<'a> {
        let shards = core.catalog().table_by_id(table).map_or(0, |table| table.config.shards.len());
        let now = task::now();
        LeavingPatience { core, table, deadline: now + preparation(shards), led_at: now }
    }

    /// Whether they may be waited for any longer.
    fn is_left(&mut self) -> bool {
        let catalog = self.core.catalog();
        let Some(handle) = catalog.table_by_id(self.table) else { return true };
        let shards = handle.config.shards.iter().zip(handle.shards());
        let leaving: Vec<&ShardHandle> =
            shards.filter(|(config, _)| !config.leaving.is_empty()).map(|(_, shard)| shard).collect();
        if self.core.ask_leaders(&leaving).iter().all(Option::is_some) {
            self.led_at = task::now();
        }
        task::now() < self.deadline.min(self.led_at + MAJORITY_PATIENCE)
    }
}

impl Core {
    /// As [`Core::change_table`]. Another number of shards may need replicas elsewhere first, and a replica can only be
    /// had where the one before has gone; both are waited for while `go_on`, asked now and then, says so, and not for
    /// long.
    pub fn change_table_while(
        &self,
        id: TableId,
        change: &TableChange,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(TableConfig, TableConfig), AdminError> {
        let mut patience = LeavingPatience::new(self, id);
        loop {
            match self.try_to_change_table(id, change, go_on) {
                Err(AdminError::StillLeaving { .. }) if go_on() && patience.is_left() => task::sleep(PAUSE),
                outcome => return outcome,
            }
        }
    }

    /// Takes note that a replica of `table` left.
    pub(crate) fn owe_clearing(&self, table: TableId) {
        task::lock(&self.owing).insert(table);
    }

    /// Removes the rows of replicas that left, where `catalog`, whose replicas are open, lets go of them.
    pub(crate) fn clear_leavings(&self, catalog: &Catalog) -> Result<(), AdminError> {
        // What an old catalog does not place here may be placed here by a later one.
        if !self.past_is_shown.load(std::sync::atomic::Ordering::Acquire) {
            return Ok(());
        }
        let owing: Vec<TableId> = task::lock(&self.owing).iter().copied().collect();
        for table in owing.into_iter().filter(|table| !self.has_departing(*table)) {
            match catalog.table_by_id(table) {
                Some(handle) if !handle.config.lineage.sealed.is_empty() => continue,
                Some(handle) if self.names_one_that_left(handle) => continue,
                Some(_) => self.clear_strangers(catalog, table)?,
                None => {
                    let mut batch = engine::Batch::new();
                    storage::drop_table(&mut batch, table);
                    self.engine().write(batch)?;
                }
            }
            task::lock(&self.owing).remove(&table);
        }
        Ok(())
    }

    /// Whether the catalog still places a replica here that is not open.
    fn names_one_that_left(&self, table: &TableHandle) -> bool {
        let is_own = |replica: &ReplicaConfig| replica.server == self.identity.server;
        let hosted = task::lock(&self.hosted);
        let mut placed =
            table.config.shards.iter().filter(|s| s.replicas.iter().chain(&s.leaving).any(is_own));
        placed.any(|shard| !hosted.contains_key(&shard.group))
    }
}
