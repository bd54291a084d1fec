//! Emergency repair of the catalog: when the majority of those who vote on it is gone for good it goes on with what one
//! living server has, and the servers that are not connected are removed from the cluster. Decision 0015.

use std::collections::BTreeSet;

use log::PeerId;

use crate::catalog_row::{CatalogRow, server_key};
use crate::forced::Forced;
use crate::node::{CATALOG_GROUP, Core};
use crate::servers::fill_voters;
use crate::{AdminError, Catalog, ReplicaConfig, ServerId, words};

/// The catalog without a majority, and what is to become of it.
struct Loss {
    /// Who goes on with it.
    survivor: ReplicaConfig,
    /// Whether it does already: a repair was interrupted.
    goes_on: bool,
    /// Who is removed for good.
    lost: Vec<ServerId>,
}

impl Core {
    /// The servers that [`Core::repair_catalog`] would remove from the cluster; nothing is changed.
    ///
    /// Fails as the repair would, before it begins.
    pub fn plan_catalog_repair(&self) -> Result<Vec<ServerId>, AdminError> {
        let loss = self.catalog_loss(&self.catalog())?;
        loss.map(|loss| loss.lost).ok_or(AdminError::CatalogHasMajority)
    }

    /// Makes the catalog go on with what one living server has, when its majority is gone for good; returns the servers
    /// that were removed from the cluster for that, which are those that are not connected.
    ///
    /// Tables stay as they are. Interrupted, it can be repeated. [`AdminError::RepairBegun`] where it failed after
    /// members were set by force.
    pub fn repair_catalog(&self) -> Result<Vec<ServerId>, AdminError> {
        let forced = Forced::default();
        let removed = self.repair_catalog_first(&forced).map_err(|cause| forced.error(cause))?;
        removed.ok_or(AdminError::CatalogHasMajority)
    }

    /// Gives the catalog a majority again and returns who was removed; nothing if it has one.
    pub(crate) fn repair_catalog_first(&self, forced: &Forced) -> Result<Option<Vec<ServerId>>, AdminError> {
        let catalog = self.catalog();
        let Some(Loss { survivor, goes_on, lost }) = self.catalog_loss(&catalog)? else { return Ok(None) };
        let names: Vec<String> = lost.iter().map(|id| words::server(&catalog, *id)).collect();
        tracing::warn!("The catalog has lost its majority and goes on without {}", names.join(", "));
        if !goes_on {
            self.go_on(CATALOG_GROUP, survivor, &replicas_of(&catalog), forced)?;
        }
        self.change(|catalog, draft| {
            for server in lost.iter().filter(|server| catalog.server(**server).is_some()) {
                draft.delete(server_key(*server));
                draft.put(CatalogRow::Removed(*server));
            }
            fill_voters(catalog, draft, &lost, Some(survivor.server));
            Ok(())
        })?;
        Ok(Some(lost))
    }

    /// What becomes of the catalog if it has no majority, or had none before a repair that was interrupted. A proxy has a
    /// replica of it as everybody, and does not go on with it: nobody would vote any more when it leaves.
    fn catalog_loss(&self, catalog: &Catalog) -> Result<Option<Loss>, AdminError> {
        if self.most_are_there(catalog) && self.catalog_has_majority(catalog) {
            return Ok(None);
        }
        let replicas = replicas_of(catalog);
        let is_living = |replica: &&ReplicaConfig| self.is_connected(replica.server);
        let may_vote = catalog.servers().into_iter().filter(|server| !server.is_proxy);
        let may_vote: Vec<ReplicaConfig> = may_vote.map(|server| server.catalog).collect();
        let found = self.most_complete(CATALOG_GROUP, may_vote.iter().filter(is_living));
        let found = found.ok_or_else(|| self.no_catalog())?;
        // As after a repair that was interrupted: those who live follow it already, or will.
        let is_proxy = |peer: &PeerId| {
            catalog.servers().iter().any(|server| server.is_proxy && server.catalog.peer == *peer)
        };
        let goes_on =
            self.has_majority(&found.members, &replicas) && !found.members.voters.iter().any(is_proxy);
        let is_lost = |replica: &&ReplicaConfig| {
            !is_living(replica) && (!goes_on || found.members.removed.contains(&replica.peer))
        };
        let lost: Vec<ServerId> = replicas.iter().filter(is_lost).map(|replica| replica.server).collect();
        // Those who are away do not vote yet, and nobody gave them up.
        let is_well = goes_on && lost.is_empty();
        Ok((!is_well).then_some(Loss { survivor: found.replica, goes_on, lost }))
    }

    /// Whether an emergency repair of anything removes those who are away from the cluster first.
    pub(crate) fn catalog_is_lost(&self, catalog: &Catalog) -> bool {
        matches!(self.catalog_loss(catalog), Ok(Some(_)))
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
