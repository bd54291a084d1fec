//! Changes to servers: their names and tags, and who of them votes on the catalog.

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
/// How long a proxy that goes looks for the leader of the catalog. The others forget one that is away by themselves.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// The wait between two attempts to leave.
const LEAVE_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Gives votes on the catalog to servers that have none, because those of `gone` are free; to `first` before others,
/// who votes already in fact. None to a proxy.
pub(crate) fn fill_voters(catalog: &Catalog, draft: &mut Draft, gone: &[ServerId], first: Option<ServerId>) {
    let staying = || catalog.servers().into_iter().filter(|server| !gone.contains(&server.id));
    let voters = staying().filter(|server| server.catalog.voting).count();
    let mut others: Vec<_> = staying().filter(|server| !server.catalog.voting && !server.is_proxy).collect();
    others.sort_by_key(|server| Some(server.id) != first);
    for server in others.into_iter().take(VOTERS_MAX.saturating_sub(voters)) {
        let mut server = server.clone();
        server.catalog.voting = true;
        draft.put(CatalogRow::Server(server));
    }
}

/// Changes what the catalog says of servers.
pub struct Servers {
    own: ServerId,
    catalog: Arc<CatalogClient>,
}

impl Servers {
    pub(crate) fn new(own: ServerId, catalog: Arc<CatalogClient>) -> Servers {
        Servers { own, catalog }
    }

    /// How long a server may be silent before the links to it end, in seconds.
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

    /// Changes what a server's row says. Fails when there is no such server, or the name is a new one that
    /// another has.
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

    /// Forgets this server, which is a proxy and goes now. Anything else does nothing. Fails at once where no majority of
    /// those who vote is connected, and else within seconds.
    pub fn leave(&self) -> Result<(), AdminError> {
        if !self.catalog.has_quorum() {
            return Err(self.catalog.no_leader_error());
        }
        let deadline = task::now() + LEAVE_TIMEOUT;
        loop {
            // Whoever changes the catalog from here may wait for longer.
            if let Some(_one_at_a_time) = self.catalog.try_lock_changes() {
                return self
                    .catalog
                    .change_within(LEAVE_TIMEOUT, |catalog, draft| forget_proxy(self.own, catalog, draft));
            }
            if task::now() > deadline {
                return Err(self.catalog.no_leader_error());
            }
            task::sleep(LEAVE_RETRY_INTERVAL);
        }
    }

    /// Takes a proxy out of the catalog.
    pub(crate) fn forget_proxy(&self, id: ServerId) -> Result<(), AdminError> {
        self.catalog.change(|catalog, draft| forget_proxy(id, catalog, draft))
    }
}

fn forget_proxy(id: ServerId, catalog: &Catalog, draft: &mut Draft) -> Result<(), AdminError> {
    if catalog.server(id).is_some_and(|server| server.is_proxy) {
        draft.delete(server_key(id));
    }
    Ok(())
}
