//! How the replicas of a shard are: what `table_status` and `wait` tell.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use log::{GroupId, GroupStatus, PeerId, Role, StallCause};
use shard::{IndexDef, Shard};

use crate::answer::{GroupState, StateResponse, decode_states};
use crate::leaders::Led;
use crate::news::Notifier;
use crate::node::{CATALOG_GROUP, Core};
use crate::reach::{Reach, reaches};
use crate::request::Request;
use crate::{Route, ServerId, ShardConfig, ShardHandle, TableHandle};

/// How long a server may take to say whether it leads and how its replicas are, when a query waits for that.
const LEADER_PATIENCE: Duration = Duration::from_secs(1);

/// The state of one replica, in the words of `table_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// It has everything.
    Ready,
    /// It is on its way in or out.
    Transitioning,
    /// It is getting rows.
    Backfilling,
    /// Its server is not connected.
    Disconnected,
    /// Nobody leads, though enough could vote.
    WaitingForPrimary,
    /// Too few voters are connected.
    WaitingForQuorum,
}

impl ReplicaState {
    /// The word used in `table_status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReplicaState::Ready => "ready",
            ReplicaState::Transitioning => "transitioning",
            ReplicaState::Backfilling => "backfilling",
            ReplicaState::Disconnected => "disconnected",
            ReplicaState::WaitingForPrimary => "waiting_for_primary",
            ReplicaState::WaitingForQuorum => "waiting_for_quorum",
        }
    }
}

/// The state of one shard.
#[derive(Clone, Debug)]
pub struct ShardState {
    /// The server that leads.
    pub leader: Option<ServerId>,
    /// The server that is to lead when it can.
    pub primary: ServerId,
    /// Whether the leader gets writes done: its disk, where that is needed, is neither full nor hangs.
    pub takes_writes: bool,
    /// Every replica.
    pub replicas: Vec<(ServerId, ReplicaState)>,
}

/// The catalog without a leader, as far as this node knows: nothing of it can be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogOutage {
    /// How many servers vote on changes of it.
    pub voters: usize,
    /// Those of them that are not connected.
    pub gone: Vec<ServerId>,
    /// Who leads it as others say, who see that server; it cannot be reached from here.
    pub leader: Option<ServerId>,
    /// Whether too many of them are gone: [`Core::repair_catalog`] goes on without them.
    pub is_lost: bool,
}

/// What a table can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Some replica of each shard can be read.
    pub outdated_reads: bool,
    /// Each shard has a leader.
    pub reads: bool,
    /// Each shard has a leader that gets writes done.
    pub writes: bool,
    /// Every replica has everything, and each shard is led by the server that is to lead it.
    pub all_replicas: bool,
}

impl ShardState {
    fn readiness(&self) -> Readiness {
        let leads = self.leader.is_some();
        let gone = |(_, state): &(ServerId, ReplicaState)| {
            matches!(state, ReplicaState::Disconnected | ReplicaState::Backfilling)
        };
        Readiness {
            outdated_reads: self.replicas.iter().any(|replica| !gone(replica)),
            reads: leads,
            writes: leads && self.takes_writes,
            all_replicas: self.leader == Some(self.primary)
                && self.takes_writes
                && self.replicas.iter().all(|(_, state)| *state == ReplicaState::Ready),
        }
    }
}

/// What all of these shards can be used for together.
#[must_use]
pub fn readiness(shards: &[ShardState]) -> Readiness {
    let all = Readiness { outdated_reads: true, reads: true, writes: true, all_replicas: true };
    shards.iter().map(ShardState::readiness).fold(all, |all, one| Readiness {
        outdated_reads: all.outdated_reads && one.outdated_reads,
        reads: all.reads && one.reads,
        writes: all.writes && one.writes,
        all_replicas: all.all_replicas && one.all_replicas,
    })
}

impl Core {
    /// How the shards of a table are, in key order. Asks their leaders.
    #[must_use]
    pub fn table_state(&self, table: &TableHandle) -> Vec<ShardState> {
        self.table_states(&[table]).pop().unwrap_or_default()
    }

