//! Which servers are connected to which. A server that is not connected to this one may be alive all the same: no server is
//! given up while a connected one is connected to it (decision 0015).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::catalog::{Catalog, CatalogClient, Handles, display_names};
use crate::config::ServerId;
use crate::error::AdminError;
use crate::rpc::response::decode_servers;
use crate::rpc::{Peers, Request};

/// How long a server may take to list its connections.
const CONNECTIONS_TIMEOUT: Duration = Duration::from_secs(2);

/// The connections of each server that listed them: this one, and those connected ones that responded.
pub(crate) struct Connections {
    own: ServerId,
    connections: BTreeMap<ServerId, BTreeSet<ServerId>>,
    /// The connected servers that did not respond.
    silent: BTreeSet<ServerId>,
}

impl Connections {
    /// Every server that is alive, by these lists.
    fn living(&self) -> BTreeSet<ServerId> {
        self.connections.iter().flat_map(|(server, sees)| sees.iter().chain([server])).copied().collect()
    }

    /// The other servers that are connected to a server.
    fn witnesses(&self, of: ServerId) -> BTreeSet<ServerId> {
        let others =
            self.connections.iter().filter(|(server, sees)| **server != self.own && sees.contains(&of));
        others.map(|(server, _)| *server).collect()
    }

    /// Whether another server is connected to this one.
    pub(crate) fn is_connected_to(&self, server: ServerId) -> bool {
        !self.witnesses(server).is_empty()
    }

    /// Fails if a server is alive, or may be, that this one is not connected to: this server is cut off then, and cannot
    /// tell which servers are lost.
    pub(crate) fn refuse_hidden(&self, catalog: &Catalog) -> Result<(), AdminError> {
        let sees = &self.connections[&self.own];
        let is_hidden =
            |server: &ServerId| *server != self.own && !sees.contains(server) && !catalog.is_removed(*server);
        let hidden: BTreeSet<ServerId> = self.living().into_iter().filter(is_hidden).collect();
        if !hidden.is_empty() {
            let by = hidden.iter().flat_map(|server| self.witnesses(*server)).collect();
            let (servers, by) =
                (display_names::servers(catalog, &hidden), display_names::servers(catalog, &by));
            return Err(AdminError::Hidden { servers, by });
        }
        self.refuse_silent(catalog)
    }

    /// Fails if another server is connected to this one, or may be.
    pub(crate) fn refuse_connected(&self, catalog: &Catalog, server: ServerId) -> Result<(), AdminError> {
        let witnesses = self.witnesses(server);
        if witnesses.is_empty() {
            return self.refuse_silent(catalog);
        }
        let (server, by) =
            (display_names::servers(catalog, &[server].into()), display_names::servers(catalog, &witnesses));
        Err(AdminError::ServerSeen { server, by })
    }

    fn refuse_silent(&self, catalog: &Catalog) -> Result<(), AdminError> {
        match self.silent.is_empty() {
            true => Ok(()),
            // It may only be slow, without connections of which others do not know.
            false => Err(AdminError::Silent { servers: display_names::servers(catalog, &self.silent) }),
        }
    }

    /// Missing connections between servers that are alive: the server that lacks it, and the server it is to.
    pub(crate) fn missing(&self) -> Vec<(ServerId, ServerId)> {
        let living = self.living();
        let unseen = |(server, sees): (&ServerId, &BTreeSet<ServerId>)| {
            let others = living.iter().filter(|other| *other != server && !sees.contains(other));
            others.map(|other| (*server, *other)).collect::<Vec<_>>()
        };
        self.connections.iter().flat_map(unseen).collect()
    }
}

/// Asks servers for their connections.
pub struct Connectivity {
    own: ServerId,
    peers: Arc<Peers>,
    catalog: Arc<CatalogClient>,
}

impl Connectivity {
    pub(crate) fn new(handles: &Handles) -> Connectivity {
        Connectivity { own: handles.own, peers: handles.peers.clone(), catalog: handles.catalog.clone() }
    }

    /// Missing connections between servers that are alive, as far as this server and those connected to it know: the server
    /// that lacks it, and the server it is to. Asks every connected server.
    #[must_use]
    pub fn missing(&self) -> Vec<(ServerId, ServerId)> {
        self.connections().missing()
    }

