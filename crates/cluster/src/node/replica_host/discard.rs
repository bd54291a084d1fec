//! Closes replicas that the catalog no longer places here, and deletes their rows.
//!
//! Rows that belong to another shard of this node now are kept. The entries that the closed replica applied must then be
//! durable in the engine before its log is deleted, since they cannot be replayed after that.

use std::sync::Arc;
use std::time::Duration;

use engine::Batch;
use io::task;
use log::GroupId;
use shard::Shard;
use storage::TableId;
use uuid::Uuid;

use super::super::tombstone::{End, Removed};
use super::ReplicaHost;
use crate::catalog::Catalog;
use crate::config::{CATALOG_GROUP, CATALOG_TABLE};
use crate::error::AdminError;

/// How long superseded groups may take to finish their writes before that is tried again.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

impl ReplicaHost {
    /// Discards the replicas that `catalog` no longer places here. A replica that no catalog has named since the start is
    /// kept until the catalog has caught up: a version that this node acted on before the restart may name it.
    pub(in crate::node) fn discard_strays(&self, catalog: &Catalog) -> Result<(), AdminError> {
        let placed = |table: TableId, group: GroupId| {
            let (config, server) = (&catalog.table_by_id(table)?.config, self.own);
            if let Some(old) = config.history.sealed.iter().find(|old| old.group == group) {
                // Servers whose new replicas wait for the sealed group need its rows; its replicas on the other servers are
                // part of its quorum.
                return Some(old.replica_on(server).is_some());
            }
            let shard = config.shards.iter().find(|shard| shard.group == group)?;
            Some(shard.replica_on(server).is_some())
        };
        let strays: Vec<(GroupId, TableId, bool)> = {
            let open_replicas = self.local.lock();
            let knows_all = self.restart.is_caught_up();
            let strays = open_replicas.iter().filter_map(|(group, open)| match placed(open.table, *group) {
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
        for (group, table, has_other_replicas) in strays {
            self.discard(catalog, table, group, has_other_replicas)?;
        }
        Ok(())
    }

    /// Closes a replica permanently and deletes its rows, except rows that belong to another shard of this node now.
    /// `has_other_replicas`: the catalog has the group on other servers.
    fn discard(
        &self,
        catalog: &Catalog,
        table: TableId,
        group: GroupId,
        has_other_replicas: bool,
    ) -> Result<(), AdminError> {
        let open = self.local.lock().remove(&group);
        if let Some(open) = &open {
            open.gate.close();
            open.shard.retire();
            // Readers with an older handle look up the shard again.
            self.replicas.mark_recovering(group);
        }
        let is_written =
            self.tombstones.write(group, if has_other_replicas { End::Left } else { End::Closed })?;
        io::failpoint("table_drop.ended");
        self.replicas.forget(group);
        self.leadership.forget(group);
        if !is_written {
            self.tombstones.add(group, Removed { table, open });
            return Ok(());
        }
        self.leftovers.forget_rows(catalog, table, group, open.as_ref())
    }

    /// Ends the writes of `strays` whose table has other shards now, and flushes the entries that they applied. The rows
    /// of all other strays are deleted, so they need no flush. Each stray comes with its table, and with whether the catalog
    /// has its group on other servers.
    fn flush_superseded(
        &self,
        strays: &[(GroupId, TableId, bool)],
        catalog: &Catalog,
    ) -> Result<(), AdminError> {
        let superseded: Vec<Arc<Shard>> = {
            let open_replicas = self.local.lock();
            let is_superseded = |(_, table, has_other_replicas): &&(GroupId, TableId, bool)| {
                !has_other_replicas && catalog.table_by_id(*table).is_some()
            };
            let open = strays.iter().filter(is_superseded).filter_map(|(group, ..)| open_replicas.get(group));
            // The catalog keeps a sealed group until its rows are durable in the engines: decision 0024.
            let open = open.filter(|open| !open.shard.seal_state().is_sealed());
            open.map(|open| Arc::clone(&open.shard)).collect()
        };
        if superseded.is_empty() {
            return Ok(());
        }
        superseded.iter().for_each(|shard| shard.retire());
        let deadline = task::now() + WRITE_TIMEOUT;
        for shard in &superseded {
            // A sync that fails does not matter: only a leader can have acknowledged a write that no other replica has. A
            // sync that waits too long for the disks of other servers ends this attempt: the group is kept until the next
            // one, and the other work of the node goes on.
            let synced = shard.sync().wait_for(deadline.saturating_duration_since(task::now()));
            drop(synced.map_err(|_| AdminError::Unfinished(shard.group()))?);
        }
        Ok(self.replicas.engine().flush()?)
    }

    /// Discards the replica of a group from which its leader has removed it. Its rows are deleted later: the catalog may still
    /// name it here, and another replica of the same rows may follow.
    pub(in crate::node) fn discard_removed(
        &self,
        catalog: &Catalog,
        table: TableId,
        group: GroupId,
    ) -> Result<(), AdminError> {
        self.discard(catalog, table, group, true)?;
        self.leftovers.add(table);
        Ok(())
    }

    /// Deletes the rows of replicas that left their groups, once `catalog` no longer names them here.
    pub(in crate::node) fn clear_leftovers(&self, catalog: &Catalog) -> Result<(), AdminError> {
        self.leftovers.clear(catalog)
    }

    /// The groups of removed replicas whose tombstones are to be tried again now.
    pub(in crate::node) fn due_tombstones(&self) -> Vec<GroupId> {
        self.tombstones.due()
    }

    /// Deletes the data of removed replicas whose tombstones have become durable since.
    pub(in crate::node) fn delete_tombstoned(
        &self,
        catalog: &Catalog,
        groups: &[GroupId],
    ) -> Result<(), AdminError> {
        let deleted: Vec<_> = groups.iter().map(|group| self.delete_if_tombstoned(catalog, *group)).collect();
        self.leftovers.clear(catalog)?;
        deleted.into_iter().collect()
    }

    fn delete_if_tombstoned(&self, catalog: &Catalog, group: GroupId) -> Result<(), AdminError> {
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

    /// Deletes the remains of groups and tables that the catalog does not place here. False if some remain, because their
    /// tombstones cannot be written while the disk is full.
    pub(in crate::node) fn sweep(&self) -> Result<bool, AdminError> {
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

    /// Leaves a group that has data in the engine and that the catalog does not place here. Whether its tombstone is
    /// durable.
    ///
    /// The group is not opened for that: if the log did not know the group, opening it would create a group of one member
    /// that leads.
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
