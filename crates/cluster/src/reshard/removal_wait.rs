//! The wait for replicas that are being removed: a new replica on the same server waits until the old one is removed.

use std::time::{Duration, Instant};

use io::task;
use storage::TableId;

use super::preparation::preparation_timeout;
use super::quorum::QUORUM_TIMEOUT;
use crate::catalog::CatalogClient;
use crate::routing::{LeaderLookup, ShardHandle};

/// The interval between checks whether replicas are removed.
pub(super) const REMOVAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Bounds the wait for the removal of a table's replicas: for the preparation timeout of a reshard, and for the quorum
/// timeout if a shard has no leader that could remove them.
pub(super) struct RemovalWait<'a> {
    catalog: &'a CatalogClient,
    leaders: &'a LeaderLookup,
    table: TableId,
    deadline: Instant,
    led_at: Instant,
}

impl<'a> RemovalWait<'a> {
    /// Begins now.
    pub(super) fn new(
        catalog: &'a CatalogClient,
        leaders: &'a LeaderLookup,
        table: TableId,
    ) -> RemovalWait<'a> {
        let shards = catalog.shown().table_by_id(table).map_or(0, |table| table.config.shards.len());
        let now = task::now();
        RemovalWait { catalog, leaders, table, deadline: now + preparation_timeout(shards), led_at: now }
    }

    /// Whether the wait may continue.
    pub(super) fn is_left(&mut self) -> bool {
        let catalog = self.catalog.shown();
        let Some(handle) = catalog.table_by_id(self.table) else { return true };
        let shards = handle.config.shards.iter().zip(handle.shards());
        let leaving: Vec<&ShardHandle> =
            shards.filter(|(config, _)| !config.leaving.is_empty()).map(|(_, shard)| shard).collect();
        if self.leaders.leaders(&leaving).iter().all(Option::is_some) {
            self.led_at = task::now();
        }
        task::now() < self.deadline.min(self.led_at + QUORUM_TIMEOUT)
    }
}
