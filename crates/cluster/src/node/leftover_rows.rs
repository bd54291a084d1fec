//! Deletes rows that belong to no replica of this node any more. If a replica leaves its group while the catalog shown
//! here still names it, its rows are kept until the catalog no longer does: this server may be given another replica of
//! the same rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use datum::KeyRange;
use engine::Batch;
use log::GroupId;
use shard::{Replicas, clear_rows};
use storage::{Changes, Direction, RowChange, TableId};

use super::restart_state::RestartState;
use super::tombstone::Tombstones;
use crate::catalog::Catalog;
use crate::config::{ReplicaConfig, ServerId};
use crate::error::AdminError;
use crate::locks::{Rank, RankedGuard, RankedMutex};
use crate::routing::{LocalReplica, LocalReplicas, TableHandle, shard_range};

/// How many rows are deleted in one batch.
const DELETE_BATCH_ROWS: usize = 1000;

/// Deletes leftover rows.
pub(super) struct LeftoverRows {
    own: ServerId,
    replicas: Arc<Replicas>,
    local: Arc<LocalReplicas>,
    tombstones: Arc<Tombstones>,
    restart: Arc<RestartState>,
    /// The tables with rows to delete once the catalog no longer names their replicas here.
    tables: RankedMutex<BTreeSet<TableId>>,
}

impl LeftoverRows {
    pub(super) fn new(
        own: ServerId,
        replicas: Arc<Replicas>,
        local: Arc<LocalReplicas>,
        tombstones: Arc<Tombstones>,
        restart: Arc<RestartState>,
    ) -> LeftoverRows {
        LeftoverRows {
            own,
            replicas,
            local,
            tombstones,
            restart,
            tables: RankedMutex::new(Rank::LeftoverRows, BTreeSet::new()),
        }
    }

    fn lock(&self) -> RankedGuard<'_, BTreeSet<TableId>> {
        self.tables.lock()
    }

    /// Remembers that a replica of `table` has left its group.
    pub(super) fn add(&self, table: TableId) {
        self.lock().insert(table);
    }

    /// Deletes the rows of replicas that left their groups and that `catalog` no longer names here. The replicas that
    /// `catalog` places here must be open.
    pub(super) fn clear(&self, catalog: &Catalog) -> Result<(), AdminError> {
        // An old catalog may lack shards that a later one, which this node acted on before its restart, places here.
        if !self.restart.is_shown() {
            return Ok(());
        }
        let tables: Vec<TableId> = self.lock().iter().copied().collect();
        for table in tables.into_iter().filter(|table| !self.tombstones.has_table(*table)) {
            match catalog.table_by_id(table) {
                Some(handle) if !handle.config.history.sealed.is_empty() => continue,
                Some(handle) if self.names_removed_replica(handle) => continue,
                Some(_) => self.clear_table(catalog, table)?,
                None => {
                    let mut batch = Batch::new();
                    storage::drop_table(&mut batch, table);
                    self.replicas.engine().write(batch)?;
                }
            }
            self.lock().remove(&table);
        }
        Ok(())
    }

    /// Whether the catalog still places a replica here that is not open.
    fn names_removed_replica(&self, table: &TableHandle) -> bool {
        let is_own = |replica: &ReplicaConfig| replica.server == self.own;
        let open_replicas = self.local.lock();
        let mut placed =
            table.config.shards.iter().filter(|s| s.replicas.iter().chain(&s.leaving).any(is_own));
        placed.any(|shard| !open_replicas.contains_key(&shard.group))
    }

    /// Deletes the state of a removed replica, and its rows if it was `open`.
    pub(super) fn forget_rows(
        &self,
        catalog: &Catalog,
        table: TableId,
        group: GroupId,
        open: Option<&LocalReplica>,
    ) -> Result<(), AdminError> {
        let mut batch = Batch::new();
        storage::forget_group(&mut batch, table, group);
        if catalog.table_by_id(table).is_none() {
            storage::drop_table(&mut batch, table);
            self.replicas.forget_table(table);
        }
        io::failpoint("table_drop.forgotten");
        self.replicas.engine().write(batch)?;
        io::failpoint("table_drop.cleared");
        match open {
            // With an old catalog the rows stay until the sweep, as in `clear`.
            Some(_) if !self.restart.is_shown() => Ok(()),
            Some(open) => self.for_each_foreign_range(catalog, table, &open.range, |_, part| {
                Ok(clear_rows(&open.shard, part)?)
            }),
            None => Ok(()),
        }
    }

    /// Deletes the rows of a table that belong to shards which are not placed here.
    pub(super) fn clear_table(&self, catalog: &Catalog, table: TableId) -> Result<(), AdminError> {
        let clear = |group, part: &KeyRange| self.delete_rows(table, group, part);
        self.for_each_foreign_range(catalog, table, &KeyRange::all(), clear)
    }

    /// Calls `each` with the parts of `range` that belong to shards which are not placed here.
    fn for_each_foreign_range(
        &self,
        catalog: &Catalog,
        table: TableId,
        range: &KeyRange,
        mut each: impl FnMut(GroupId, &KeyRange) -> Result<(), AdminError>,
    ) -> Result<(), AdminError> {
        let Some(handle) = catalog.table_by_id(table) else { return Ok(()) };
        for (i, shard) in handle.config.shards.iter().enumerate() {
            let is_own = |replica: &ReplicaConfig| replica.server == self.own;
            // While the table has sealed groups, a leaving replica may be a founder of a new shard that is not open yet.
            let may_found = || !handle.config.history.sealed.is_empty();
            let is_open = || self.local.contains(shard.group);
            let here = shard.replicas.iter().any(is_own)
                || (shard.leaving.iter().any(is_own) && (may_found() || is_open()));
            let part = shard_range(&handle.config.shards, i).intersect(range);
            if !here && !part.is_empty() {
                each(shard.group, &part)?;
            }
        }
        Ok(())
    }

    /// Deletes all rows of a range in batches of [`DELETE_BATCH_ROWS`].
    fn delete_rows(&self, table: TableId, group: GroupId, range: &KeyRange) -> Result<(), AdminError> {
        let store = self.replicas.store();
        let part = storage::ShardRange { range: range.clone(), group };
        let snapshot = storage::Table::new(store.clone(), table).snapshot(part)?;
        let mut scan = snapshot.scan(range, Direction::Ascending).to_the_end();
        let mut changes = Changes::default();
        let mut pending = 0;
        while let Some(batch) = scan.next_batch()? {
            for i in 0..batch.len() {
                changes.add(table, &RowChange { key: batch.key(i), row: None, existed: true });
                pending += 1;
                if pending >= DELETE_BATCH_ROWS {
                    store.write(std::mem::take(&mut changes))?;
                    pending = 0;
                }
            }
        }
        Ok(store.write(changes)?)
    }
}
