//! Handles the cluster requests of other servers: passes each to the owner of its subject and sends the response.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use datum::Object;
use io::task;
use log::{GroupId, Log, Members};
use shard::{Replicas, SealState};

use crate::catalog::change::OTHER_SERVERS_TIMEOUT;
use crate::catalog::row::CatalogRow;
use crate::catalog::{CatalogClient, Handles, VOTERS_MAX};
use crate::config::{CATALOG_GROUP, Ids, ReplicaConfig, ServerConfig, ServerId};
use crate::copy::Copies;
use crate::error::AdminError;
use crate::events::{Event, EventQueue};
use crate::feeds::{FeedPosition, Feeds};
use crate::membership::{PositionLookup, StallMonitor};
use crate::repair::Repair;
use crate::reshard::{HandoverEnd, Resharder};
use crate::routing::{DiskStalls, Leadership, LocalReplicas, ReplicaStates};
use crate::rpc::copy::encode_difference;
use crate::rpc::response::{
    JoinResponse, StateResponse, encode_groups, encode_log_positions, encode_servers, encode_states,
    encode_terms,
};
use crate::rpc::{ClusterHandler, Peers, Request, Responder, RpcHandler};

/// The owners that handle requests.
pub(super) struct Owners {
    pub(super) stall_monitor: Arc<StallMonitor>,
    pub(super) positions: Arc<PositionLookup>,
    pub(super) handovers: Arc<HandoverEnd>,
    pub(super) resharder: Arc<Resharder>,
    pub(super) repair: Arc<Repair>,
    pub(super) copies: Arc<Copies>,
    pub(super) feeds: Arc<Feeds>,
    pub(super) states: Arc<ReplicaStates>,
}

/// Handles cluster requests.
pub(super) struct ClusterRequests {
    own: ServerId,
    peers: Arc<Peers>,
    leadership: Arc<Leadership>,
    log: Arc<dyn Log>,
    replicas: Arc<Replicas>,
    local: Arc<LocalReplicas>,
    stalls: Arc<DiskStalls>,
    catalog: Arc<CatalogClient>,
    ids: Ids,
    events: Arc<EventQueue>,
    owners: Owners,
    queries: OnceLock<Arc<dyn RpcHandler>>,
}

impl ClusterRequests {
    pub(super) fn new(handles: &Handles, owners: Owners) -> ClusterRequests {
        ClusterRequests {
            own: handles.own,
            peers: handles.peers.clone(),
            leadership: handles.leadership.clone(),
            log: handles.log.clone(),
            replicas: handles.replicas.clone(),
            local: handles.local.clone(),
            stalls: handles.stalls.clone(),
            catalog: handles.catalog.clone(),
            ids: handles.ids.clone(),
            events: handles.events.clone(),
            owners,
            queries: OnceLock::new(),
        }
    }

    /// Sets the handler of the requests of queries. Only the first call counts.
    pub(super) fn set_queries(&self, queries: Arc<dyn RpcHandler>) {
        drop(self.queries.set(queries));
    }

    /// Admits a server to the cluster: adds it to the catalog and returns its catalog replica, or returns the replica of
    /// a server that is in the catalog already. A server that disconnects before the change is made is not admitted: it
    /// would be reported as missing until an operator deletes it.
    fn admit(&self, object: &Object) -> Result<JoinResponse, AdminError> {
        let row = CatalogRow::from_object(object).map_err(|error| AdminError::Refused(error.to_string()));
        let CatalogRow::Server(joining) = row? else {
            return Err(AdminError::Refused("the row does not describe a server".to_owned()));
        };
        let fresh = self.ids.new_peer();
        let own = self.catalog.change(|catalog, draft| {
            if catalog.is_removed(joining.id) {
                return Err(AdminError::Refused(
                    "the server was removed from the cluster permanently".to_owned(),
                ));
            }
            if let Some(known) = catalog.server(joining.id) {
                return Ok(known.catalog.peer);
            }
            if !self.peers.is_connected(joining.id) {
                return Err(AdminError::Refused(
                    "the server has disconnected since it asked to join".to_owned(),
                ));
            }
            let voters = catalog.servers().iter().filter(|server| server.catalog.voting).count();
            let replica = ReplicaConfig {
                server: joining.id,
                peer: fresh,
                voting: voters < VOTERS_MAX && !joining.is_proxy,
            };
            draft.put(CatalogRow::Server(ServerConfig { catalog: replica, ..joining.clone() }));
            Ok(fresh)
        })?;
        let places = self.catalog.shown().servers().iter().map(|s| (s.catalog.peer, s.id)).collect();
        Ok(JoinResponse { own, places })
    }

    /// Whether this node leads the group, according to the log. A node that does not lead can respond without waiting for
    /// the log, which matters while a group has no leader: every server asks then.
    fn may_lead(&self, group: GroupId) -> bool {
        self.leadership.leader(group) == Some(self.own)
    }

    fn set_seal_number(&self, group: GroupId, number: u64) -> Result<Bytes, String> {
        if group == CATALOG_GROUP || number > SealState::NUMBER_MAX {
            return Err(format!("group {group} cannot have seal number {number}"));
        }
        Ok(self.owners.resharder.set_seal_here(group, SealState::of_number(number))?.encode())
    }

