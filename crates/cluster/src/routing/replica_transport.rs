//! Sends messages between replicas to the servers that hold the receiving replicas, and passes received ones to the log.
//! It learns the server of a replica from the messages that it receives.
//!
//! [`ReplicaTransport`] is created before the log, which sends through it on the log's thread, so nothing here blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use log::{GroupStatus, Log, Message, PeerId, Transport};

use crate::config::ServerId;
use crate::locks::{BriefRwLock, Rank, RankedReadGuard};
use crate::rpc::Peers;

/// Sends messages of replicas, and keeps the server of each replica.
pub struct ReplicaTransport {
    peers: Arc<Peers>,
    servers: BriefRwLock<BTreeMap<PeerId, ServerId>>,
}

impl ReplicaTransport {
    /// Sends through `peers`. Messages are dropped while `peers` has no transport.
    pub(crate) fn new(peers: Arc<Peers>) -> ReplicaTransport {
        ReplicaTransport { peers, servers: BriefRwLock::new(Rank::Leaf, BTreeMap::new()) }
    }

    /// The server of a replica, if it is known.
    pub(crate) fn server_of(&self, peer: PeerId) -> Option<ServerId> {
        self.servers.read().get(&peer).copied()
    }

    /// Records the servers of replicas.
    pub(crate) fn learn(&self, places: impl IntoIterator<Item = (PeerId, ServerId)>) {
        self.servers.write().extend(places);
    }

    /// All servers with a known replica.
    pub(crate) fn servers(&self) -> Vec<ServerId> {
        let mut servers: Vec<ServerId> = self.servers.read().values().copied().collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// Passes messages from the server `from` to the log, and records that their senders are on that server.
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

    #[must_use]
    pub fn replicas_on(&self, server: ServerId) -> Vec<PeerId> {
        let servers = self.servers.read();
        servers.iter().filter(|(_, at)| **at == server).map(|(peer, _)| *peer).collect()
    }

    /// All replicas whose server is known.
    pub(crate) fn replicas(&self) -> Vec<PeerId> {
        self.servers.read().keys().copied().collect()
    }

    /// The server of each known replica. No message from an unknown replica is received while this is held.
    pub(crate) fn servers_by_replica(&self) -> RankedReadGuard<'_, BTreeMap<PeerId, ServerId>> {
        self.servers.read()
    }

    /// The status, with members on disconnected servers marked as inactive. The log notices a lost connection only
    /// after an election timeout. If such a member counted as active until then, a membership change could leave a
    /// group of two with it as one half.
    pub(crate) fn with_connected(&self, mut status: GroupStatus) -> GroupStatus {
        let is_connected = |peer| self.server_of(peer).is_some_and(|server| self.peers.is_connected(server));
        status.peers.iter_mut().for_each(|known| known.active &= is_connected(known.peer));
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
