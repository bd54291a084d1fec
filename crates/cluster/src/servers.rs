//! Changes to servers: their names and tags, and who of them votes on the catalog.

use std::time::Duration;

use datum::Text;
use io::task;

use crate::catalog_row::{CatalogRow, server_key};
use crate::change::Draft;
use crate::node::Core;
use crate::{AdminError, Catalog, ServerId};

/// The most voters of the catalog.
pub(crate) const VOTERS_MAX: usize = 5;
/// How long a proxy that goes looks for the leader of the catalog. The others forget one that is away by themselves.
const LEAVE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

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

impl Core {
    /// How long a server may be silent before the links to it end, in seconds.
    pub fn set_heartbeat(&self, seconds: u64) -> Result<(), AdminError> {
        if seconds < 2 {
            return Err(AdminError::HeartbeatTooShort);
        }
        self.administer(|catalog, draft| {
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
        self.administer(|catalog, draft| {
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
    pub fn take_leave(&self) -> Result<(), AdminError> {
        if !self.catalog_has_majority(&self.catalog()) {
            return Err(self.no_catalog());
        }
        let deadline = task::now() + LEAVE;
        loop {
            // Whoever changes the catalog from here may wait for longer.
            if let Some(_one_at_a_time) = self.changing.try_lock() {
                return self.change_within(LEAVE, |catalog, draft| {
                    forget_proxy(self.identity.server, catalog, draft)
                });
            }
            if task::now() > deadline {
                return Err(self.no_catalog());
            }
            task::sleep(PAUSE);
        }
    }

    /// Takes a proxy out of the catalog.
    pub(crate) fn forget_proxy(&self, id: ServerId) -> Result<(), AdminError> {
        self.change(|catalog, draft| forget_proxy(id, catalog, draft))
    }
}

fn forget_proxy(id: ServerId, catalog: &Catalog, draft: &mut Draft) -> Result<(), AdminError> {
    if catalog.server(id).is_some_and(|server| server.is_proxy) {
        draft.delete(server_key(id));
    }
    Ok(())
}