    /// The same for many tables, whose leaders are asked at the same time.
    #[must_use]
    pub fn table_states(&self, tables: &[&TableHandle]) -> Vec<Vec<ShardState>> {
        let shards = |table: &TableHandle| table.config.shards.len().min(table.shards().len());
        let handles: Vec<&ShardHandle> =
            tables.iter().flat_map(|table| &table.shards()[..shards(table)]).collect();
        let mut led = self.ask_leaders_for(&handles, LEADER_PATIENCE).into_iter();
        let state = |table: &&TableHandle| {
            let states = table.config.shards.iter().zip(led.by_ref());
            states.take(shards(table)).map(|(config, led)| self.shard_state(config, led)).collect()
        };
        tables.iter().map(state).collect()
    }

    /// Why the catalog cannot be changed from here, if that is so. Asks the servers that are connected where it seems so.
    #[must_use]
    pub fn catalog_trouble(&self) -> Option<CatalogOutage> {
        // Who leads knows whether a majority answers.
        if self.catalog_shard.is_leader() {
            return None;
        }
        let leader = self.post.known_leader(CATALOG_GROUP).filter(|leader| self.is_connected(*leader));
        let catalog = self.catalog();
        let voters: Vec<ServerId> =
            catalog.servers().iter().filter(|server| server.catalog.voting).map(|server| server.id).collect();
        let gone: Vec<ServerId> =
            voters.iter().copied().filter(|server| !self.is_connected(*server)).collect();
        // What was heard of a leader last may be old.
        let is_well = leader.is_some() && gone.len() * 2 < voters.len();
        if is_well {
            return None;
        }
        let request = Request::States { groups: vec![CATALOG_GROUP] }.encode();
        let (sights, states) = self.sights_and(Some(request));
        let leader = match self.catalog_leader(states) {
            Some(leader) if self.is_connected(leader) => return None,
            leader => leader.filter(|leader| sights.is_seen(*leader)),
        };
        let is_lost = leader.is_none()
            && !self.catalog_has_majority(&catalog)
            && sights.refuse_hidden(&catalog).is_ok();
        Some(CatalogOutage { voters: voters.len(), gone, leader, is_lost })
    }

    /// Asks the servers that are connected who leads the catalog: for one whose own log does not hear it.
    pub(crate) fn find_catalog_leader(&self) -> Option<ServerId> {
        let servers = self.sees();
        let request = Request::States { groups: vec![CATALOG_GROUP] }.encode();
        let requests = servers.iter().map(|server| (*server, request.clone())).collect();
        let answers = self.ask_all(requests, LEADER_PATIENCE);
        let leader = self.catalog_leader(servers.into_iter().zip(answers).collect());
        let leader = leader.filter(|leader| self.is_connected(*leader));
        self.post.found_leader_of(CATALOG_GROUP, leader);
        leader
    }

    /// Who leads the catalog, as others answered: one that says so itself, or else one of whom others do.
    fn catalog_leader(&self, answers: Vec<(ServerId, Option<Bytes>)>) -> Option<ServerId> {
        let states = answers.into_iter().filter_map(|(server, answer)| {
            let state = decode_states(answer?)?.pop()?;
            Some((server, state))
        });
        let (led, elsewhere): (Vec<_>, Vec<_>) =
            states.partition(|(_, state)| matches!(state, StateResponse::Led(_)));
        let said = elsewhere.into_iter().filter_map(|(_, state)| match state {
            StateResponse::Elsewhere(leader) => leader.filter(|leader| !self.is_connected(*leader)),
            StateResponse::Led(_) => None,
        });
        led.into_iter().map(|(server, _)| server).chain(said).next()
    }

    /// Asks who leads those of the shards that have no replica here which hears of it: nobody tells this node when that
    /// changes. Takes a few round trips, and `LEADER_PATIENCE` for each at most.
    pub fn find_leaders(&self, shards: &[&ShardHandle]) {
        let is_far =
            |handle: &&ShardHandle| !handle.hears() && !matches!(handle.leader(), Some(Route::Local(_)));
        let far: Vec<&ShardHandle> = shards.iter().copied().filter(is_far).collect();
        let known: Vec<Option<ServerId>> = far.iter().map(|handle| handle.lead().leader()).collect();
        let led = self.ask_leaders_for(&far, LEADER_PATIENCE);
        for ((handle, known), led) in far.iter().zip(known).zip(led) {
            // Who leads may have been found out meanwhile, here too if the group is sealed. Where a replica has come, its
            // log says so.
            let is_new = handle.lead().leader() != known;
            if led.is_none()
                && !is_new
                && (handle.near().is_some() || self.shard_of(handle.group()).is_none())
            {
                self.post.found_leader(handle, None);
            }
        }
    }