    /// Handles a request on a new thread: these requests are rare, and may wait for the disk.
    fn handle_on_thread(self: Arc<Self>, from: ServerId, request: Request, respond: Responder) {
        let work = move || respond(self.respond_to(from, request));
        if let Err(error) = task::spawn("cluster", work) {
            tracing::error!("could not start a thread to handle a request: {error}");
        }
    }

    fn respond_to(&self, from: ServerId, request: Request) -> Result<Bytes, String> {
        match request {
            Request::Commit { base, rows } => Ok(self.catalog.commit_here(base, &rows).encode()),
            Request::Join { server } => {
                self.admit(&server).map(|response| response.encode()).map_err(|error| error.to_string())
            }
            Request::States { groups } => Ok(encode_states(&self.owners.states.here(&groups))),
            Request::HandOver { group, to } => {
                self.log.transfer(group, to);
                Ok(Bytes::new())
            }
            Request::LogPosition { group } => {
                let end = self.owners.positions.here(group).ok_or("no replica here has rows of the group")?;
                // `GroupsWithRows` flushes the engine. Older servers send this request instead, so it flushes, too.
                self.replicas.engine().flush().map_err(|error| error.to_string())?;
                Ok(end.encode())
            }
            Request::LogPositions { groups } => {
                Ok(encode_log_positions(&self.owners.positions.here_all(&groups)))
            }
            Request::GroupsWithRows { groups } => {
                let with_rows = self.owners.handovers.groups_with_rows_here(&groups);
                Ok(encode_groups(&with_rows.map_err(|error| error.to_string())?))
            }
            Request::SealNumber { group } => {
                let shard = self.local.shard_of(group).ok_or("this server has no replica of the group")?;
                Ok(Bytes::copy_from_slice(&shard.seal_state().number().to_le_bytes()))
            }
            Request::ResetMembers { group, members } => {
                let members = Members::decode(&members).ok_or("the members cannot be decoded")?;
                Ok(self.owners.repair.reset_members_here(from, group, members)?.encode().into())
            }
            Request::SplitPoints { group, parts } => {
                self.owners.resharder.split_points_here(group, parts).map(|points| points.encode())
            }
            Request::SetSealNumber { group, number } => self.set_seal_number(group, number),
            Request::ConnectedServers => Ok(encode_servers(&self.catalog.connected_servers())),
            Request::Version => {
                let version =
                    self.catalog.version_as_leader().ok_or("this server does not lead the catalog")?;
                Ok(Bytes::copy_from_slice(&version.to_le_bytes()))
            }
            Request::OfferCopy { group, start } => {
                self.events.push(Event::CopyOffered(group, start));
                Ok(Bytes::new())
            }
            Request::Stalled { cause } => Ok(self.owners.stall_monitor.take_report(from, cause)),
            Request::Terms { groups } => Ok(encode_terms(&self.leadership.terms(&groups))),
            Request::AwaitVersion { version } => {
                self.catalog.await_version(version, OTHER_SERVERS_TIMEOUT);
                Ok(Bytes::new())
            }
            Request::HistoryOn { group } => self.owners.feeds.begin_history_here(group),
            Request::HistoryRows { group, range, at, further } => {
                self.owners.feeds.rows_here(group, &range, FeedPosition { entry: at, rows: further })
            }
            Request::History { .. } => Err("a response that waits for an entry needs no thread".to_owned()),
            Request::CopyBegin { group } => {
                self.owners.copies.serve_begin(group).map(|response| response.encode())
            }
            Request::CopyNext { copy, after, copy_ranges } => self
                .owners
                .copies
                .serve_next(copy, after.as_ref(), &copy_ranges)
                .map(|difference| encode_difference(&difference)),
        }
    }
}

impl ClusterHandler for ClusterRequests {
    fn handle(self: Arc<Self>, from: ServerId, request: Request, respond: Responder) {
        match request {
            Request::States { groups } if !groups.iter().any(|group| self.may_lead(*group)) => {
                let leader = |group: &GroupId| StateResponse::NotLeader(self.leadership.leader(*group));
                respond(Ok(encode_states(&groups.iter().map(leader).collect::<Vec<_>>())));
            }
            Request::History { group, after } => self.owners.feeds.read_here(group, after, respond),
            // Handled on this thread and without the log: a disk that hangs must not delay them.
            request @ (Request::Stalled { .. } | Request::Terms { .. }) => {
                respond(self.respond_to(from, request));
            }
            request if request.needs_log() && self.stalls.log_hangs() => {
                respond(Err("the log of this server makes no progress".to_owned()));
            }
            Request::HistoryOn { group } => match self.owners.feeds.history_end_here(group) {
                Some(end) => respond(Ok(end)),
                None => self.handle_on_thread(from, Request::HistoryOn { group }, respond),
            },
            request => self.handle_on_thread(from, request, respond),
        }
    }

    fn queries(&self) -> Option<&Arc<dyn RpcHandler>> {
        self.queries.get()
    }
}
