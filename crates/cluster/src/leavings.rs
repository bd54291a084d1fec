//! Rows of replicas that left their groups before the catalog here said that they should: they are kept
//! until it does, since until then the server may be given another replica of the same rows.

use storage::TableId;

use crate::node::Core;
use crate::{AdminError, Catalog, ReplicaConfig, TableHandle};

impl Core {
    /// Takes note that a replica of `table` left.
    pub(crate) fn owe_clearing(&self, table: TableId) {
        io::task::lock(&self.owing).insert(table);
    }

    /// Removes the rows of replicas that left, where `catalog`, whose replicas are open, lets go of them.
    pub(crate) fn clear_leavings(&self, catalog: &Catalog) -> Result<(), AdminError> {
        // What an old catalog does not place here may be placed here by a later one.
        if !self.past_is_shown.load(std::sync::atomic::Ordering::Acquire) {
            return Ok(());
        }
        let owing: Vec<TableId> = io::task::lock(&self.owing).iter().copied().collect();
        for table in owing {
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
            io::task::lock(&self.owing).remove(&table);
        }
        Ok(())
    }

    /// Whether the catalog still places a replica here that is not open.
    fn names_one_that_left(&self, table: &TableHandle) -> bool {
        let is_own = |replica: &ReplicaConfig| replica.server == self.identity.server;
        let hosted = io::task::lock(&self.hosted);
        let mut placed =
            table.config.shards.iter().filter(|s| s.replicas.iter().chain(&s.leaving).any(is_own));
        placed.any(|shard| !hosted.contains_key(&shard.group))
    }
}
