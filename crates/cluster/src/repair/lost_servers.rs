//! The servers that an emergency repair gives up: they do not come back for a while, and no connected server is connected to
//! them. Decision 0015.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use io::task;
use parking_lot::Mutex;

use crate::catalog::{Catalog, CatalogClient, Handles};
use crate::config::{ReplicaConfig, ServerId, ShardConfig};
use crate::error::AdminError;
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
    /// How long servers have to come back before a repair gives them up, if that was set.
    return_timeout: Mutex<Option<Duration>>,
}

impl LostServerLookup {
    pub(super) fn new(handles: &Handles, connectivity: Arc<Connectivity>) -> LostServerLookup {
        LostServerLookup {
            peers: handles.peers.clone(),
            catalog: handles.catalog.clone(),
            connectivity,
            return_timeout: Mutex::new(None),
        }
    }

    /// Sets how long a repair waits for servers to come back: for tests, which know that they do not.
    pub(super) fn set_return_timeout(&self, timeout: Duration) {
        *self.return_timeout.lock() = Some(timeout);
    }

    /// The result of `look`, and the servers that are given up with it. Fails as `look` does, and if a server is connected to
    /// others only.
    pub(super) fn judge<T>(
        &self,
        look: impl Fn() -> Result<T, AdminError>,
    ) -> Result<(T, LostServers), AdminError> {
        let away = self.disconnected();
        let found = look()?;
        self.connectivity.connections().refuse_hidden(&self.catalog.shown())?;
        match self.disconnected() == away {
            true => Ok((found, LostServers(away))),
            false => Err(AdminError::ConnectionsChanged),
        }
    }

    /// As [`LostServerLookup::judge`], after disconnected servers have had a few seconds to come back. Does not wait if `look`
    /// finds nothing, or if none of them can come back.
    pub(super) fn judge_with_timeout<T>(
        &self,
        look: impl Fn() -> Result<T, AdminError>,
    ) -> Result<(T, LostServers), AdminError> {
        let until = task::now() + self.return_timeout.lock().unwrap_or(QUORUM_TIMEOUT);
        loop {
            let away = self.disconnected();
            let judged = self.judge(&look);
            let may_be_otherwise_soon = matches!(
                judged,
                Ok(_)
                    | Err(AdminError::ConnectedElsewhere { .. }
                        | AdminError::ServersSilent { .. }
                        | AdminError::ConnectionsChanged)
            );
            let catalog = self.catalog.shown();
            let nobody_returns = away.iter().all(|server| catalog.is_removed(*server));
            if !may_be_otherwise_soon || nobody_returns && judged.is_ok() || task::now() >= until {
                return judged;
            }
            while task::now() < until && self.disconnected() == away {
                task::sleep(CONNECTION_CHECK_INTERVAL);
            }
        }
    }

    /// Fails if other servers of these replicas are disconnected than were given up, or if one of those has come back without
    /// having been removed.
    ///
    /// Replicas without a vote that were not given up may come and go: the repair does not need them, and they follow later.
    pub(super) fn check<'a>(
        &self,
        lost: &LostServers,
        replicas: impl IntoIterator<Item = &'a ReplicaConfig>,
    ) -> Result<(), AdminError> {
        let catalog = self.catalog.shown();
        let is_as_judged = |replica: &ReplicaConfig| match lost.has(replica.server) {
            true => !self.peers.is_connected(replica.server) || catalog.is_removed(replica.server),
            false => !replica.voting || self.peers.is_connected(replica.server),
        };
        match replicas.into_iter().all(is_as_judged) {
            true => Ok(()),
            false => Err(AdminError::ConnectionsChanged),
        }
    }

    /// The servers that the catalog names and that are not connected.
    fn disconnected(&self) -> BTreeSet<ServerId> {
        named_in(&self.catalog.shown())
            .into_iter()
            .filter(|server| !self.peers.is_connected(*server))
            .collect()
    }
}

/// The servers of a catalog, and those that its tables have or had replicas on.
fn named_in(catalog: &Catalog) -> BTreeSet<ServerId> {
    let configs = || catalog.tables().into_iter().map(|table| &table.config);
    let present = configs().flat_map(|config| &config.shards).flat_map(ShardConfig::all_replicas);
    let before = configs().flat_map(|config| &config.lineage.sealed).flat_map(|sealed| &sealed.replicas);
    let replicas = present.chain(before).map(|replica| replica.server);
    catalog.servers().into_iter().map(|server| server.id).chain(replicas).collect()
}
