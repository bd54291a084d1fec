//! Emergency repair of the catalog: when the majority of those who vote on it is gone for good it goes on with what one
//! living server has, and the servers that are not connected are removed from the cluster. Decision 0015.

use std::collections::BTreeSet;

use crate::catalog_row::{CatalogRow, RemovedServer, server_key};
use crate::ends::Ends;
use crate::forced::Forced;
use crate::given_up::GivenUp;
use crate::most_complete::{PATIENCE, SHORT_PATIENCE};
use crate::node::{CATALOG_GROUP, Core};
use crate::servers::fill_voters;
use crate::{AdminError, Catalog, ReplicaConfig, ServerId, ShardConfig, TableConfig, words};

/// The catalog without a majority, and what is to become of it.
pub(crate) struct Loss {
    /// Who goes on with it.
    survivor: ReplicaConfig,
    /// Whether it does already: a repair was interrupted.
    goes_on: bool,
    /// Who is removed for good.
    pub lost: Vec<ServerId>,
}

impl Core {
    /// The servers that [`Core::repair_catalog`] would remove from the cluster; nothing is changed.
    ///
    /// Fails as the repair would, before it begins; those who are away are not waited for.
    pub fn plan_catalog_repair(&self) -> Result<Vec<ServerId>, AdminError> {
        Ok(self.judge(|| self.certain_catalog_loss())?.0.lost)
    }

    /// Makes the catalog go on with what one living server has, when its majority is gone for good; returns the servers
    /// that were removed from the cluster for that, which are those that are not connected, and did not come back within a
    /// few seconds; where an earlier one was interrupted, those that it gave up, connected or not.
    ///
    /// Shards that have their majority without those have no replicas there any more, those that are being moved a moment
    /// later (`removal`); all others stay as they are.
    /// Interrupted, it can be repeated. Fails, among other reasons, where a server that is not
    /// connected is seen by one that is ([`AdminError::Hidden`]), and with [`AdminError::RepairBegun`] after members were
    /// set by force.
    pub fn repair_catalog(&self) -> Result<Vec<ServerId>, AdminError> {
        let (loss, given_up) = self.judge_patiently(|| self.certain_catalog_loss())?;
        let forced = Forced::default();
        self.mend_catalog(&loss, &given_up, &forced).map_err(|cause| forced.error(cause))?;
        Ok(loss.lost)
    }

    /// Gives the catalog a majority again. Shards that can do without the servers that are removed for that have no replicas
    /// on them any more.
    pub(crate) fn mend_catalog(
        &self,
        loss: &Loss,
        given_up: &GivenUp,
        forced: &Forced,
    ) -> Result<(), AdminError> {
        let Loss { survivor, goes_on, lost } = loss;
        let catalog = self.catalog();
        self.check_given_up(given_up, &replicas_of(&catalog))?;
        let names: Vec<String> = lost.iter().map(|id| words::server(&catalog, *id)).collect();
        tracing::warn!("The catalog has lost its majority and goes on without {}", names.join(", "));
        if !goes_on {
            self.go_on(CATALOG_GROUP, *survivor, &replicas_of(&catalog), given_up, forced)?;
        }
        let mut ends = self.ends_beside(&catalog, lost);
        self.change(|catalog, draft| {
            ends.retain(|server| self.is_connected(server) && !lost.contains(&server));
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
    fn ends_beside(&self, catalog: &Catalog, lost: &[ServerId]) -> Ends {
        let names_lost = |shard: &&ShardConfig| lost.iter().any(|server| shard.replica_on(*server).is_some());
        let shards = catalog.tables().into_iter().flat_map(|table| &table.config.shards);
        self.ask_ends(shards.filter(names_lost), SHORT_PATIENCE)
    }

    /// Makes of a table what it would be when the catalog has gone on without those who are lost.
    pub(crate) fn spare_lost(&self, loss: &Loss, config: &mut TableConfig) {
        config.spare(&loss.lost, &self.ends_beside(&self.catalog(), &loss.lost));
    }

    /// What becomes of the catalog. Fails if it has a majority.
    fn certain_catalog_loss(&self) -> Result<Loss, AdminError> {
        self.catalog_loss(&self.catalog())?.ok_or(AdminError::CatalogHasMajority)
    }

    /// What becomes of the catalog if it has no majority, or had none before a repair that was interrupted. A proxy has a
    /// replica of it as everybody, and does not go on with it: nobody would vote any more when it leaves.
    pub(crate) fn catalog_loss(&self, catalog: &Catalog) -> Result<Option<Loss>, AdminError> {
        let replicas = replicas_of(catalog);
        if self.most_are_there(catalog)
            && self.catalog_has_majority(catalog)
            && !self.names_removed(&replicas)
        {
            return Ok(None);
        }
        let is_living = |replica: &&ReplicaConfig| self.is_connected(replica.server);
        let may_vote = catalog.servers().into_iter().filter(|server| !server.is_proxy);
        let may_vote: Vec<ReplicaConfig> = may_vote.map(|server| server.catalog).collect();
        let found = self.most_complete(CATALOG_GROUP, may_vote.iter().filter(is_living), PATIENCE);
        let found = found.ok_or_else(|| self.no_catalog())?;
        // As after a repair that was interrupted: those who live follow it already, or will.
        let goes_on = self.has_majority(&found.members, &replicas);
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

    /// Whether most who vote on the catalog are connected, as far as the replica here knows them: it can be changed.
    pub(crate) fn catalog_has_majority(&self, catalog: &Catalog) -> bool {
        let status = self.log.group_status(CATALOG_GROUP);
        status.map_or_else(
            |_| self.most_are_there(catalog),
            |status| self.has_majority(&status.members, &replicas_of(catalog)),
        )
    }

    /// Whether most who are to vote on the catalog are connected: new ones may not vote yet.
    fn most_are_there(&self, catalog: &Catalog) -> bool {
        let servers = catalog.servers();
        let voters = || servers.iter().filter(|server| server.catalog.voting);
        voters().filter(|server| self.is_connected(server.id)).count() * 2 > voters().count()
    }

    /// Why the catalog cannot be changed when nobody leads it.
    pub(crate) fn no_catalog(&self) -> AdminError {
        let catalog = self.catalog();
        if self.catalog_has_majority(&catalog) {
            return AdminError::NoCatalog;
        }
        let away = catalog.servers().into_iter().filter(|server| server.catalog.voting);
        let away = away.map(|server| server.id).filter(|server| !self.is_connected(*server));
        AdminError::CatalogNoMajority { servers: words::named(&catalog, &away.collect::<BTreeSet<_>>()) }
    }
}

/// The replicas of the catalog.
fn replicas_of(catalog: &Catalog) -> Vec<ReplicaConfig> {
    catalog.servers().iter().map(|server| server.catalog).collect()
}
