//! Sends the messages of replicas to the servers that hold the replicas they are for.
//!
//! Made before the log, which sends through it on its own thread: nothing here waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use log::{GroupStatus, Log, Message, PeerId, Transport};
use parking_lot::RwLock;

use crate::config::ServerId;
use crate::rpc::Peers;

/// Knows on which server each replica is, and sends messages there.
pub struct ReplicaTransport {
    peers: Arc<Peers>,
    servers: RwLock<BTreeMap<PeerId, ServerId>>,
}

impl ReplicaTransport {
    /// Sends through `peers`. Messages are dropped as long as those have no transport.
    pub(crate) fn new(peers: Arc<Peers>) -> ReplicaTransport {
        ReplicaTransport { peers, servers: RwLock::default() }
    }

    /// The server that a replica is on, if it is known.
    pub(crate) fn server_of(&self, peer: PeerId) -> Option<ServerId> {
        self.servers.read().get(&peer).copied()
    }

    /// Notes where replicas are.
    pub(crate) fn learn(&self, places: impl IntoIterator<Item = (PeerId, ServerId)>) {
        self.servers.write().extend(places);
    }

    /// Every server that has a replica.
    pub(crate) fn servers(&self) -> Vec<ServerId> {
        let mut servers: Vec<ServerId> = self.servers.read().values().copied().collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// Takes messages that arrived from `from`: hands them to the log, and notes where their senders are.
    pub fn receive(&self, from: ServerId, messages: Vec<Message>, log: &dyn Log) {
        let is_new = {
            let servers = self.servers.read();
            messages.iter().any(|message| servers.get(&message.from) != Some(&from))
        };
        if is_new {
            self.learn(messages.iter().map(|message| (message.from, from)));
        }
        messages.into_iter().for_each(|message| log.receive(message));
    }

    /// The replicas on a server.
    #[must_use]
    pub fn replicas_on(&self, server: ServerId) -> Vec<PeerId> {
        let servers = self.servers.read();
        servers.iter().filter(|(_, at)| **at == server).map(|(peer, _)| *peer).collect()
    }

    /// All replicas whose server is known.
    pub(crate) fn replicas(&self) -> Vec<PeerId> {
        self.servers.read().keys().copied().collect()
    }

    /// How many of these voters are on servers for which `counts` holds.
    pub(crate) fn count_voters(&self, voters: &[PeerId], counts: impl Fn(ServerId) -> bool) -> usize {
        let servers = self.servers.read();
        voters.iter().filter(|voter| servers.get(voter).is_some_and(|server| counts(*server))).count()
    }

    /// The status, with members on servers that are not connected marked as inactive. The log notices a lost connection
    /// only after an election timeout; a member that is taken for alive until then may be left over as half of a group.
    pub(crate) fn with_connected(&self, mut status: GroupStatus) -> GroupStatus {
        let is_linked = |peer| self.server_of(peer).is_some_and(|server| self.peers.is_connected(server));
        status.peers.iter_mut().for_each(|known| known.active &= is_linked(known.peer));
        status
    }
}

impl Transport for ReplicaTransport {
    fn send(&self, messages: Vec<Message>) {
        let Some(transport) = self.peers.transport() else { return };
        let mut by_server: Vec<(ServerId, Vec<Message>)> = Vec::new();
        {
            let servers = self.servers.read();
            for message in messages {
                let Some(server) = servers.get(&message.to) else { continue };
                match by_server.iter_mut().find(|(known, _)| known == server) {
                    Some((_, messages)) => messages.push(message),
                    None => by_server.push((*server, vec![message])),
                }
            }
        }
        for (server, messages) in by_server {
            transport.send(server, messages);
        }
    }
}
