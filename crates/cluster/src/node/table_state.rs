//! The states of tables, as `table_status` and `wait` report them, and of the catalog.

use std::sync::Arc;

use crate::catalog::{CatalogClient, Handles};
use crate::config::{CATALOG_GROUP, ReplicaConfig, ServerId, ShardConfig};
use crate::events::Notifier;
use crate::membership::Connectivity;
use crate::routing::leader_lookup::QUERY_LEADER_TIMEOUT;
use crate::routing::{LeaderLookup, Leadership, Led, ShardHandle, TableHandle};
use crate::rpc::response::GroupState;
use crate::rpc::{Peers, Request};

/// The state of one replica, as `table_status` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// The replica has all rows.
    Ready,
    /// The replica is leaving its shard.
    Transitioning,
    /// The replica is receiving rows.
    Backfilling,
    /// The server of the replica is not connected.
    Disconnected,
    /// The shard has no leader, although enough voters for a quorum are connected.
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

/// The leader and the replicas of a shard, with their states.
#[derive(Clone, Debug)]
pub struct ShardState {
    /// The server that leads.
    pub leader: Option<ServerId>,
    /// The server that the catalog prefers as the leader.
    pub primary: ServerId,
    /// Whether the leader can complete writes: if its disk is needed for them, the disk is neither full nor hangs.
    pub takes_writes: bool,
    pub replicas: Vec<(ServerId, ReplicaState)>,
}

/// An outage of the catalog: as far as this node knows it has no leader that is reachable from here, so it cannot be
/// changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogOutage {
    /// How many servers vote on changes of the catalog.
    pub voters: usize,
    /// The voters that are not connected after the other servers were asked.
    pub gone: Vec<ServerId>,
    /// The leader according to other servers, one of which is connected to it. This server is not connected to it.
    pub leader: Option<ServerId>,
    /// Whether the quorum is lost. [`crate::repair::Repair::repair_catalog`] continues without the lost voters.
    pub is_lost: bool,
}

/// The operations that a table is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Some replica of each shard can be read.
    pub outdated_reads: bool,
    /// Each shard has a leader.
    pub reads: bool,
    /// Each shard has a leader that can complete writes.
    pub writes: bool,
    /// Every replica has all rows, and each shard is led by its preferred server.
    pub all_replicas: bool,
}

impl ShardState {
    fn readiness(&self) -> Readiness {
        let leads = self.leader.is_some();
        let is_readable = |(_, state): &(ServerId, ReplicaState)| {
            !matches!(state, ReplicaState::Disconnected | ReplicaState::Backfilling)
        };
        Readiness {
            outdated_reads: self.replicas.iter().any(is_readable),
            reads: leads,
            writes: leads && self.takes_writes,
            all_replicas: self.leader == Some(self.primary)
                && self.takes_writes
                && self.replicas.iter().all(|(_, state)| *state == ReplicaState::Ready),
        }
    }
}

/// The operations that all of these shards are ready for.
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

/// Determines the states of tables.
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

    /// The states of a table's shards, in key order. Asks their leaders.
    #[must_use]
    pub fn table_state(&self, table: &TableHandle) -> Vec<ShardState> {
        self.table_states(&[table]).pop().unwrap_or_default()
    }

    /// The states of the shards of several tables. Asks all leaders at the same time.
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

    /// Why the catalog cannot be changed from here; `None` if it can. Asks the connected servers, unless this node knows a
    /// connected leader and a quorum of the voters is connected.
    #[must_use]
    pub fn catalog_outage(&self) -> Option<CatalogOutage> {
        // A leader knows whether a quorum responds.
        if self.catalog.leads() {
            return None;
        }
        let leader = self.leadership.leader(CATALOG_GROUP).filter(|leader| self.peers.is_connected(*leader));
        let catalog = self.catalog.shown();
        let voters: Vec<ServerId> =
            catalog.servers().iter().filter(|server| server.catalog.voting).map(|server| server.id).collect();
        let connected = voters.iter().filter(|server| self.peers.is_connected(**server)).count();
        // The last report of a leader may be old: it counts only if a quorum of the voters is connected.
        let is_available = leader.is_some() && connected * 2 > voters.len();
        if is_available {
            return None;
        }
        let request = Request::States { groups: vec![CATALOG_GROUP] }.encode();
        let (connections, states) = self.connectivity.connections_and(Some(request));
        let leader = match self.catalog.leader_from_responses(states) {
            Some(leader) if self.peers.is_connected(leader) => return None,
            leader => leader.filter(|leader| connections.is_connected_to(*leader)),
        };
        let is_lost = leader.is_none()
            && !self.catalog.has_quorum(&catalog)
            && connections.refuse_hidden(&catalog).is_ok();
        // After the responses: the wait for them may have shown that a server is not connected.
        let gone = voters.iter().copied().filter(|server| !self.peers.is_connected(*server)).collect();
        Some(CatalogOutage { voters: voters.len(), gone, leader, is_lost })
    }

    /// Is notified whenever this node learns of something that may change these states.
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
            let is_connected = self.peers.is_connected(replica.server);
            (
                replica.server,
                if is_connected { ReplicaState::Transitioning } else { ReplicaState::Disconnected },
            )
        });
        let replicas = staying.chain(leaving).collect();
        ShardState { leader, primary: config.primary, takes_writes, replicas }
    }
}