    /// Asks every connected server for its connections, all at the same time.
    pub(crate) fn connections(&self) -> Connections {
        self.connections_and(None).0
    }

    /// As [`Connectivity::connections`], with the responses of those servers to another request, sent at the same time.
    pub(crate) fn connections_and(
        &self,
        request: Option<Bytes>,
    ) -> (Connections, Vec<(ServerId, Option<Bytes>)>) {
        let (own, others) = (self.own, self.catalog.connected_servers());
        let kinds = [Some(Request::Sees.encode()), request];
        let to_all = |request: Bytes| others.iter().map(move |server| (*server, request.clone()));
        let requests = kinds.into_iter().flatten().flat_map(to_all).collect();
        let mut answers = self.peers.call_all(requests, CONNECTIONS_TIMEOUT);
        let also = answers.split_off(others.len());
        let also = others.iter().copied().zip(also).collect();
        let said = others.iter().zip(answers).filter_map(|(server, answer)| {
            let sees = decode_servers(&answer?)?;
            Some((*server, sees.into_iter().collect()))
        });
        let mut seen: BTreeMap<ServerId, BTreeSet<ServerId>> = said.collect();
        let still = self.catalog.connected_servers();
        let silent = still.into_iter().filter(|id| others.contains(id) && !seen.contains_key(id)).collect();
        // The catalog here may not know all of them yet.
        let named: BTreeSet<ServerId> = seen.values().flatten().chain(&others).copied().collect();
        seen.insert(own, named.into_iter().filter(|id| *id != own && self.peers.is_connected(*id)).collect());
        (Connections { own, connections: seen, silent }, also)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::server;

    /// What server 1 knows if it and the others have these connections.
    fn connections(lists: &[(u64, &[u64])]) -> Connections {
        let servers = |numbers: &[u64]| numbers.iter().map(|n| server(*n)).collect::<BTreeSet<_>>();
        let connections: BTreeMap<_, _> =
            lists.iter().map(|(by, others)| (server(*by), servers(others))).collect();
        let silent = connections[&server(1)]
            .iter()
            .filter(|other| !connections.contains_key(other))
            .copied()
            .collect();
        Connections { own: server(1), connections, silent }
    }

    #[test]
    fn a_server_is_hidden_if_only_another_server_is_connected_to_it() {
        let catalog = Catalog::default();
        assert!(connections(&[(1, &[2]), (2, &[1])]).refuse_hidden(&catalog).is_ok());
        let silent = connections(&[(1, &[2, 3]), (2, &[1, 3])]).refuse_hidden(&catalog);
        assert!(matches!(silent, Err(AdminError::Silent { .. })), "3 may have more connections: {silent:?}");
        let refused = connections(&[(1, &[2, 3]), (2, &[1, 3, 5]), (3, &[1, 2, 4])]).refuse_hidden(&catalog);
        let Err(AdminError::Hidden { servers, by }) = refused else { panic!("{refused:?}") };
        assert_eq!(servers, format!("{}, {}", server(4), server(5)));
        assert_eq!(by, format!("{}, {}", server(2), server(3)));
    }

    #[test]
    fn a_server_is_named_with_the_servers_that_are_connected_to_it() {
        let silent = connections(&[(1, &[2, 3]), (2, &[1])]).refuse_connected(&Catalog::default(), server(5));
        assert!(matches!(silent, Err(AdminError::Silent { .. })), "3 may be connected to it: {silent:?}");
        let all = connections(&[(1, &[2, 3]), (2, &[1, 4]), (3, &[1, 4])]);
        assert!(all.refuse_connected(&Catalog::default(), server(5)).is_ok());
        let refused = all.refuse_connected(&Catalog::default(), server(4)).unwrap_err().to_string();
        assert!(refused.contains(&format!("{}, {}", server(2), server(3))), "{refused}");
        let missing = [(1, 4), (2, 3), (3, 2)].map(|(by, whom)| (server(by), server(whom)));
        assert_eq!(all.missing(), missing);
    }
}
