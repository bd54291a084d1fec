//! The state of the groups that this node leads.

use std::sync::Arc;

use log::{GroupId, GroupStatus, Log, PeerId, Role, StallCause};
use shard::{IndexDef, Shard};

use super::disk_stalls::DiskStalls;
use super::lag::{Lag, is_within};
use super::leadership::Leadership;
use super::local_replicas::LocalReplicas;
use crate::rpc::response::{GroupState, StateResponse};

/// Determines the state of groups on this node.
pub(crate) struct ReplicaStates {
    log: Arc<dyn Log>,
    leadership: Arc<Leadership>,
    local: Arc<LocalReplicas>,
    stalls: Arc<DiskStalls>,
}

impl ReplicaStates {
    pub(crate) fn new(
        log: Arc<dyn Log>,
        leadership: Arc<Leadership>,
        local: Arc<LocalReplicas>,
        stalls: Arc<DiskStalls>,
    ) -> ReplicaStates {
        ReplicaStates { log, leadership, local, stalls }
    }

    /// The state of each of these groups that this node leads; for others, the leader that this node knows. Takes one
    /// step of the log, unless the log is stalled.
    pub(crate) fn here(&self, groups: &[GroupId]) -> Vec<StateResponse> {
        let shard = |group: &GroupId| {
            let shard = self.local.shard_of(*group)?;
            let leads = shard.is_leader();
            Some((shard, leads))
        };
        let shards: Vec<Option<(Arc<Shard>, bool)>> = groups.iter().map(shard).collect();
        let stall = self.stalls.own().map(|stall| stall.cause);
        let syncs = self.stalls.sync().is_none();
        let led = shards.iter().flatten().filter(|(_, leads)| *leads);
        let led: Vec<GroupId> = led.map(|(shard, _)| shard.group()).collect();
        // A stalled or stopped log does not respond, so it is not asked.
        let statuses = match stall {
            _ if led.is_empty() => Ok(Vec::new()),
            Some(StallCause::Slow | StallCause::Stopped) => Ok(Vec::new()),
            Some(StallCause::Full) | None => self.log.group_statuses(&led),
        };
        let mut statuses = statuses.unwrap_or_default().into_iter();
        let state = |(group, shard): (&GroupId, Option<(Arc<Shard>, bool)>)| {
            let Some((shard, leads)) = shard else { return StateResponse::NotLeader(None) };
            let status = if leads { statuses.next().flatten() } else { None };
            let state = match stall {
                // The state of the followers is unknown, so only the local replica counts as ready.
                Some(StallCause::Slow | StallCause::Stopped) if leads => {
                    Some(state_of(&shard, self.local.peer_of(*group).into_iter().collect()))
                }
                _ => status.and_then(|status| group_state(&shard, &status, syncs)),
            };
            match state {
                Some(state) => StateResponse::Led(GroupState {
                    takes_writes: state.takes_writes && stall.is_none(),
                    ..state
                }),
                None => StateResponse::NotLeader(self.leadership.known_leader(*group).leader()),
            }
        };
        groups.iter().zip(shards).map(state).collect()
    }
}

/// The state of a shard's group, if its local replica leads. If the local disk makes nothing durable, writes need a
/// quorum of other voters.
fn group_state(shard: &Shard, status: &GroupStatus, syncs: bool) -> Option<GroupState> {
    if !matches!(status.role, Role::Leader { .. }) {
        return None;
    }
    let members = std::iter::once(status.own).chain(status.peers.iter().map(|peer| peer.peer));
    let state = state_of(shard, members.filter(|peer| is_within(status, *peer, Lag::Ready)).collect());
    let voters = &status.members.voters;
    let others = status.peers.iter().filter(|peer| peer.active && voters.contains(&peer.peer)).count();
    Some(GroupState { takes_writes: syncs || others * 2 > voters.len(), ..state })
}

/// The state of the group of a shard that is led here, with these ready replicas.
fn state_of(shard: &Shard, ready: Vec<PeerId>) -> GroupState {
    let build = |index: &Arc<IndexDef>| (index.id(), shard.index_build(index.id()));
    let builds = shard.indexes().iter().map(build).collect();
    GroupState { ready, takes_writes: true, rows: shard.count(), builds }
}
