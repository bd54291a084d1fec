//! The core of a node: its identity and its owners, as queries and operators use them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::Guard;
use datum::Text;
use engine::Engine;
use io::{Clock, Nanos, Random};
use log::{Log, PeerId};
use shard::{Replicas, Shard};
use uuid::Uuid;

use super::cluster_requests::ClusterRequests;
use super::publisher::Publisher;
use super::table_state::TableStates;
use crate::catalog::{Accounts, Catalog, CatalogClient, CatalogWatcher, Identity, Schema, Servers};
use crate::config::{GroupId, Ids, ServerId};
use crate::copy::Copies;
use crate::error::AdminError;
use crate::events::EventQueue;
use crate::feeds::Feeds;
use crate::index::Indexes;
use crate::membership::{Connectivity, StallMonitor};
use crate::repair::{Repair, ServerRemoval};
use crate::reshard::Resharder;
use crate::routing::{LeaderLookup, LocalReplicas, ReplicaTransport};
use crate::rpc::{Peers, QueryRpcClient, RpcClient, RpcHandler, RpcServer};

/// The state that the threads of a node share with its users.
pub struct Core {
    pub(super) identity: Identity,
    /// The name of the server until the catalog has its row.
    pub(super) first_name: Text,
    /// The monotonic clock and the wall clock at the start.
    pub(super) started: (Nanos, Duration),
    pub(super) random: Arc<dyn Random>,
    pub(super) peers: Arc<Peers>,
    pub(super) transport: Arc<ReplicaTransport>,
    pub(super) leaders: Arc<LeaderLookup>,
    pub(super) log: Arc<dyn Log>,
    pub(super) replicas: Arc<Replicas>,
    pub(super) local: Arc<LocalReplicas>,
    pub(super) catalog: Arc<CatalogClient>,
    pub(super) ids: Ids,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) events: Arc<EventQueue>,
    pub(super) stopping: Arc<AtomicBool>,
    pub(super) publisher: Arc<Publisher>,
    pub(super) requests: Arc<ClusterRequests>,
    pub(super) schema: Schema,
    pub(super) accounts: Accounts,
    pub(super) servers: Arc<Servers>,
    pub(super) resharder: Arc<Resharder>,
    pub(super) repair: Arc<Repair>,
    pub(super) removal: Arc<ServerRemoval>,
    pub(super) indexes: Arc<Indexes>,
    pub(super) copies: Arc<Copies>,
    pub(super) feeds: Arc<Feeds>,
    pub(super) stall_monitor: Arc<StallMonitor>,
    pub(super) connectivity: Arc<Connectivity>,
    pub(super) states: TableStates,
}

/// The owners.
impl Core {
    /// Databases and tables.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Users and permissions.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The servers' settings in the catalog.
    #[must_use]
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// The settings and the shards of tables.
    #[must_use]
    pub fn resharder(&self) -> &Resharder {
        &self.resharder
    }

    /// Emergency repair.
    #[must_use]
    pub fn repair(&self) -> &Repair {
        &self.repair
    }

    #[must_use]
    pub fn removal(&self) -> &ServerRemoval {
        &self.removal
    }

    #[must_use]
    pub fn indexes(&self) -> &Arc<Indexes> {
        &self.indexes
    }

    /// Copies of replicas' rows.
    #[must_use]
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// Changefeeds.
    #[must_use]
    pub fn feeds(&self) -> &Feeds {
        &self.feeds
    }

    /// The stalls of this server's log and of others.
    #[must_use]
    pub fn stall_monitor(&self) -> &StallMonitor {
        &self.stall_monitor
    }

    /// The connections between servers.
    #[must_use]
    pub fn connectivity(&self) -> &Connectivity {
        &self.connectivity
    }

    #[must_use]
    pub fn states(&self) -> &TableStates {
        &self.states
    }

    #[must_use]
    pub fn leaders(&self) -> &LeaderLookup {
        &self.leaders
    }

    /// The other servers.
    #[must_use]
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The transport of messages between replicas, which knows the server of each replica.
    #[must_use]
    pub fn transport(&self) -> &ReplicaTransport {
        &self.transport
    }

    /// The log of all groups on this node.
    #[must_use]
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// The engine under all tables.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        self.replicas.engine()
    }

    /// All shards of the engine.
    #[must_use]
    pub fn replicas(&self) -> &Arc<Replicas> {
        &self.replicas
    }

    /// The clock that queries see.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The source of randomness of queries.
    #[must_use]
    pub fn random(&self) -> &Arc<dyn Random> {
        &self.random
    }
}

