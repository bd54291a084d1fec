//! Changes to servers: their names and tags, which of them vote on the catalog, and the removal of proxies.

use std::sync::Arc;
use std::time::Duration;

use datum::Text;
use io::task;

use super::client::CatalogClient;
use super::draft::Draft;
use super::row::{CatalogRow, server_key};
use super::snapshot::Catalog;
use crate::config::ServerId;
use crate::error::AdminError;

/// The most voters of the catalog.
pub(crate) const VOTERS_MAX: usize = 5;
/// How long a stopping proxy looks for the leader of the catalog. The other servers remove a disconnected proxy anyway.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// The wait between two attempts to lock changes of the catalog, before a proxy leaves.
const LEAVE_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Gives votes on the catalog to servers without one, up to [`VOTERS_MAX`] voters besides the servers in `removed`. Prefers
/// `first`, whose replica already votes in its group. A proxy gets no vote.
pub(crate) fn fill_voters(
    catalog: &Catalog,
    draft: &mut Draft,
    removed: &[ServerId],
    first: Option<ServerId>,
) {
    let staying = || catalog.servers().into_iter().filter(|server| !removed.contains(&server.id));
    let voters = staying().filter(|server| server.catalog.voting).count();
    let mut others: Vec<_> = staying().filter(|server| !server.catalog.voting && !server.is_proxy).collect();
    others.sort_by_key(|server| Some(server.id) != first);
    for server in others.into_iter().take(VOTERS_MAX.saturating_sub(voters)) {
        let mut server = server.clone();
        server.catalog.voting = true;
        draft.put(CatalogRow::Server(server));
    }
}

/// Changes the configuration of servers.
pub struct Servers {
    own: ServerId,
    catalog: Arc<CatalogClient>,
}

impl Servers {
    pub(crate) fn new(own: ServerId, catalog: Arc<CatalogClient>) -> Servers {
        Servers { own, catalog }
    }

    /// Sets the heartbeat timeout, in seconds: a link to a server that sends nothing for this long is closed.
    pub fn set_heartbeat(&self, seconds: u64) -> Result<(), AdminError> {
        if seconds < 2 {
            return Err(AdminError::HeartbeatTooShort);
        }
        self.catalog.administer(|catalog, draft| {
            if catalog.heartbeat_secs() != seconds {
                draft.put(CatalogRow::Heartbeat(seconds));
            }
            Ok(())
        })
    }

    /// Changes the name, tags and cache size of a server. Fails if there is no such server, or if another server has
    /// the new name.
    pub fn change_server(
        &self,
        id: ServerId,
        name: &Text,
        tags: &[Text],
        cache_size_mb: Option<u64>,
    ) -> Result<(), AdminError> {
        self.catalog.administer(|catalog, draft| {
            let mut server = catalog.server(id).cloned().ok_or(AdminError::ServerMissing(id))?;
            if server.name != *name && catalog.servers_named(name).next().is_some() {
                return Err(AdminError::ServerNameTaken { from: server.name, to: name.clone() });
            }
            server.name = name.clone();
            server.tags = tags.to_vec();
            server.cache_size_mb = cache_size_mb;
            draft.put(CatalogRow::Server(server));
            Ok(())
        })
    }

    /// Removes this server from the catalog if it is a proxy, because it stops now. Does nothing on other servers.
    /// Fails at once if no quorum of the catalog's voters is connected, otherwise within seconds.
    pub fn leave(&self) -> Result<(), AdminError> {
        if !self.catalog.has_quorum(&self.catalog.shown()) {
            return Err(self.catalog.no_leader_error());
        }
        let deadline = task::now() + LEAVE_TIMEOUT;
        loop {
            // Another change from this node may take longer than this timeout, so its lock is not waited for.
            if let Some(_one_at_a_time) = self.catalog.try_lock_changes() {
                return self
                    .catalog
                    .change_within(LEAVE_TIMEOUT, |catalog, draft| remove_proxy(self.own, catalog, draft));
            }
            if task::now() > deadline {
                return Err(self.catalog.no_leader_error());
            }
            task::sleep(LEAVE_RETRY_INTERVAL);
        }
    }

    /// Removes a proxy from the catalog.
    pub(crate) fn forget_proxy(&self, id: ServerId) -> Result<(), AdminError> {
        self.catalog.change(|catalog, draft| remove_proxy(id, catalog, draft))
    }
}

fn remove_proxy(id: ServerId, catalog: &Catalog, draft: &mut Draft) -> Result<(), AdminError> {
    if catalog.server(id).is_some_and(|server| server.is_proxy) {
        draft.delete(server_key(id));
    }
    Ok(())
}
