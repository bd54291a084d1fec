//! The states of tables, as `table_status` and `wait` report them, and of the catalog.

use std::sync::Arc;

use crate::catalog::{CatalogClient, Handles};
use crate::config::{CATALOG_GROUP, ReplicaConfig, ServerId, ShardConfig};
use crate::membership::Connectivity;
use crate::notifier::Notifier;
use crate::routing::leader_lookup::QUERY_LEADER_TIMEOUT;
use crate::routing::{LeaderLookup, Leadership, Led, ShardHandle, TableHandle};
use crate::rpc::response::GroupState;
use crate::rpc::{Peers, Request};

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
    /// Whether too many of them are gone: [`crate::repair::Repair::repair_catalog`] goes on without them.
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

/// Asks for the states of tables.
pub struct TableStates {
    peers: Arc<Peers>,
    leadership: Arc<Leadership>,
    leaders: Arc<LeaderLookup>,
    catalog: Arc<CatalogClient>,
    state_changes: Arc<Notifier>,
    connectivity: Arc<Connectivity>,
}

impl TableStates {
    pub(crate) fn new(handles: &Handles, connectivity: Arc<Connectivity>) -> TableStates {
        TableStates {
            peers: handles.peers.clone(),
            leadership: handles.leadership.clone(),
            leaders: handles.leaders.clone(),
            catalog: handles.catalog.clone(),
            state_changes: handles.state_changes.clone(),
            connectivity,
        }
    }

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
        let mut led = self.leaders.leaders_within(&handles, QUERY_LEADER_TIMEOUT).into_iter();
        let state = |table: &&TableHandle| {
            let states = table.config.shards.iter().zip(led.by_ref());
            states.take(shards(table)).map(|(config, led)| self.shard_state(config, led)).collect()
        };
        tables.iter().map(state).collect()
    }

    /// Why the catalog cannot be changed from here, if that is so. Asks the servers that are connected where it seems so.
    #[must_use]
    pub fn catalog_outage(&self) -> Option<CatalogOutage> {
        // Who leads knows whether a majority answers.
        if self.catalog.leads() {
            return None;
        }
        let leader = self.leadership.leader(CATALOG_GROUP).filter(|leader| self.peers.is_connected(*leader));
        let catalog = self.catalog.shown();
        let voters: Vec<ServerId> =
            catalog.servers().iter().filter(|server| server.catalog.voting).map(|server| server.id).collect();
        let gone: Vec<ServerId> =
            voters.iter().copied().filter(|server| !self.peers.is_connected(*server)).collect();
        // What was heard of a leader last may be old.
        let is_well = leader.is_some() && gone.len() * 2 < voters.len();
        if is_well {
            return None;
        }
        let request = Request::States { groups: vec![CATALOG_GROUP] }.encode();
        let (connections, states) = self.connectivity.connections_and(Some(request));
        let leader = match self.catalog.leader_from_responses(states) {
            Some(leader) if self.peers.is_connected(leader) => return None,
            leader => leader.filter(|leader| connections.is_connected_to(*leader)),
        };
        let is_lost =
            leader.is_none() && !self.catalog.has_quorum() && connections.refuse_hidden(&catalog).is_ok();
        Some(CatalogOutage { voters: voters.len(), gone, leader, is_lost })
    }

    /// Notified of every change that may change these states, as far as this node learns of it.
    #[must_use]
    pub fn changes(&self) -> &Notifier {
        &self.state_changes
    }

    fn shard_state(&self, config: &ShardConfig, led: Option<Led>) -> ShardState {
        let (leader, GroupState { ready, takes_writes, .. }) = match led {
            Some((leader, state)) => (Some(leader), state),
            None => (None, GroupState::default()),
        };
        let voters = || config.replicas.iter().filter(|replica| replica.voting);
        let connected = voters().filter(|replica| self.peers.is_connected(replica.server)).count();
        let has_quorum = connected * 2 > voters().count();
        let state = |replica: &ReplicaConfig| match leader {
            _ if !self.peers.is_connected(replica.server) => ReplicaState::Disconnected,
            None if has_quorum => ReplicaState::WaitingForPrimary,
            None => ReplicaState::WaitingForQuorum,
            Some(_) if ready.contains(&replica.peer) => ReplicaState::Ready,
            Some(_) => ReplicaState::Backfilling,
        };
        let staying = config.replicas.iter().map(|replica| (replica.server, state(replica)));
        let leaving = config.leaving.iter().map(|replica| {
            let is_there = self.peers.is_connected(replica.server);
            (replica.server, if is_there { ReplicaState::Transitioning } else { ReplicaState::Disconnected })
        });
        let replicas = staying.chain(leaving).collect();
        ShardState { leader, primary: config.primary, takes_writes, replicas }
    }
}
