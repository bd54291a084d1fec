//! The owner of reshards, and the clean-up after aborted ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io::task;
use log::GroupId;
use shard::SealState;
use storage::TableId;

use super::handover::HandoverEnd;
use super::plan::Planner;
use super::quorum::TableQuorum;
use super::seal::{Sealer, put_next_epoch};
use super::temporary_replicas::{TemporaryReplicas, TemporarySince};
use crate::catalog::placement::ShardPlaces;
use crate::catalog::{Catalog, CatalogClient, DesiredShards, Handles, ShardPlacer};
use crate::config::{ShardConfig, TableConfig};
use crate::error::AdminError;
use crate::membership::{Membership, PositionLookup};
use crate::routing::{LeaderLookup, LocalReplicas, TableHandle};
use crate::rpc::response::SealResponse;
use crate::rpc::split_points::SplitPointsResponse;

/// How long a group may be sealed before its leader aborts the reshard.
const SEALED_TIMEOUT: Duration = Duration::from_secs(3);

/// Changes tables, including their shards. The changes themselves are in `change_table` and `rebalance`.
pub struct Resharder {
    pub(super) catalog: Arc<CatalogClient>,
    pub(super) placer: Arc<ShardPlacer>,
    pub(super) leaders: Arc<LeaderLookup>,
    local: Arc<LocalReplicas>,
    pub(super) quorum: Arc<TableQuorum>,
    temporary: Arc<TemporaryReplicas>,
    pub(super) planner: Planner,
    pub(super) sealer: Sealer,
}

/// Since when groups that this node leads have been sealed, or have had temporary replicas.
#[derive(Default)]
pub(crate) struct ReshardAges {
    sealed_since: HashMap<GroupId, Instant>,
    temporary_since: TemporarySince,
}

impl ReshardAges {
    /// Forgets a group that this node does not lead.
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.sealed_since.remove(&group);
        self.temporary_since.forget(group);
    }
}

impl Resharder {
    pub(crate) fn new(
        handles: &Handles,
        membership: Arc<Membership>,
        positions: Arc<PositionLookup>,
        handovers: Arc<HandoverEnd>,
    ) -> Resharder {
        let (peers, catalog, placer) =
            (handles.peers.clone(), handles.catalog.clone(), handles.placer.clone());
        let quorum = Arc::new(TableQuorum::new(peers, catalog.clone(), placer.clone(), positions));
        let temporary = Arc::new(TemporaryReplicas::new(handles));
        Resharder {
            catalog,
            placer,
            leaders: handles.leaders.clone(),
            local: handles.local.clone(),
            planner: Planner::new(handles, quorum.clone(), temporary.clone(), handovers),
            sealer: Sealer::new(handles, membership, temporary.clone()),
            quorum,
            temporary,
        }
    }

    /// Where a change would place the shards of a table. See [`TableQuorum::plan_places`].
    pub fn plan_places(
        &self,
        id: TableId,
        desired: &DesiredShards,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<Vec<ShardPlaces>, AdminError> {
        self.quorum.plan_places(id, desired, should_continue)
    }

    /// Where new shards would be placed: on connected servers, preferably on servers that can write.
    pub fn places(
        &self,
        catalog: &Catalog,
        desired: &DesiredShards,
        table: Option<&TableHandle>,
    ) -> Result<Vec<ShardPlaces>, AdminError> {
        self.placer.places(catalog, desired, table)
    }

    /// Where a shard that this node leads may be split into about this many parts.
    pub(crate) fn split_points_here(
        &self,
        group: GroupId,
        parts: u64,
    ) -> Result<SplitPointsResponse, String> {
        self.planner.split_points_here(group, parts)
    }

    /// Seals a group that this node leads, or opens it again.
    pub(crate) fn set_seal_here(&self, group: GroupId, state: SealState) -> Result<SealResponse, String> {
        self.sealer.set_seal_here(group, state)
    }

    /// Seals those predecessors again that this node leads and whose seals an emergency repair has rolled back.
    pub(crate) fn seal_repaired(&self, config: &TableConfig) {
        for old in &config.history.sealed {
            if let Some(shard) = self.local.shard_of(old.group)
                && shard.leads()
                && shard.seal_state() < old.seal_state()
            {
                drop(shard.set_seal_state(old.seal_state()));
            }
        }
    }

    /// Opens a sealed group that this node leads again, if its reshard was aborted. Aborts the reshard if the server
    /// that sealed the group takes too long.
    pub(crate) fn reconcile_sealed(&self, table: TableId, group: GroupId, ages: &mut ReshardAges) {
        let catalog = self.catalog.shown();
        let (Some(handle), Some(shard)) = (catalog.table_by_id(table), self.local.shard_of(group)) else {
            return;
        };
        let (state, epoch) = (shard.seal_state(), handle.config.history.epoch);
        let is_present = |config: &TableConfig| config.shards.iter().any(|shard| shard.group == group);
        if !state.is_sealed() || !is_present(&handle.config) {
            return;
        }
        let since = *ages.sealed_since.entry(group).or_insert_with(task::now);
        if epoch > state.epoch() {
            // A plan of a later epoch has a greater seal state, which this does not undo.
            if shard.set_seal_state(SealState::open(epoch)).wait().is_ok() {
                ages.sealed_since.remove(&group);
            }
        } else if epoch == state.epoch() && task::now() - since > SEALED_TIMEOUT {
            let aborted = self.catalog.change(|catalog, draft| {
                let Some(handle) = catalog.table_by_id(table) else { return Ok(()) };
                if is_present(&handle.config) {
                    put_next_epoch(draft, &handle.config, state.epoch());
                }
                Ok(())
            });
            match aborted {
                // The next pass opens the group; it begins at once.
                Ok(()) => task::unpark_self(),
                Err(error) => tracing::debug!("group {group} stays sealed: {error}"),
            }
        }
    }

    /// Notes that a group that this node leads is not sealed, and removes its temporary replicas if the server that
    /// added them takes too long.
    pub(crate) fn reconcile_open(&self, table: &TableConfig, shard: &ShardConfig, ages: &mut ReshardAges) {
        ages.sealed_since.remove(&shard.group);
        let overdue = ages.temporary_since.overdue(shard, table.shards.len(), task::now());
        let is_up_to_date = |own| self.temporary.is_up_to_date(shard.group, own);
        // If a voter lags, the next pass checks again.
        if !overdue.is_empty() && shard.permanent_voters().all(is_up_to_date) {
            // If they cannot be removed now, they get the same time once more.
            ages.temporary_since.restart(shard.group, &overdue);
            let temporary: Vec<_> = overdue.into_iter().map(|server| (shard.group, server)).collect();
            self.temporary.remove(table.id, &temporary);
        }
    }
}
