//! The lookup of the catalog's leader and of its version on other servers.

use std::time::Duration;

use bytes::Bytes;
use io::task;

use super::client::CatalogClient;
use super::row::CatalogRow;
use crate::config::{CATALOG_GROUP, ServerId};
use crate::rpc::Request;
use crate::rpc::response::{StateResponse, decode_number, decode_states};

/// The wait between two lookups of the catalog's leader.
const LEADER_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// How long a server may take to respond with the leader of the catalog.
const LEADER_LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the leader of the catalog may take to respond with its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

impl CatalogClient {
    /// Waits until this node shows the version that the catalog has now, if its leader responds. Returns whether that is a
    /// later version than before. For a caller that misses an item that another node may have created just before.
    pub(crate) fn catch_up(&self, timeout: Duration) -> bool {
        let before = self.guard().version;
        let deadline = task::now() + timeout;
        loop {
            if let Some(version) = self.version_as_leader().or_else(|| self.version_at_leader(timeout)) {
                return version > before && self.await_version(version, timeout);
            }
            if task::now() > deadline {
                return false;
            }
            task::sleep(LEADER_RETRY_INTERVAL);
        }
    }

    /// The applied version of the catalog, whether shown yet or not, if this node leads it.
    pub(crate) fn version_as_leader(&self) -> Option<u64> {
        let row = self.shard.get(&CatalogRow::Version(0).key()).ok()??;
        match CatalogRow::from_object(&row) {
            Ok(CatalogRow::Version(version)) if self.shard.is_leader() => Some(version),
            _ => None,
        }
    }

    /// The version of the catalog according to its leader on another server.
    fn version_at_leader(&self, timeout: Duration) -> Option<u64> {
        let leader =
            self.leadership.known_leader(CATALOG_GROUP).leader().filter(|leader| *leader != self.own)?;
        decode_number(self.peers.call(leader, Request::Version.encode(), timeout).ok()?)
    }

    /// Whether `version` is the latest version of the catalog, according to its leader. For a caller that removes
    /// replicas: a replica that an old version does not list may be listed by the latest one, and its removal cannot be
    /// undone.
    pub(crate) fn is_latest_version(&self, version: u64) -> bool {
        self.version_as_leader().or_else(|| self.version_at_leader(VERSION_TIMEOUT)) == Some(version)
    }

    /// Waits until this node shows `version` or a later one; returns false if that takes longer than `timeout`.
    pub(crate) fn await_version(&self, version: u64, timeout: Duration) -> bool {
        self.view().wait_until(|catalog| catalog.version >= version, timeout)
    }

    /// Asks the connected servers for the leader of the catalog. For a node whose local log does not report it.
    pub(crate) fn find_leader(&self) -> Option<ServerId> {
        let servers = self.connected_servers();
        let request = Request::States { groups: vec![CATALOG_GROUP] }.encode();
        let requests = servers.iter().map(|server| (*server, request.clone())).collect();
        let responses = self.peers.call_all(requests, LEADER_LOOKUP_TIMEOUT);
        let leader = self.leader_from_responses(servers.into_iter().zip(responses).collect());
        let leader = leader.filter(|leader| self.peers.is_connected(*leader));
        self.leadership.found_leader_of(CATALOG_GROUP, leader);
        leader
    }

    /// The leader of the catalog by the responses of other servers: a server that responds as leader, else a server
    /// that others name and that this node is not connected to.
    pub(crate) fn leader_from_responses(
        &self,
        responses: Vec<(ServerId, Option<Bytes>)>,
    ) -> Option<ServerId> {
        let states = responses.into_iter().filter_map(|(server, response)| {
            let state = decode_states(response?)?.pop()?;
            Some((server, state))
        });
        let (led, not_led): (Vec<_>, Vec<_>) =
            states.partition(|(_, state)| matches!(state, StateResponse::Led(_)));
        let named = not_led.into_iter().filter_map(|(_, state)| match state {
            StateResponse::NotLeader(leader) => leader.filter(|leader| !self.peers.is_connected(*leader)),
            StateResponse::Led(_) => None,
        });
        led.into_iter().map(|(server, _)| server).chain(named).next()
    }
}
