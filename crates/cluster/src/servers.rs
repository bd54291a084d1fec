//! Changes to servers: their names and tags, and who of them votes on the catalog.

use datum::Text;

use crate::catalog_row::{CatalogRow, server_key};
use crate::change::Draft;
use crate::node::Core;
use crate::{AdminError, Catalog, ServerId};

/// The most voters of the catalog.
pub(crate) const VOTERS_MAX: usize = 5;

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
        self.change(|catalog, draft| {
            if catalog.heartbeat_secs() != seconds {
                draft.put(CatalogRow::Heartbeat(seconds));
            }
            Ok(())
        })
    }

    /// Changes what a server's row says. Fails when there is no such server, or another has the name.
    pub fn change_server(
        &self,
        id: ServerId,
        name: &Text,
        tags: &[Text],
        cache_size_mb: Option<u64>,
    ) -> Result<(), AdminError> {
        self.change(|catalog, draft| {
            let mut server = catalog.server(id).cloned().ok_or(AdminError::ServerMissing(id))?;
            if catalog.server_named(name).is_some_and(|other| other.id != id) {
                return Err(AdminError::ServerNameTaken { from: server.name, to: name.clone() });
            }
            server.name = name.clone();
            server.tags = tags.to_vec();
            server.cache_size_mb = cache_size_mb;
            draft.put(CatalogRow::Server(server));
            Ok(())
        })
    }

    /// Forgets this server, which is a proxy and goes now. Anything else does nothing.
    pub fn take_leave(&self) -> Result<(), AdminError> {
        self.forget_proxy(self.identity.server)
    }

    /// Takes a proxy out of the catalog.
    pub(crate) fn forget_proxy(&self, id: ServerId) -> Result<(), AdminError> {
        self.change(|catalog, draft| {
            if catalog.server(id).is_some_and(|server| server.is_proxy) {
                draft.delete(server_key(id));
            }
            Ok(())
        })
    }
}
