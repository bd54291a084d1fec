//! Changes to servers: their names and tags, and who of them votes on the catalog.

use std::collections::BTreeSet;
use std::time::Duration;

use datum::Text;

use crate::answer::decode_servers;
use crate::catalog_row::{CatalogRow, server_key};
use crate::change::Draft;
use crate::node::Core;
use crate::question::Question;
use crate::{AdminError, Catalog, ServerId};

/// How long a server may take to say whom it sees.
const PATIENCE: Duration = Duration::from_secs(2);
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

    /// The other servers of the catalog that this one is connected to.
    #[must_use]
    pub fn sees(&self) -> Vec<ServerId> {
        let catalog = self.catalog();
        let others = catalog.servers().into_iter().map(|server| server.id);
        others.filter(|id| *id != self.identity.server && self.is_connected(*id)).collect()
    }

    /// Servers that do not see each other although this one, or one that it sees, sees both: the one
    /// that does not see, and whom. Asks every server that is connected.
    #[must_use]
    pub fn unseen(&self) -> Vec<(ServerId, ServerId)> {
        let mut seen = vec![(self.identity.server, self.sees())];
        for server in seen[0].1.clone() {
            let answer = self.ask(server, Question::Sees.encode(), PATIENCE);
            seen.extend(answer.ok().and_then(|bytes| Some((server, decode_servers(&bytes)?))));
        }
        let alive: BTreeSet<ServerId> =
            seen.iter().flat_map(|(server, sees)| sees.iter().chain([server])).copied().collect();
        let unseen = |(server, sees): (ServerId, Vec<ServerId>)| {
            let others = alive.iter().filter(move |other| **other != server && !sees.contains(other));
            others.map(move |other| (server, *other)).collect::<Vec<_>>()
        };
        seen.into_iter().flat_map(unseen).collect()
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
