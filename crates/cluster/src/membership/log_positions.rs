//! The last log positions of replicas, asked from the servers that have them. All connected servers are asked at the same
//! time, each once about all of its groups: a lookup takes as long as the slowest response, not as long as all together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use log::{GroupId, GroupStatus, Log, Members, PeerId};

use crate::config::{ReplicaConfig, ServerId, ShardConfig};
use crate::routing::DiskStalls;
use crate::rpc::response::{LogPositionResponse, decode_log_positions};
use crate::rpc::{Peers, Request};

/// The most groups in one request. The log answers for all of them in one step.
const GROUPS_PER_REQUEST_MAX: usize = 4096;

/// The log positions of replicas that have rows, as their servers responded.
#[derive(Default)]
pub(crate) struct LogPositions {
    by_group: BTreeMap<GroupId, Vec<(ServerId, LogPositionResponse)>>,
    /// The servers that were asked and did not respond.
    pub(crate) silent: BTreeSet<ServerId>,
}

impl LogPositions {
    /// The positions of a shard's replicas.
    pub(crate) fn of_shard(&self, shard: &ShardConfig) -> Vec<(ReplicaConfig, LogPositionResponse)> {
        let position = |replica: &ReplicaConfig| {
            Some((*replica, self.of(shard.group, replica.server, replica.peer)?.clone()))
        };
        shard.all_replicas().filter_map(position).collect()
    }

    /// The position of a replica, if its server responded that it has the replica with rows.
    pub(crate) fn of(&self, group: GroupId, server: ServerId, peer: PeerId) -> Option<&LogPositionResponse> {
        let positions = self.by_group.get(&group).map_or(&[][..], Vec::as_slice);
        let is_asked =
            |(by, position): &&(ServerId, LogPositionResponse)| *by == server && position.own == peer;
        positions.iter().find(is_asked).map(|(_, position)| position)
    }

    /// Keeps the response of a server about these groups.
    pub(crate) fn note(
        &mut self,
        server: ServerId,
        groups: &[GroupId],
        positions: Vec<Option<LogPositionResponse>>,
    ) {
        for (group, position) in groups.iter().zip(positions) {
            self.by_group.entry(*group).or_default().extend(position.map(|position| (server, position)));
        }
    }

    /// Drops the responses of servers for which `keeps` does not hold.
    pub(crate) fn retain(&mut self, keeps: impl Fn(ServerId) -> bool) {
        self.by_group.values_mut().for_each(|positions| positions.retain(|(server, _)| keeps(*server)));
    }
}

/// The replica with the highest log position among the replicas of a group that responded and have rows.
pub(crate) struct Farthest {
    pub(crate) replica: ReplicaConfig,
    /// The members of the group, according to this replica.
    pub(crate) members: Members,
    /// How many of those members that vote responded.
    pub(crate) voters_responded: usize,
}

impl Farthest {
    /// Chooses among these positions. Among equal ones it prefers the first that votes: that is one that the table is to
    /// have.
    pub(crate) fn of(positions: Vec<(ReplicaConfig, LogPositionResponse)>) -> Option<Farthest> {
        let reach = |at: &LogPositionResponse| (at.last_term, at.last, at.members.voters.contains(&at.own));
        let farthest = positions.iter().map(|(_, at)| reach(at)).max()?;
        let (replica, position) = positions.iter().find(|(_, at)| reach(at) == farthest)?;
        let members = position.members.clone();
        let voters_responded =
            positions.iter().filter(|(replica, _)| members.voters.contains(&replica.peer)).count();
        Some(Farthest { replica: *replica, members, voters_responded })
    }

    /// Whether a quorum of the voters responded: at least one of them has every acknowledged write.
    pub(crate) fn has_quorum(&self) -> bool {
        self.voters_responded * 2 > self.members.voters.len()
    }
}

/// Asks servers for the log positions of their replicas.
pub(crate) struct PositionLookup {
    own: ServerId,
    peers: Arc<Peers>,
    log: Arc<dyn Log>,
    stalls: Arc<DiskStalls>,
}

impl PositionLookup {
    pub(crate) fn new(
        own: ServerId,
        peers: Arc<Peers>,
        log: Arc<dyn Log>,
        stalls: Arc<DiskStalls>,
    ) -> PositionLookup {
        PositionLookup { own, peers, log, stalls }
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

    /// Asks each of these servers about its groups.
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
            (*server, Request::LogPositions { groups: groups.to_vec() }.encode())
        };
        let responses = self.peers.call_all(parts.iter().map(request).collect(), timeout);
        let mut positions = LogPositions::default();
        for ((server, groups), response) in parts.into_iter().zip(responses) {
            match response.and_then(decode_log_positions).filter(|all| all.len() == groups.len()) {
                Some(all) => positions.note(server, groups, all),
                None => drop(positions.silent.insert(server)),
            }
        }
        if !here.is_empty() {
            positions.note(own, &here, self.here_all(&here));
        }
        positions
    }

    /// The position of this node's replica, if it has rows.
    pub(crate) fn here(&self, group: GroupId) -> Option<LogPositionResponse> {
        self.here_all(&[group]).pop().flatten()
    }

    /// The positions of this node's replicas of these groups. `None` for a replica without rows, and for all of them
    /// while the log hangs or has stopped.
    pub(crate) fn here_all(&self, groups: &[GroupId]) -> Vec<Option<LogPositionResponse>> {
        let end = |status: Option<GroupStatus>| {
            let GroupStatus { own, last_term, last, members, .. } =
                status.filter(|status| !status.needs_rows)?;
            Some(LogPositionResponse { own, last_term, last, members })
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