/// The node itself.
impl Core {
    /// The identity of this server.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The present name of this server.
    #[must_use]
    pub fn name(&self) -> Text {
        let catalog = self.catalog_guard();
        catalog.server(self.identity.server).map_or_else(|| self.first_name.clone(), |own| own.name.clone())
    }

    /// Whether this server is a proxy: it holds no data and only serves clients.
    #[must_use]
    pub fn is_proxy(&self) -> bool {
        self.catalog.is_proxy()
    }

    /// The time since the Unix epoch at `at`, by the wall clock as it was set when this node was opened.
    #[must_use]
    pub fn unix_at(&self, at: Nanos) -> Duration {
        let (now, unix) = self.started;
        (unix + at.since(now)).saturating_sub(now.since(at))
    }

    /// A random UUID of version 4.
    #[must_use]
    pub fn new_uuid(&self) -> Uuid {
        self.ids.new_uuid()
    }

    /// The version of the catalog that this node shows.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.shown()
    }

    /// As [`Core::catalog`], without a change of the reference count. Hold the guard briefly.
    #[must_use]
    pub fn catalog_guard(&self) -> Guard<Arc<Catalog>> {
        self.catalog.guard()
    }

    /// Waits until this node shows this version of the catalog or a later one; returns false if that takes longer than
    /// `timeout`.
    pub fn await_catalog_version(&self, version: u64, timeout: Duration) -> bool {
        self.catalog.await_version(version, timeout)
    }

    /// Calls `watcher` with the catalog, now and whenever it has changed. Only the first watcher is kept.
    pub fn watch_catalog(&self, watcher: CatalogWatcher) {
        self.publisher.watch(watcher);
    }

    /// Returns once the change of the catalog that this node is making, if any, is published or has failed. A query that was
    /// rejected by a retired shard waits here before it looks up the shard again.
    pub fn await_change(&self) {
        drop(self.catalog.lock_changes());
    }

    /// Shows at least the version of the catalog that was committed when this was called, if its leader responds. Whether
    /// that is newer than the version shown before. For a caller that misses something that another node may just have
    /// created.
    pub fn catch_up(&self, timeout: Duration) -> bool {
        self.catalog.catch_up(timeout)
    }

    /// Returns once this node shows a catalog that contains it; false if that takes longer than `timeout`. Only a node
    /// that has just joined does not show one.
    pub fn await_catalog(&self, timeout: Duration) -> bool {
        self.publisher.await_catalog(timeout)
    }

    /// Deletes the remains of removed replicas, tables and indexes that a crash left behind.
    ///
    /// Deferred while the catalog shown here may be older than the version that this node last acted on: data that the later
    /// version places here would look left behind. The node sweeps by itself as soon as the catalog has caught up.
    pub fn sweep_left_behind(&self) -> Result<(), AdminError> {
        self.publisher.sweep()
    }

    /// Whether `server` is connected now. A node is always connected to itself.
    #[must_use]
    pub fn is_connected(&self, server: ServerId) -> bool {
        self.peers.is_connected(server)
    }

    /// The other servers of the catalog that this one is connected to.
    #[must_use]
    pub fn connected_servers(&self) -> Vec<ServerId> {
        self.catalog.connected_servers()
    }

    /// The server that a replica is on, as far as this node knows.
    #[must_use]
    pub fn server_of(&self, peer: PeerId) -> Option<ServerId> {
        self.transport.server_of(peer)
    }

    /// The replica of a group on this node.
    #[must_use]
    pub fn shard_of(&self, group: GroupId) -> Option<Arc<Shard>> {
        self.local.shard_of(group)
    }

    /// Sets the handler of the requests of other servers' queries. Only the first call counts.
    pub fn set_query_handler(&self, queries: Arc<dyn RpcHandler>) {
        self.requests.set_queries(queries);
    }

    /// Sends the requests of queries to other servers; `None` on a node that is alone.
    #[must_use]
    pub fn query_client(&self) -> Option<Arc<dyn RpcClient>> {
        self.peers.transport()?;
        Some(Arc::new(QueryRpcClient(self.peers.clone())))
    }

    /// Serves the requests of other servers.
    #[must_use]
    pub fn rpc_server(&self) -> RpcServer {
        let requests = Arc::downgrade(&self.requests);
        RpcServer::new(requests)
    }
}
