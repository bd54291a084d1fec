//! Finds the survivor of a group without a quorum: the replica with most of its log, which becomes the only voter.

use std::sync::Arc;
use std::time::Duration;

use log::GroupId;

use crate::config::{ReplicaConfig, ServerId};
use crate::membership::{Farthest, PositionLookup};
use crate::rpc::response::LogPositionResponse;
use crate::rpc::{Peers, Request};

/// How long a replica may take to report its log position.
pub(super) const SURVIVOR_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for requests after which no members are set by force.
pub(super) const SHORT_SURVIVOR_TIMEOUT: Duration = Duration::from_secs(2);

/// Looks for survivors.
pub(super) struct Survivors {
    own: ServerId,
    peers: Arc<Peers>,
    positions: Arc<PositionLookup>,
}

impl Survivors {
    pub(super) fn new(own: ServerId, peers: Arc<Peers>, positions: Arc<PositionLookup>) -> Survivors {
        Survivors { own, peers, positions }
    }

    /// Asks all `replicas` at the same time for their log positions in a group, and chooses the farthest.
    pub(super) fn survivor<'a>(
        &self,
        group: GroupId,
        replicas: impl Iterator<Item = &'a ReplicaConfig>,
        timeout: Duration,
    ) -> Option<Farthest> {
        let (own, replicas) = (self.own, replicas.collect::<Vec<_>>());
        let remote = replicas.iter().map(|replica| replica.server).filter(|server| *server != own);
        let requests = remote.map(|server| (server, Request::LogPosition { group }.encode())).collect();
        let mut responses = self.peers.call_all(requests, timeout).into_iter();
        let end = |replica: &'a ReplicaConfig| {
            let end = match replica.server == own {
                true => self.positions.here(group),
                false => responses.next()?.and_then(LogPositionResponse::decode),
            };
            end.filter(|end| end.own == replica.peer).map(|end| (*replica, end))
        };
        Farthest::of(replicas.into_iter().filter_map(end).collect())
    }

    /// The log position of a group on a server; `None` if the server has no rows of it, or does not respond.
    pub(super) fn log_position_on(&self, server: ServerId, group: GroupId) -> Option<LogPositionResponse> {
        if server == self.own {
            return self.positions.here(group);
        }
        self.peers
            .call(server, Request::LogPosition { group }.encode(), SURVIVOR_TIMEOUT)
            .ok()
            .and_then(LogPositionResponse::decode)
    }
}