    /// Told of whatever may change what [`Core::table_state`] says, as far as this node hears of it.
    #[must_use]
    pub fn state_news(&self) -> &Notifier {
        self.post.news()
    }

    fn shard_state(&self, config: &ShardConfig, led: Option<Led>) -> ShardState {
        let (leader, GroupState { ready, takes_writes, .. }) = match led {
            Some((leader, state)) => (Some(leader), state),
            None => (None, GroupState::default()),
        };
        let voters = || config.replicas.iter().filter(|replica| replica.voting);
        let connected = voters().filter(|replica| self.is_connected(replica.server)).count();
        let has_quorum = connected * 2 > voters().count();
        let state = |replica: &crate::ReplicaConfig| match leader {
            _ if !self.is_connected(replica.server) => ReplicaState::Disconnected,
            None if has_quorum => ReplicaState::WaitingForPrimary,
            None => ReplicaState::WaitingForQuorum,
            Some(_) if ready.contains(&replica.peer) => ReplicaState::Ready,
            Some(_) => ReplicaState::Backfilling,
        };
        let staying = config.replicas.iter().map(|replica| (replica.server, state(replica)));
        let leaving = config.leaving.iter().map(|replica| {
            let is_there = self.is_connected(replica.server);
            (replica.server, if is_there { ReplicaState::Transitioning } else { ReplicaState::Disconnected })
        });
        let replicas = staying.chain(leaving).collect();
        ShardState { leader, primary: config.primary, takes_writes, replicas }
    }

    /// What this node knows of the replicas of each of these groups. Takes one turn of the log, unless that hangs.
    pub(crate) fn states_here(&self, groups: &[GroupId]) -> Vec<StateResponse> {
        let shard = |group: &GroupId| {
            let shard = self.shard_of(*group)?;
            let leads = shard.is_leader();
            Some((shard, leads))
        };
        let shards: Vec<Option<(Arc<Shard>, bool)>> = groups.iter().map(shard).collect();
        let stall = self.stalls.own().map(|stall| stall.cause);
        let syncs = self.stalls.sync().is_none();
        let led = shards.iter().flatten().filter(|(_, leads)| *leads);
        let led: Vec<GroupId> = led.map(|(shard, _)| shard.group()).collect();
        // A log that has ended leads nothing.
        let statuses = match stall {
            _ if led.is_empty() => Ok(Vec::new()),
            Some(StallCause::Slow | StallCause::Stopped) => Ok(Vec::new()),
            Some(StallCause::Full) | None => self.log.group_statuses(&led),
        };
        let mut statuses = statuses.unwrap_or_default().into_iter();
        let state = |(group, shard): (&GroupId, Option<(Arc<Shard>, bool)>)| {
            let Some((shard, leads)) = shard else { return StateResponse::Elsewhere(None) };
            let status = if leads { statuses.next().flatten() } else { None };
            let state = match stall {
                // Of who follows nothing is known.
                Some(StallCause::Slow | StallCause::Stopped) if leads => {
                    Some(state_of(&shard, self.own_peer(*group).into_iter().collect()))
                }
                _ => status.and_then(|status| group_state(&shard, &status, syncs)),
            };
            match state {
                Some(state) => StateResponse::Led(GroupState {
                    takes_writes: state.takes_writes && stall.is_none(),
                    ..state
                }),
                None => StateResponse::Elsewhere(self.post.lead(*group).leader()),
            }
        };
        groups.iter().zip(shards).map(state).collect()
    }

    /// The replica of a table's group that is open here.
    fn own_peer(&self, group: GroupId) -> Option<PeerId> {
        io::task::lock(&self.hosted).get(&group).map(|open| open.own)
    }
}

/// How the group of a shard is, if its replica here leads. Where the disk here makes nothing durable, most of those who
/// vote must be others.
fn group_state(shard: &Shard, status: &GroupStatus, syncs: bool) -> Option<GroupState> {
    if !matches!(status.role, Role::Leader { .. }) {
        return None;
    }
    let everybody = std::iter::once(status.own).chain(status.peers.iter().map(|peer| peer.peer));
    let state = state_of(shard, everybody.filter(|peer| reaches(status, *peer, Reach::Ready)).collect());
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
