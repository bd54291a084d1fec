//! Creates, renames and drops secondary indexes, and reports how far they are built.

use std::sync::Arc;
use std::time::Duration;

use datum::{KeyRange, Text};
use engine::Batch;
use io::Nanos;
use reql::StoredFunc;
use shard::{IndexBuild, IndexId, IndexKind, Replicas};
use storage::TableId;

use super::builds::Builds;
use crate::catalog::row::CatalogRow;
use crate::catalog::{Catalog, CatalogClient, table_by_id};
use crate::config::{IndexConfig, TableIndexes};
use crate::error::{AdminError, IndexName};
use crate::events::Notifier;
use crate::routing::{LeaderLookup, Led, ShardHandle, TableHandle};

/// How far an index is built in the whole table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IndexProgress {
    /// It is being built; about this fraction of the rows is done.
    Under(f64),
    /// Every row has its entries.
    Ready,
}

impl TableHandle {
    /// How far an index is built in the local shards. Shards whose rows are still being copied do not count: the copy
    /// includes the index entries.
    #[must_use]
    pub fn index_progress(&self, index: IndexId) -> IndexProgress {
        let local =
            self.shards().iter().filter_map(|shard| shard.local()).filter(|shard| !shard.is_recovering());
        progress(local.map(|shard| Some((shard.count(), shard.index_build(index)))))
    }
}

/// The progress of a table from the row count and the build of each shard; `None` for a shard that does not know the
/// index yet.
fn progress(shards: impl Iterator<Item = Option<(u64, IndexBuild)>>) -> IndexProgress {
    let (mut done, mut all, mut ready) = (0, 0, true);
    for shard in shards {
        let Some((rows, build)) = shard else {
            ready = false;
            continue;
        };
        match build {
            IndexBuild::Ready => done += rows,
            IndexBuild::Under { rows: looked_at, .. } => {
                ready = false;
                done += looked_at.min(rows);
            }
        }
        all += rows;
    }
    match ready {
        true => IndexProgress::Ready,
        false if all == 0 => IndexProgress::Under(0.0),
        #[allow(clippy::cast_precision_loss)] // a share needs no last digit
        false => IndexProgress::Under(done as f64 / all as f64),
    }
}

/// A shard has no known leader at the moment, so the progress of its indexes is unknown.
#[derive(Debug, thiserror::Error)]
#[error("a shard has no leader")]
pub struct NoLeader {
    /// The key range of the shard.
    pub range: KeyRange,
}

/// The table whose indexes change.
struct IndexPlace {
    db: Text,
    table: Text,
}

impl IndexPlace {
    fn index(&self, name: &Text) -> Box<IndexName> {
        Box::new(IndexName { db: self.db.clone(), table: self.table.clone(), index: name.clone() })
    }
}

/// Whether a renamed index replaces the index that has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// It stays, and the renaming fails.
    No,
    /// It is dropped.
    Yes,
}

/// Changes the indexes of tables.
pub struct Indexes {
    catalog: Arc<CatalogClient>,
    leaders: Arc<LeaderLookup>,
    replicas: Arc<Replicas>,
    /// Notified of every change of an index and of every step of a build.
    changes: Arc<Notifier>,
    builds: Builds,
}

impl Indexes {
    pub(crate) fn new(
        catalog: Arc<CatalogClient>,
        leaders: Arc<LeaderLookup>,
        replicas: Arc<Replicas>,
    ) -> Indexes {
        Indexes { catalog, leaders, replicas, changes: Arc::default(), builds: Builds::default() }
    }

    pub(super) fn catalog(&self) -> &CatalogClient {
        &self.catalog
    }

    pub(super) fn changes(&self) -> &Arc<Notifier> {
        &self.changes
    }

    /// Wakes the threads that wait for a change of an index or a build.
    pub(crate) fn notify_change(&self) {
        self.changes.notify();
    }

    /// Notes that exactly these builds are under way `now`.
    pub(super) fn note_builds(&self, builds: &[(TableId, IndexId)], now: Nanos) {
        self.builds.set_under_way(builds, now);
    }

    /// How far each of `indexes` is built in all shards of a table, local and remote. Asks the leaders; fails if a
    /// shard has none.
    pub fn progress(&self, table: &TableHandle, indexes: &[IndexId]) -> Result<Vec<IndexProgress>, NoLeader> {
        let shards: Vec<&ShardHandle> = table.shards().iter().collect();
        let responses = self.leaders.leaders(&shards);
        let mut led = Vec::with_capacity(shards.len());
        for (shard, state) in shards.iter().zip(responses) {
            led.push(state.ok_or_else(|| NoLeader { range: shard.range().clone() })?);
        }
        let build = |(_, state): &Led, index: IndexId| {
            // A leader that does not know the index yet has not begun to build it.
            let build = state.builds.iter().find(|(known, _)| *known == index)?.1.clone();
            Some((state.rows, build))
        };
        Ok(indexes.iter().map(|index| progress(led.iter().map(|led| build(led, *index)))).collect())
    }

