//! Decides which servers an emergency repair gives up as lost: servers that stay disconnected for a few seconds, and to
//! which no connected server is connected. Decision 0015.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use io::task;

use crate::catalog::{Catalog, CatalogClient};
use crate::config::{ReplicaConfig, ServerId, ShardConfig};
use crate::error::AdminError;
use crate::locks::BriefMutex;
use crate::membership::Connectivity;
use crate::reshard::{CONNECTION_CHECK_INTERVAL, QUORUM_TIMEOUT};
use crate::rpc::Peers;

/// Servers that are given up: neither this server nor a connected one is connected to them.
pub(super) struct LostServers(BTreeSet<ServerId>);

impl LostServers {
    pub(super) fn has(&self, server: ServerId) -> bool {
        self.0.contains(&server)
    }
}

/// Decides which servers are lost.
pub(super) struct LostServerLookup {
    peers: Arc<Peers>,
    catalog: Arc<CatalogClient>,
    connectivity: Arc<Connectivity>,
    /// How long servers have to come back before a repair gives them up; `None`: [`QUORUM_TIMEOUT`].
    return_timeout: BriefMutex<Option<Duration>>,
}

impl LostServerLookup {
    pub(super) fn new(
        peers: Arc<Peers>,
        catalog: Arc<CatalogClient>,
        connectivity: Arc<Connectivity>,
    ) -> LostServerLookup {
        LostServerLookup { peers, catalog, connectivity, return_timeout: BriefMutex::default() }
    }

    /// Sets how long a repair waits for servers to come back: for tests, which know that they do not.
    pub(super) fn set_return_timeout(&self, timeout: Duration) {
        *self.return_timeout.lock() = Some(timeout);
    }

    /// The result of `check`, and the servers that are lost during it. Fails as `check` does, if a lost server is
    /// connected to another server, and if connections changed meanwhile.
    pub(super) fn assess<T>(
        &self,
        check: impl Fn() -> Result<T, AdminError>,
    ) -> Result<(T, LostServers), AdminError> {
        let away = self.disconnected();
        let found = check()?;
        self.connectivity.connections().refuse_hidden(&self.catalog.shown())?;
        match self.disconnected() == away {
            true => Ok((found, LostServers(away))),
            false => Err(AdminError::ConnectionsChanged),
        }
    }

    /// As [`LostServerLookup::assess`], after disconnected servers have had a few seconds to come back. Does not wait
    /// if `check` finds nothing to repair, or if none of them can come back.
    pub(super) fn assess_with_timeout<T>(
        &self,
        check: impl Fn() -> Result<T, AdminError>,
    ) -> Result<(T, LostServers), AdminError> {
        let until = task::now() + self.return_timeout.lock().unwrap_or(QUORUM_TIMEOUT);
        loop {
            let away = self.disconnected();
            let assessed = self.assess(&check);
            let may_change_soon = matches!(
                assessed,
                Ok(_)
                    | Err(AdminError::ConnectedElsewhere { .. }
                        | AdminError::ServersSilent { .. }
                        | AdminError::ConnectionsChanged)
            );
            let catalog = self.catalog.shown();
            let none_returns = away.iter().all(|server| catalog.is_removed(*server));
            if !may_change_soon || none_returns && assessed.is_ok() || task::now() >= until {
                return assessed;
            }
            while task::now() < until && self.disconnected() == away {
                task::sleep(CONNECTION_CHECK_INTERVAL);
            }
        }
    }

    /// Fails if, of the servers of these replicas, one that was not given up is disconnected, or one that was given up
    /// has come back without having been removed.
    ///
    /// Replicas without a vote that were not given up may be disconnected: the repair does not need them, and they
    /// follow later.
    pub(super) fn check<'a>(
        &self,
        lost: &LostServers,
        replicas: impl IntoIterator<Item = &'a ReplicaConfig>,
    ) -> Result<(), AdminError> {
        let catalog = self.catalog.shown();
        let is_as_assessed = |replica: &ReplicaConfig| match lost.has(replica.server) {
            true => !self.peers.is_connected(replica.server) || catalog.is_removed(replica.server),
            false => !replica.voting || self.peers.is_connected(replica.server),
        };
        match replicas.into_iter().all(is_as_assessed) {
            true => Ok(()),
            false => Err(AdminError::ConnectionsChanged),
        }
    }

    /// The servers in the catalog that are not connected.
    fn disconnected(&self) -> BTreeSet<ServerId> {
        named_in(&self.catalog.shown())
            .into_iter()
            .filter(|server| !self.peers.is_connected(*server))
            .collect()
    }
}

/// The servers of a catalog, and the servers with replicas of its tables, including sealed groups.
fn named_in(catalog: &Catalog) -> BTreeSet<ServerId> {
    let configs = || catalog.tables().into_iter().map(|table| &table.config);
    let present = configs().flat_map(|config| &config.shards).flat_map(ShardConfig::all_replicas);
    let before = configs().flat_map(|config| &config.history.sealed).flat_map(|sealed| &sealed.replicas);
    let replicas = present.chain(before).map(|replica| replica.server);
    catalog.servers().into_iter().map(|server| server.id).chain(replicas).collect()
}
