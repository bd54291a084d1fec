//! How far the logs of groups reach on the servers that have replicas of them. All connected servers are asked at the same
//! time, each once about all of its groups: it takes as long as the slowest, not as long as all together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use log::{GroupId, GroupStatus, Log, Members, PeerId};

use crate::catalog::Handles;
use crate::config::{ReplicaConfig, ServerId, ShardConfig};
use crate::routing::DiskStalls;
use crate::rpc::response::{EndResponse, decode_ends};
use crate::rpc::{Peers, Request};

/// The most groups of one request: it is answered in one step of a log.
const GROUPS_PER_REQUEST_MAX: usize = 4096;

/// The log positions of replicas that have rows, as their servers responded.
#[derive(Default)]
pub(crate) struct LogPositions {
    said: BTreeMap<GroupId, Vec<(ServerId, EndResponse)>>,
    /// The servers that were asked and did not respond.
    pub(crate) silent: BTreeSet<ServerId>,
}

impl LogPositions {
    /// The positions of a shard's replicas.
    pub(crate) fn of_shard(&self, shard: &ShardConfig) -> Vec<(ReplicaConfig, EndResponse)> {
        let said = |replica: &ReplicaConfig| {
            Some((*replica, self.of(shard.group, replica.server, replica.peer)?.clone()))
        };
        shard.all_replicas().filter_map(said).collect()
    }

    /// The position of a replica, if its server has it.
    pub(crate) fn of(&self, group: GroupId, server: ServerId, peer: PeerId) -> Option<&EndResponse> {
        let ends = self.said.get(&group).map_or(&[][..], Vec::as_slice);
        ends.iter().find(|(by, end)| *by == server && end.own == peer).map(|(_, end)| end)
    }

    /// Keeps the response of a server about those groups.
    pub(crate) fn note(&mut self, server: ServerId, groups: &[GroupId], said: Vec<Option<EndResponse>>) {
        for (group, end) in groups.iter().zip(said) {
            self.said.entry(*group).or_default().extend(end.map(|end| (server, end)));
        }
    }

    /// Drops the responses of servers for which `keeps` does not hold.
    pub(crate) fn retain(&mut self, keeps: impl Fn(ServerId) -> bool) {
        self.said.values_mut().for_each(|ends| ends.retain(|(server, _)| keeps(*server)));
    }
}

/// The replica of a group whose log reaches farthest, of those that responded and have rows.
pub(crate) struct Farthest {
    pub(crate) replica: ReplicaConfig,
    /// The members that it knows.
    pub(crate) members: Members,
    /// How many of its voters responded.
    pub(crate) voters_responded: usize,
}

impl Farthest {
    /// Chooses among these positions. Of several equal ones the first voter: it is one that the table is to have.
    pub(crate) fn of(ends: Vec<(ReplicaConfig, EndResponse)>) -> Option<Farthest> {
        let reach = |end: &EndResponse| (end.last_term, end.last, end.members.voters.contains(&end.own));
        let farthest = ends.iter().map(|(_, end)| reach(end)).max()?;
        let (replica, end) = ends.iter().find(|(_, end)| reach(end) == farthest)?;
        let members = end.members.clone();
        let voters_responded =
            ends.iter().filter(|(replica, _)| members.voters.contains(&replica.peer)).count();
        Some(Farthest { replica: *replica, members, voters_responded })
    }

    /// Whether a quorum of its voters responded: every acknowledged write is with one of them.
    pub(crate) fn has_quorum(&self) -> bool {
        self.voters_responded * 2 > self.members.voters.len()
    }
}

/// Asks servers for the positions of their logs.
pub(crate) struct PositionLookup {
    own: ServerId,
    peers: Arc<Peers>,
    log: Arc<dyn Log>,
    stalls: Arc<DiskStalls>,
}

impl PositionLookup {
    pub(crate) fn new(handles: &Handles) -> PositionLookup {
        PositionLookup {
            own: handles.own,
            peers: handles.peers.clone(),
            log: handles.log.clone(),
            stalls: handles.stalls.clone(),
        }
    }

    /// Asks the connected servers about their replicas of these shards.
    pub(crate) fn of_shards<'a>(
        &self,
        shards: impl Iterator<Item = &'a ShardConfig>,
        timeout: Duration,
    ) -> LogPositions {
        let mut asked: BTreeMap<ServerId, Vec<GroupId>> = BTreeMap::new();
        for shard in shards {
            for replica in shard.all_replicas().filter(|replica| self.peers.is_connected(replica.server)) {
                asked.entry(replica.server).or_default().push(shard.group);
            }
        }
        self.of_groups(asked, timeout)
    }

    /// Asks each of these servers about those groups.
    pub(crate) fn of_groups(
        &self,
        mut asked: BTreeMap<ServerId, Vec<GroupId>>,
        timeout: Duration,
    ) -> LogPositions {
        let own = self.own;
        let here = asked.remove(&own).unwrap_or_default();
        let parts: Vec<(ServerId, &[GroupId])> = asked
            .iter()
            .flat_map(|(server, groups)| groups.chunks(GROUPS_PER_REQUEST_MAX).map(|some| (*server, some)))
            .collect();
        let request = |(server, groups): &(ServerId, &[GroupId])| {
            (*server, Request::Ends { groups: groups.to_vec() }.encode())
        };
        let answers = self.peers.call_all(parts.iter().map(request).collect(), timeout);
        let mut ends = LogPositions::default();
        for ((server, groups), answer) in parts.into_iter().zip(answers) {
            match answer.and_then(decode_ends).filter(|ends| ends.len() == groups.len()) {
                Some(said) => ends.note(server, groups, said),
                None => drop(ends.silent.insert(server)),
            }
        }
        if !here.is_empty() {
            ends.note(own, &here, self.here_all(&here));
        }
        ends
    }

    /// The position of this node's replica, if it has rows.
    pub(crate) fn here(&self, group: GroupId) -> Option<EndResponse> {
        self.here_all(&[group]).pop().flatten()
    }

    /// The positions of this node's replicas of these groups.
    pub(crate) fn here_all(&self, groups: &[GroupId]) -> Vec<Option<EndResponse>> {
        let end = |status: Option<GroupStatus>| {
            let GroupStatus { own, last_term, last, members, .. } =
                status.filter(|status| !status.needs_rows)?;
            Some(EndResponse { own, last_term, last, members })
        };
        if self.stalls.log_hangs() {
            return vec![None; groups.len()];
        }
        match self.log.group_statuses(groups) {
            Ok(statuses) => statuses.into_iter().map(end).collect(),
            Err(_) => vec![None; groups.len()],
        }
    }
}
