//! Closes replicas that the catalog no longer places here and deletes their rows, unless another shard here has them now: then
//! what they applied must be on the disk before their log is deleted, since it cannot be replayed after that.

use std::sync::Arc;
use std::time::Duration;

use engine::Batch;
use io::task;
use log::GroupId;
use shard::Shard;
use storage::TableId;
use uuid::Uuid;

use super::replica_host::ReplicaHost;
use super::tombstone::{End, Removed};
use crate::catalog::Catalog;
use crate::config::{CATALOG_GROUP, CATALOG_TABLE};
use crate::error::AdminError;

/// How long superseded groups may take to finish their writes before that is tried again.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

impl ReplicaHost {
    /// Discards the replicas that `catalog` no longer places here. One that no catalog has named yet may be
    /// named by the next one, while there are some that this node has acted on before it was started.
    pub(super) fn discard_strays(&self, catalog: &Catalog) -> Result<(), AdminError> {
        let placed = |table: TableId, group: GroupId| {
            let (config, server) = (&catalog.table_by_id(table)?.config, self.own);
            if let Some(old) = config.lineage.sealed.iter().find(|old| old.group == group) {
                // Those who wait need it to go on; the others help them to a majority.
                return Some(old.replica_on(server).is_some());
            }
            let shard = config.shards.iter().find(|shard| shard.group == group)?;
            Some(shard.replica_on(server).is_some())
        };
        let strays: Vec<(GroupId, TableId, bool)> = {
            let hosted = self.local.lock();
            let knows_all = self.restart.is_caught_up();
            let strays = hosted.iter().filter_map(|(group, open)| match placed(open.table, *group) {
                Some(true) => None,
                _ if !open.is_named && !knows_all => None,
                known => Some((*group, open.table, known.is_some())),
            });
            strays.collect()
        };
        #[cfg(feature = "mutants")]
        if log::mutant::is_active(log::mutant::Mutant::ServeRemoved) {
            return Ok(());
        }
        self.flush_superseded(&strays, catalog)?;
        for (group, table, lives_elsewhere) in strays {
            self.discard(catalog, table, group, lives_elsewhere)?;
        }
        Ok(())
    }

    /// Closes a replica for good and removes its rows, unless another shard here has them now.
    pub(super) fn discard(
        &self,
        catalog: &Catalog,
        table: TableId,
        group: GroupId,
        lives_elsewhere: bool,
    ) -> Result<(), AdminError> {
        let open = self.local.lock().remove(&group);
        if let Some(open) = &open {
            open.gate.close();
            open.shard.retire();
            // Whoever still has a handle of before looks for the rows again.
            self.replicas.mark_recovering(group);
        }
        let is_written =
            self.tombstones.write(group, if lives_elsewhere { End::Left } else { End::Closed })?;
        self.replicas.forget(group);
        self.leadership.forget(group);
        if !is_written {
            self.tombstones.add(group, Removed { table, open });
            return Ok(());
        }
        self.leftovers.forget_rows(catalog, table, group, open.as_ref())
    }

    /// Ends the writes of those of `strays` whose table has other shards now, and writes down what they
    /// have applied. The others' rows are wanted by nobody. A stray is a group, its table, and whether the
    /// catalog has the group elsewhere.
    fn flush_superseded(
        &self,
        strays: &[(GroupId, TableId, bool)],
        catalog: &Catalog,
    ) -> Result<(), AdminError> {
        let replaced: Vec<Arc<Shard>> = {
            let hosted = self.local.lock();
            let is_replaced = |(_, table, lives_elsewhere): &&(GroupId, TableId, bool)| {
                !lives_elsewhere && catalog.table_by_id(*table).is_some()
            };
            let open = strays.iter().filter(is_replaced).filter_map(|(group, ..)| hosted.get(group));
            // Nobody lets go of sealed groups before that is done: decision 0024.
            let open = open.filter(|open| !open.shard.seal_state().is_sealed());
            open.map(|open| Arc::clone(&open.shard)).collect()
        };
        if replaced.is_empty() {
            return Ok(());
        }
        replaced.iter().for_each(|shard| shard.retire());
        let deadline = task::now() + WRITE_TIMEOUT;
        for shard in &replaced {
            // One that does not lead has acknowledged nothing that it alone has. Others' disks may take for ever: the
            // group is kept until the next attempt, and everything else goes on.
            let synced = shard.sync().wait_for(deadline.saturating_duration_since(task::now()));
            drop(synced.map_err(|_| AdminError::Unfinished(shard.group()))?);
        }
        Ok(self.replicas.engine().flush()?)
    }

    /// Deletes the data of removed replicas whose tombstones have become durable since.
    pub(super) fn forget_removed(&self, catalog: &Catalog, groups: &[GroupId]) -> Result<(), AdminError> {
        let forgotten: Vec<_> = groups.iter().map(|group| self.forget_if_durable(catalog, *group)).collect();
        self.leftovers.clear(catalog)?;
        forgotten.into_iter().collect()
    }

    fn forget_if_durable(&self, catalog: &Catalog, group: GroupId) -> Result<(), AdminError> {
        if !self.tombstones.write(group, End::Left)? {
            return Ok(());
        }
        let Some(removed) = self.tombstones.take(group) else { return Ok(()) };
        let forgotten = self.leftovers.forget_rows(catalog, removed.table, group, removed.open.as_ref());
        if forgotten.is_err() {
            self.tombstones.add(group, removed);
        }
        forgotten
    }

    /// Whether all of it was removed: on a full disk that has to wait.
    pub(super) fn sweep(&self) -> Result<bool, AdminError> {
        let catalog = self.catalog.shown();
        for group in storage::groups_present(&self.replicas.engine().snapshot()?)? {
            if group != CATALOG_GROUP && !self.local.contains(group) && !self.close_unopened(group)? {
                return Ok(false);
            }
        }
        let mut batch = Batch::new();
        for table in storage::tables_present(&self.replicas.engine().snapshot()?)? {
            if table.uuid() == CATALOG_TABLE {
                continue;
            }
            match catalog.table_by_id(table) {
                Some(_) => self.leftovers.clear_table(&catalog, table)?,
                None => storage::drop_table(&mut batch, table),
            }
        }
        self.replicas.engine().write(batch)?;
        Ok(true)
    }

    /// Takes leave of a group that the engine remembers and the catalog does not place here; whether that is written.
    ///
    /// It is not opened for that: of whom the log knows nothing, that would make a group of one, which leads.
    fn close_unopened(&self, group: GroupId) -> Result<bool, AdminError> {
        if !self.tombstones.write(group, End::Left)? {
            return Ok(false);
        }
        let mut batch = Batch::new();
        storage::forget_group(&mut batch, TableId::from_uuid(Uuid::nil()), group);
        self.replicas.engine().write(batch)?;
        Ok(true)
    }
}
