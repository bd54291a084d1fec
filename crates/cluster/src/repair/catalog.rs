//! Emergency repair of the catalog: if it has lost the quorum of its voters, the replica of one live server becomes
//! its only voter, and the servers that are not connected are removed from the cluster. Decision 0015.

use std::sync::Arc;

use super::force_members::{ForcedMembers, MemberReset};
use super::lost_servers::{LostServerLookup, LostServers};
use super::survivor::{SHORT_SURVIVOR_TIMEOUT, SURVIVOR_TIMEOUT, Survivors};
use crate::catalog::row::{CatalogRow, RemovedServer, server_key};
use crate::catalog::{Catalog, CatalogClient, Handles, display_names, fill_voters};
use crate::config::{CATALOG_GROUP, ReplicaConfig, ServerId, ShardConfig, TableConfig};
use crate::error::AdminError;
use crate::membership::{LogPositions, PositionLookup};
use crate::rpc::Peers;
use log::Log;

/// A catalog without a quorum, and how it is to be repaired.
pub(super) struct CatalogLoss {
    /// The replica that becomes the only voter.
    survivor: ReplicaConfig,
    /// Whether an interrupted repair has made it the only voter already.
    is_forced: bool,
    /// The servers that are removed from the cluster.
    pub lost: Vec<ServerId>,
}

pub(super) struct CatalogRepair {
    peers: Arc<Peers>,
    log: Arc<dyn Log>,
    catalog: Arc<CatalogClient>,
    positions: Arc<PositionLookup>,
    survivors: Arc<Survivors>,
    lost: Arc<LostServerLookup>,
    members: Arc<MemberReset>,
}

impl CatalogRepair {
    pub(super) fn new(
        handles: &Handles,
        positions: Arc<PositionLookup>,
        survivors: Arc<Survivors>,
        lost: Arc<LostServerLookup>,
        members: Arc<MemberReset>,
    ) -> CatalogRepair {
        CatalogRepair {
            peers: handles.peers.clone(),
            log: handles.log.clone(),
            catalog: handles.catalog.clone(),
            positions,
            survivors,
            lost,
            members,
        }
    }

    /// The servers that [`CatalogRepair::repair`] would remove from the cluster. Changes nothing.
    ///
    /// Fails as the repair would before it begins. Does not wait for disconnected servers.
    pub(super) fn plan(&self) -> Result<Vec<ServerId>, AdminError> {
        Ok(self.lost.assess(|| self.certain_loss())?.0.lost)
    }

    /// Repairs a catalog that has lost its quorum permanently: one live server's replica becomes the only voter.
    /// Returns the servers that were removed from the cluster: servers that are not connected and did not come back
    /// within a few seconds; or, if an earlier repair was interrupted, the servers that it gave up, connected or not.
    ///
    /// Shards that have a quorum without these servers lose their replicas there; shards that are being moved lose
    /// them a moment later (`remove_server`). All other shards keep their replicas.
    ///
    /// An interrupted repair can be repeated. Fails, among other reasons, if a server that is not connected here is
    /// connected to one that is ([`AdminError::ConnectedElsewhere`]), and with [`AdminError::RepairBegun`] after
    /// members were set by force.
    pub(super) fn repair(&self) -> Result<Vec<ServerId>, AdminError> {
        let (loss, lost_servers) = self.lost.assess_with_timeout(|| self.certain_loss())?;
        let forced = ForcedMembers::default();
        self.restore_quorum(&loss, &lost_servers, &forced).map_err(|cause| forced.error(cause))?;
        Ok(loss.lost)
    }

