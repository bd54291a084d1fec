//! The connections between servers, as each server lists its own. A server that this one is not connected to may still be
//! alive: it does not count as lost while another connected server is connected to it (decision 0015).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::catalog::{Catalog, CatalogClient, display_names};
use crate::config::ServerId;
use crate::error::AdminError;
use crate::rpc::response::decode_servers;
use crate::rpc::{Peers, Request};

/// How long a server may take to list its connections.
const CONNECTIONS_TIMEOUT: Duration = Duration::from_secs(2);

/// The connections of this server, and of each connected server that listed its own.
pub(crate) struct Connections {
    own: ServerId,
    connections: BTreeMap<ServerId, BTreeSet<ServerId>>,
    /// The connected servers that did not respond.
    silent: BTreeSet<ServerId>,
}

impl Connections {
    /// Every server that is alive: it listed its connections, or is in the list of another.
    fn alive(&self) -> BTreeSet<ServerId> {
        self.connections.iter().flat_map(|(server, peers)| peers.iter().chain([server])).copied().collect()
    }

    /// The other servers that are connected to a server.
    fn witnesses(&self, of: ServerId) -> BTreeSet<ServerId> {
        let others =
            self.connections.iter().filter(|(server, peers)| **server != self.own && peers.contains(&of));
        others.map(|(server, _)| *server).collect()
    }

    /// Whether a server other than this one is connected to `server`.
    pub(crate) fn is_connected_to(&self, server: ServerId) -> bool {
        !self.witnesses(server).is_empty()
    }

    /// Fails if this server is not connected to every server that is alive or may be. It is cut off then, and cannot tell
    /// which servers are lost.
    pub(crate) fn refuse_hidden(&self, catalog: &Catalog) -> Result<(), AdminError> {
        let connected = &self.connections[&self.own];
        let is_hidden = |server: &ServerId| {
            *server != self.own && !connected.contains(server) && !catalog.is_removed(*server)
        };
        let hidden: BTreeSet<ServerId> = self.alive().into_iter().filter(is_hidden).collect();
        if !hidden.is_empty() {
            let by = hidden.iter().flat_map(|server| self.witnesses(*server)).collect();
            let (servers, by) =
                (display_names::servers(catalog, &hidden), display_names::servers(catalog, &by));
            return Err(AdminError::ConnectedElsewhere { servers, by });
        }
        self.refuse_silent(catalog)
    }

    /// Fails if a server other than this one is connected to `server`, or may be.
    pub(crate) fn refuse_connected(&self, catalog: &Catalog, server: ServerId) -> Result<(), AdminError> {
        let witnesses = self.witnesses(server);
        if witnesses.is_empty() {
            return self.refuse_silent(catalog);
        }
        let (server, by) =
            (display_names::servers(catalog, &[server].into()), display_names::servers(catalog, &witnesses));
        Err(AdminError::ServerConnectedElsewhere { server, by })
    }

    fn refuse_silent(&self, catalog: &Catalog) -> Result<(), AdminError> {
        match self.silent.is_empty() {
            true => Ok(()),
            // A silent server may have connections that no other server lists. It may also just be slow: the caller can
            // try again.
            false => {
                Err(AdminError::ServersSilent { servers: display_names::servers(catalog, &self.silent) })
            }
        }
    }

    /// Missing connections between servers that are alive: the server that lacks one, and the server it would be to.
    pub(crate) fn missing(&self) -> Vec<(ServerId, ServerId)> {
        let alive = self.alive();
        let missing_of = |(server, peers): (&ServerId, &BTreeSet<ServerId>)| {
            let others = alive.iter().filter(|other| *other != server && !peers.contains(other));
            others.map(|other| (*server, *other)).collect::<Vec<_>>()
        };
        self.connections.iter().flat_map(missing_of).collect()
    }
}

/// Asks other servers for their connections.
pub struct Connectivity {
    own: ServerId,
    peers: Arc<Peers>,
    catalog: Arc<CatalogClient>,
}

