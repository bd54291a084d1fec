//! The state of the groups that this node leads, as their leader knows it.

use std::sync::Arc;

use log::{GroupId, GroupStatus, Log, PeerId, Role, StallCause};
use shard::{IndexDef, Shard};

use super::disk_stalls::DiskStalls;
use super::lag::{Lag, is_within};
use super::leadership::Leadership;
use super::local_replicas::LocalReplicas;
use crate::rpc::response::{GroupState, StateResponse};

/// Tells how the replicas of groups are.
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

    /// The states of these groups, or which server leads them as this node knows. Takes one step of the log, unless that
    /// hangs.
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
        // A log that has stopped leads nothing.
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
                // Nothing is known of the followers.
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

/// How the group of a shard is, if its replica here leads. Where the disk here makes nothing durable, most of those who
/// vote must be others.
fn group_state(shard: &Shard, status: &GroupStatus, syncs: bool) -> Option<GroupState> {
    if !matches!(status.role, Role::Leader { .. }) {
        return None;
    }
    let everybody = std::iter::once(status.own).chain(status.peers.iter().map(|peer| peer.peer));
    let state = state_of(shard, everybody.filter(|peer| is_within(status, *peer, Lag::Ready)).collect());
    let voters = &status.members.voters;
    let others = status.peers.iter().filter(|peer| peer.active && voters.contains(&peer.peer)).count();
    Some(GroupState { takes_writes: syncs || others * 2 > voters.len(), ..state })
}

/// How the group of a shard is that is led here, if those are ready.
fn state_of(shard: &Shard, ready: Vec<PeerId>) -> GroupState {
    let build = |index: &Arc<IndexDef>| (index.id(), shard.index_build(index.id()));
    let builds = shard.indexes().iter().map(build).collect();
    GroupState { ready, takes_writes: true, rows: shard.count(), builds }
}