    /// Gives the catalog a quorum again and removes the lost servers, with their replicas of shards that can do
    /// without them.
    pub(super) fn restore_quorum(
        &self,
        loss: &CatalogLoss,
        lost_servers: &LostServers,
        forced: &ForcedMembers,
    ) -> Result<(), AdminError> {
        let CatalogLoss { survivor, is_forced, lost } = loss;
        let catalog = self.catalog.shown();
        self.lost.check(lost_servers, &catalog.own_replicas())?;
        let names: Vec<String> = lost.iter().map(|id| display_names::server(&catalog, *id)).collect();
        tracing::warn!(
            "Emergency repair: the catalog has lost its majority and continues without {}",
            names.join(", ")
        );
        if !is_forced {
            let replicas = catalog.own_replicas();
            self.members.force_survivor(CATALOG_GROUP, *survivor, &replicas, lost_servers, forced)?;
        }
        let mut positions = self.log_positions(&catalog, lost);
        self.catalog.change(|catalog, draft| {
            positions.retain(|server| self.peers.is_connected(server) && !lost.contains(&server));
            for table in catalog.tables() {
                let mut config = table.config.clone();
                config.remove_lost_servers(lost, &positions);
                if config != table.config {
                    draft.put(CatalogRow::Table(config));
                }
            }
            for server in lost.iter().filter_map(|server| catalog.server(*server)) {
                draft.delete(server_key(server.id));
                let name = Some(server.name.clone());
                draft.put(CatalogRow::Removed(RemovedServer { id: server.id, name }));
            }
            fill_voters(catalog, draft, lost, Some(survivor.server));
            Ok(())
        })
    }

    /// The log positions of shards that have replicas on lost servers.
    fn log_positions(&self, catalog: &Catalog, lost: &[ServerId]) -> LogPositions {
        let has_lost = |shard: &&ShardConfig| lost.iter().any(|server| shard.replica_on(*server).is_some());
        let shards = catalog.tables().into_iter().flat_map(|table| &table.config.shards);
        self.positions.of_shards(shards.filter(has_lost), SHORT_SURVIVOR_TIMEOUT)
    }

    /// Changes a table's configuration as the repair of the catalog will.
    pub(super) fn remove_lost_servers(&self, loss: &CatalogLoss, config: &mut TableConfig) {
        config.remove_lost_servers(&loss.lost, &self.log_positions(&self.catalog.shown(), &loss.lost));
    }

    /// As [`CatalogRepair::loss`]. Fails if the catalog has a quorum.
    fn certain_loss(&self) -> Result<CatalogLoss, AdminError> {
        self.loss(&self.catalog.shown())?.ok_or(AdminError::CatalogHasQuorum)
    }

    /// How to repair the catalog, if it has no quorum, or had none before a repair that was interrupted. Never
    /// chooses a proxy as the survivor, although it has a replica: the catalog would lose its only voter when the proxy
    /// leaves.
    pub(super) fn loss(&self, catalog: &Catalog) -> Result<Option<CatalogLoss>, AdminError> {
        let replicas = catalog.own_replicas();
        let has_quorum = self.catalog.has_configured_quorum(catalog) && self.catalog.has_quorum(catalog);
        if has_quorum && !self.names_removed(&replicas) {
            return Ok(None);
        }
        let is_connected = |replica: &&ReplicaConfig| self.peers.is_connected(replica.server);
        let may_vote = catalog.servers().into_iter().filter(|server| !server.is_proxy);
        let may_vote: Vec<ReplicaConfig> = may_vote.map(|server| server.catalog).collect();
        let found =
            self.survivors.survivor(CATALOG_GROUP, may_vote.iter().filter(is_connected), SURVIVOR_TIMEOUT);
        let found = found.ok_or_else(|| self.catalog.no_leader_error())?;
        // True after an interrupted repair: the other live replicas follow the survivor already, or will.
        let is_forced = self.catalog.is_quorum_connected(&found.members, &replicas);
        // A server that the interrupted repair gave up may be connected again; the group ignores its replica.
        let is_lost = |replica: &&ReplicaConfig| match is_forced {
            true => found.members.removed.contains(&replica.peer),
            false => !is_connected(replica),
        };
        let lost: Vec<ServerId> = replicas.iter().filter(is_lost).map(|replica| replica.server).collect();
        // If no replica was given up, the missing ones only have not joined the voters yet.
        let has_quorum = is_forced && lost.is_empty();
        Ok((!has_quorum).then_some(CatalogLoss { survivor: found.replica, is_forced, lost }))
    }

    /// Whether the local replica of the catalog knows some of these replicas as removed from the group. The catalog
    /// still lists them if a repair was interrupted.
    fn names_removed(&self, replicas: &[ReplicaConfig]) -> bool {
        let status = self.log.group_status(CATALOG_GROUP);
        status.is_ok_and(|status| replicas.iter().any(|named| status.members.removed.contains(&named.peer)))
    }
}