impl Connectivity {
    pub(crate) fn new(own: ServerId, peers: Arc<Peers>, catalog: Arc<CatalogClient>) -> Connectivity {
        Connectivity { own, peers, catalog }
    }

    /// Missing connections between servers that are alive, as far as this server and the connected servers know: the server
    /// that lacks one, and the server it would be to. Asks every connected server.
    #[must_use]
    pub fn missing(&self) -> Vec<(ServerId, ServerId)> {
        self.connections().missing()
    }

    /// Asks every connected server for its connections, all at the same time.
    pub(crate) fn connections(&self) -> Connections {
        self.connections_and(None).0
    }

    /// As [`Connectivity::connections`], and sends the same servers another request at the same time. Also returns their
    /// responses to that.
    pub(crate) fn connections_and(
        &self,
        request: Option<Bytes>,
    ) -> (Connections, Vec<(ServerId, Option<Bytes>)>) {
        let (own, others) = (self.own, self.catalog.connected_servers());
        let kinds = [Some(Request::ConnectedServers.encode()), request];
        let to_all = |request: Bytes| others.iter().map(move |server| (*server, request.clone()));
        let requests = kinds.into_iter().flatten().flat_map(to_all).collect();
        let mut responses = self.peers.call_all(requests, CONNECTIONS_TIMEOUT);
        let other_responses = responses.split_off(others.len());
        let other_responses = others.iter().copied().zip(other_responses).collect();
        let listed = others.iter().zip(responses).filter_map(|(server, response)| {
            let peers = decode_servers(&response?)?;
            Some((*server, peers.into_iter().collect()))
        });
        let mut connections: BTreeMap<ServerId, BTreeSet<ServerId>> = listed.collect();
        let still_connected = self.catalog.connected_servers();
        let is_silent = |id: &ServerId| others.contains(id) && !connections.contains_key(id);
        let silent = still_connected.into_iter().filter(is_silent).collect();
        // The lists may name servers that the catalog shown here does not contain yet.
        let named: BTreeSet<ServerId> = connections.values().flatten().chain(&others).copied().collect();
        let connected = named.into_iter().filter(|id| *id != own && self.peers.is_connected(*id)).collect();
        connections.insert(own, connected);
        (Connections { own, connections, silent }, other_responses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::server;

    /// The connections as server 1 knows them, if each of these servers lists those.
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
        assert!(
            matches!(silent, Err(AdminError::ServersSilent { .. })),
            "3 may have more connections: {silent:?}"
        );
        let refused = connections(&[(1, &[2, 3]), (2, &[1, 3, 5]), (3, &[1, 2, 4])]).refuse_hidden(&catalog);
        let Err(AdminError::ConnectedElsewhere { servers, by }) = refused else { panic!("{refused:?}") };
        assert_eq!(servers, format!("{}, {}", server(4), server(5)));
        assert_eq!(by, format!("{}, {}", server(2), server(3)));
    }

    #[test]
    fn a_server_is_named_with_the_servers_that_are_connected_to_it() {
        let silent = connections(&[(1, &[2, 3]), (2, &[1])]).refuse_connected(&Catalog::default(), server(5));
        assert!(
            matches!(silent, Err(AdminError::ServersSilent { .. })),
            "3 may be connected to it: {silent:?}"
        );
        let all = connections(&[(1, &[2, 3]), (2, &[1, 4]), (3, &[1, 4])]);
        assert!(all.refuse_connected(&Catalog::default(), server(5)).is_ok());
        let refused = all.refuse_connected(&Catalog::default(), server(4)).unwrap_err().to_string();
        assert!(refused.contains(&format!("{}, {}", server(2), server(3))), "{refused}");
        let missing = [(1, 4), (2, 3), (3, 2)].map(|(from, to)| (server(from), server(to)));
        assert_eq!(all.missing(), missing);
    }
}
