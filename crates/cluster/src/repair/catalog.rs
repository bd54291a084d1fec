//! Emergency repair of the catalog: when the majority of its voters is lost it goes on with what one living server has, and the
//! servers that are not connected are removed from the cluster. Decision 0015.

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

/// The catalog without a majority, and what is to become of it.
pub(super) struct Loss {
    /// Who goes on with it.
    survivor: ReplicaConfig,
    /// Whether it does already: a repair was interrupted.
    goes_on: bool,
    /// Who is removed for good.
    pub lost: Vec<ServerId>,
}

/// Repairs the catalog.
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

    /// The servers that [`CatalogRepair::repair`] would remove from the cluster; nothing is changed.
    ///
    /// Fails as the repair would, before it begins; those who are away are not waited for.
    pub(super) fn plan(&self) -> Result<Vec<ServerId>, AdminError> {
        Ok(self.lost.judge(|| self.certain_loss())?.0.lost)
    }

    /// Makes the catalog go on with what one living server has, when its majority is gone for good; returns the servers
    /// that were removed from the cluster for that, which are those that are not connected, and did not come back within a
    /// few seconds; where an earlier one was interrupted, those that it gave up, connected or not.
    ///
    /// Shards that have their majority without those have no replicas there any more, those that are being moved a moment
    /// later (`removal`); all others stay as they are.
    /// Interrupted, it can be repeated. Fails, among other reasons, where a server that is not
    /// connected is seen by one that is ([`AdminError::ConnectedElsewhere`]), and with [`AdminError::RepairBegun`] after members were
    /// set by force.
    pub(super) fn repair(&self) -> Result<Vec<ServerId>, AdminError> {
        let (loss, lost_servers) = self.lost.judge_with_timeout(|| self.certain_loss())?;
        let forced = ForcedMembers::default();
        self.mend(&loss, &lost_servers, &forced).map_err(|cause| forced.error(cause))?;
        Ok(loss.lost)
    }

    /// Gives the catalog a majority again. Shards that can do without the servers that are removed for that have no replicas
    /// on them any more.
    pub(super) fn mend(
        &self,
        loss: &Loss,
        lost_servers: &LostServers,
        forced: &ForcedMembers,
    ) -> Result<(), AdminError> {
        let Loss { survivor, goes_on, lost } = loss;
        let catalog = self.catalog.shown();
        self.lost.check(lost_servers, &self.catalog.replicas())?;
        let names: Vec<String> = lost.iter().map(|id| display_names::server(&catalog, *id)).collect();
        tracing::warn!("The catalog has lost its majority and goes on without {}", names.join(", "));
        if !goes_on {
            self.members.go_on(CATALOG_GROUP, *survivor, &self.catalog.replicas(), lost_servers, forced)?;
        }
        let mut ends = self.ends_beside(&catalog, lost);
        self.catalog.change(|catalog, draft| {
            ends.retain(|server| self.peers.is_connected(server) && !lost.contains(&server));
            for table in catalog.tables() {
                let mut config = table.config.clone();
                config.spare(lost, &ends);
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

    /// How far the logs reach of shards that have replicas on servers that are lost.
    fn ends_beside(&self, catalog: &Catalog, lost: &[ServerId]) -> LogPositions {
        let names_lost = |shard: &&ShardConfig| lost.iter().any(|server| shard.replica_on(*server).is_some());
        let shards = catalog.tables().into_iter().flat_map(|table| &table.config.shards);
        self.positions.of_shards(shards.filter(names_lost), SHORT_SURVIVOR_TIMEOUT)
    }

    /// Makes of a table what it would be when the catalog has gone on without those who are lost.
    pub(super) fn spare_lost(&self, loss: &Loss, config: &mut TableConfig) {
        config.spare(&loss.lost, &self.ends_beside(&self.catalog.shown(), &loss.lost));
    }

    /// What becomes of the catalog. Fails if it has a majority.
    fn certain_loss(&self) -> Result<Loss, AdminError> {
        self.loss(&self.catalog.shown())?.ok_or(AdminError::CatalogHasMajority)
    }

    /// What becomes of the catalog if it has no majority, or had none before a repair that was interrupted. A proxy has a
    /// replica of it as everybody, and does not go on with it: nobody would vote any more when it leaves.
    pub(super) fn loss(&self, catalog: &Catalog) -> Result<Option<Loss>, AdminError> {
        let replicas = self.catalog.replicas();
        if self.catalog.has_configured_quorum() && self.catalog.has_quorum() && !self.names_removed(&replicas)
        {
            return Ok(None);
        }
        let is_living = |replica: &&ReplicaConfig| self.peers.is_connected(replica.server);
        let may_vote = catalog.servers().into_iter().filter(|server| !server.is_proxy);
        let may_vote: Vec<ReplicaConfig> = may_vote.map(|server| server.catalog).collect();
        let found =
            self.survivors.survivor(CATALOG_GROUP, may_vote.iter().filter(is_living), SURVIVOR_TIMEOUT);
        let found = found.ok_or_else(|| self.catalog.no_leader_error())?;
        // As after a repair that was interrupted: those who live follow it already, or will.
        let goes_on = self.catalog.is_quorum_connected(&found.members, &replicas);
        // Whoever was given up then may be back: nobody of the others hears it.
        let is_lost = |replica: &&ReplicaConfig| match goes_on {
            true => found.members.removed.contains(&replica.peer),
            false => !is_living(replica),
        };
        let lost: Vec<ServerId> = replicas.iter().filter(is_lost).map(|replica| replica.server).collect();
        // Those who are away do not vote yet, and nobody gave them up.
        let is_well = goes_on && lost.is_empty();
        Ok((!is_well).then_some(Loss { survivor: found.replica, goes_on, lost }))
    }

    /// Whether some of these replicas of the catalog were removed from its group, as far as the one here knows: their
    /// servers are named for as long as a repair is not finished.
    fn names_removed(&self, replicas: &[ReplicaConfig]) -> bool {
        let status = self.log.group_status(CATALOG_GROUP);
        status.is_ok_and(|status| replicas.iter().any(|named| status.members.removed.contains(&named.peer)))
    }
}