    /// Creates an index. An [`super::IndexWork`] builds it.
    pub fn create_index(
        &self,
        table: TableId,
        name: &Text,
        function: StoredFunc,
        kind: IndexKind,
    ) -> Result<(), AdminError> {
        self.change_indexes(table, |place, indexes| {
            if indexes.find(name).is_some() {
                return Err(AdminError::IndexExists(place.index(name)));
            }
            indexes.add(name.clone(), function.clone(), kind);
            Ok(None)
        })
    }

    /// Drops an index and all its entries.
    pub fn drop_index(&self, table: TableId, name: &Text) -> Result<(), AdminError> {
        self.change_indexes(table, |place, indexes| match indexes.remove(name) {
            Some(gone) => Ok(Some(gone.id)),
            None => Err(AdminError::IndexMissing(place.index(name))),
        })
    }

    /// Renames an index. If another has the new name, it is dropped, or the renaming fails.
    pub fn rename_index(
        &self,
        table: TableId,
        from: &Text,
        to: &Text,
        overwrite: Overwrite,
    ) -> Result<(), AdminError> {
        self.change_indexes(table, |place, indexes| {
            let taken = indexes.find(to).is_some();
            if indexes.find(from).is_none() && overwrite == Overwrite::Yes {
                return Err(AdminError::IndexMissing(place.index(from)));
            }
            if indexes.find(from).is_none() || (taken && overwrite == Overwrite::No) {
                return Err(AdminError::IndexRename { from: place.index(from), to: to.clone() });
            }
            let gone = indexes.remove(to).map(|gone| gone.id);
            let renamed = indexes.remove(from).map(|index| IndexConfig { name: to.clone(), ..index });
            indexes.list.extend(renamed);
            Ok(gone)
        })
    }

    /// Waits until indexes or their builds have changed since `seen`, a number from [`Indexes::changes_seen`], for
    /// `timeout` at most.
    pub fn await_change(&self, seen: u64, timeout: Duration) {
        self.changes.wait(seen, timeout);
    }

    /// The start of this node's build of an index, if it is building it.
    #[must_use]
    pub fn build_started(&self, table: TableId, index: IndexId) -> Option<Nanos> {
        self.builds.started(table, index)
    }

    /// A number that grows with each change of an index or a build.
    #[must_use]
    pub fn changes_seen(&self) -> u64 {
        self.changes.seen()
    }

    /// Changes the indexes of a table. Deletes the entries of the index that `change` returns.
    fn change_indexes(
        &self,
        id: TableId,
        change: impl Fn(&IndexPlace, &mut TableIndexes) -> Result<Option<IndexId>, AdminError>,
    ) -> Result<(), AdminError> {
        let dropped = self.catalog.administer(|catalog, draft| {
            let handle = table_by_id(catalog, id)?;
            let mut config = handle.config.clone();
            let place = IndexPlace { db: handle.db.name.clone(), table: config.name.clone() };
            let dropped = change(&place, &mut config.indexes)?;
            draft.put(CatalogRow::Table(config));
            Ok(dropped)
        })?;
        self.changes.notify();
        let catalog = self.catalog.shown();
        match (dropped, catalog.table_by_id(id)) {
            (Some(index), Some(handle)) => self.erase_index(handle, index),
            _ => Ok(()),
        }
    }

    /// Deletes the entries of an index that is not in the catalog any more. After a crash before that,
    /// [`Indexes::sweep`] finds them.
    fn erase_index(&self, table: &TableHandle, index: IndexId) -> Result<(), AdminError> {
        for local in table.shards().iter().filter_map(|shard| shard.local()) {
            // Waits for proposed writes that still have entries of the index. A follower may apply such writes later;
            // `sweep` deletes those entries at the next start.
            if local.is_leader() {
                local.sync().wait()?;
            }
        }
        let groups: Vec<_> = table.config.shards.iter().map(|shard| shard.group).collect();
        let mut batch = Batch::new();
        storage::drop_index(&mut batch, table.config.id, index, &groups);
        self.replicas.engine().write(batch)?;
        storage::reclaim_index(&**self.replicas.engine(), table.config.id, index);
        Ok(())
    }

    /// Deletes the entries of indexes that were dropped between two versions of the catalog.
    pub(crate) fn erase_dropped(&self, before: &Catalog, after: &Catalog) -> Result<(), AdminError> {
        for table in after.tables() {
            let Some(old) = before.table_by_id(table.config.id) else { continue };
            let dropped =
                old.config.indexes.list.iter().filter(|old| table.config.indexes.was_dropped(old.id));
            for index in dropped {
                self.erase_index(table, index.id)?;
            }
        }
        Ok(())
    }

    /// Deletes entries of dropped indexes that are still there: after a crash between the drop and the deletion, or
    /// from a late write. An index that is missing in the catalog may also be a new one, known to the shards' logs
    /// first: its entries stay.
    pub(crate) fn sweep(&self) -> Result<(), AdminError> {
        let snapshot = self.replicas.engine().snapshot()?;
        for table in self.catalog.shown().tables() {
            for index in storage::indexes_present(&snapshot, table.config.id)? {
                if table.config.indexes.was_dropped(index) {
                    self.erase_index(table, index)?;
                }
            }
        }
        Ok(())
    }
}
