//! A node: opens and closes its replicas as the catalog says, runs its loops, and answers requests of other servers.
//!
//! [`Node::open`] builds the owners of all rooms. Two threads run then: `event_loop` follows the catalog (`publisher`,
//! `replica_host`), `reconcile_loop` brings the groups that this node leads to what the catalog says.

mod bootstrap;
mod core;
mod discard;
mod event_loop;
mod inbound;
mod incarnation;
mod join;
mod leftover_rows;
mod opening;
mod publisher;
mod reconcile_loop;
mod replica_host;
mod restart_state;
mod rpc_server;
mod stop;
mod table_state;
#[cfg(test)]
mod tests;
mod tombstone;
mod wiring;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use datum::{Object, Text};
use io::task::{self, Thread};
use io::{Clock, Files, Random};
use log::{GroupStatus, Log};
use shard::Replicas;

pub use self::core::Core;
pub use self::inbound::{Inbound, UNASSIGNED_PEER};
pub use self::join::{JoinOptions, join};
pub use self::table_state::{CatalogOutage, Readiness, ReplicaState, ShardState, TableStates, readiness};
pub use self::wiring::Wiring;

use self::bootstrap::NewServer;
use self::event_loop::EventLoop;
use self::publisher::Publisher;
use self::reconcile_loop::ReconcileLoop;
use self::replica_host::ReplicaHost;
use self::restart_state::RestartState;
use self::rpc_server::{ClusterRequests, Owners};
use crate::catalog::{
    Accounts, CatalogClient, CatalogReplica, CatalogView, Handles, Identity, Schema, Servers, ShardPlacer,
};
use crate::config::{CATALOG_GROUP, Ids, ServerId};
use crate::copy::Copies;
use crate::error::{AdminError, OpenError};
use crate::event_queue::{Event, EventQueue};
use crate::index::Indexes;
use crate::membership::{Connectivity, LogHealth, Membership, PositionLookup};
use crate::repair::{Repair, ServerRemoval};
use crate::reshard::{HandoverEnd, PendingHandovers, Resharder};
use crate::routing::{DiskStalls, LeaderLookup, LocalReplicas, ReplicaStates};

/// What a node is opened with.
pub struct NodeOptions {
    /// Its data directory, which exists and is locked by the caller.
    pub dir: PathBuf,
    /// The name of a new server.
    pub server_name: Text,
    /// The tags of a new server.
    pub server_tags: Vec<Text>,
    /// The cache of a new server in megabytes; `None` chooses.
    pub cache_size_mb: Option<u64>,
    /// Where other servers reach this one, `host:port`.
    pub addresses: Vec<Text>,
    /// Every shard of the engine, as the log applies to them.
    pub replicas: Arc<Replicas>,
    /// The log of all groups, which sends and reports through `wiring`.
    pub log: Arc<dyn Log>,
    /// What the log and the links report to.
    pub wiring: Wiring,
    /// The clock queries see.
    pub clock: Arc<dyn Clock>,
    /// The files of the data directory.
    pub files: Arc<dyn Files>,
    /// Where identities come from.
    pub random: Arc<dyn Random>,
    /// The password record of a new `admin`, and whether its password is not empty.
    pub admin_password: (Object, bool),
}

/// One server of the cluster and everything it holds. Dropping it ends its threads; the log and the engine end with their last
/// owner.
pub struct Node {
    core: Arc<Core>,
    threads: Vec<Thread>,
}

impl Deref for Node {
    type Target = Core;
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.core.stopping.store(true, Ordering::Release);
        self.core.handles.events.push(Event::Stop);
        for thread in self.threads.drain(..) {
            thread.unpark();
            thread.join();
        }
    }
}

impl Node {
    /// Opens the node: its identity (made in a new directory), the catalog, every replica that is placed here, and deletes what
    /// is left of those that are not.
    ///
    /// Blocks while the log is replayed. Fails when anything stored cannot be read. A node that has joined and does not have
    /// the catalog yet opens without one: [`Core::await_catalog`].
    pub fn open(options: NodeOptions) -> Result<Arc<Node>, OpenError> {
        Node::open_on(options, None)
    }

    /// As [`Node::open`], over a replica of the catalog that is open already.
    pub fn open_on(options: NodeOptions, catalog: Option<CatalogReplica>) -> Result<Arc<Node>, OpenError> {
        let identity = identity_in(&options)?;
        let open = || CatalogReplica::open(&identity, &options.replicas, &options.log, &options.wiring.peers);
        let catalog = catalog.map_or_else(open, Ok)?;
        let begun = options.log.group_status(CATALOG_GROUP).map_err(AdminError::from)?;
        let votes_alone = begun.members.voters == [begun.own] && !begun.needs_rows;
        report_changes(&options, &catalog);
        let is_first = identity.joined.is_none() && votes_alone;
        let (own, peer) = (identity.server, begun.own);
        let (server, admin_password) = (new_server(&options), options.admin_password.clone());
        let (core, event_loop, reconcile_loop) = build(options, identity, catalog, &begun);
        core.publisher.publish()?;
        let threads = vec![
            task::spawn("keeper", move || event_loop.run())?,
            task::spawn("tender", move || reconcile_loop.run())?,
        ];
        let node = Arc::new(Node { core, threads });
        let (client, ids) = (&node.handles.catalog, &node.handles.ids);
        // A server with other voters wrote these before they joined; it may not have applied them again yet.
        if is_first {
            bootstrap::write_first_rows(client, ids, admin_password)?;
            bootstrap::write_own_row(client, own, peer, &server)?;
        }
        if node.catalog().user("admin").is_some() {
            node.sweep_left_behind()?;
        }
        Ok(node)
    }
}

/// The identity of the node in a data directory; a new one bootstraps a cluster.
fn identity_in(options: &NodeOptions) -> Result<Identity, OpenError> {
    if let Some(identity) = Identity::load(&*options.files, &options.dir)? {
        return Ok(identity);
    }
    let ids = Ids::new(options.random.clone());
    let identity = Identity { server: ServerId(ids.new_uuid()), cluster: ids.new_uuid(), joined: None };
    identity.store(&*options.files, &options.dir)?;
    Ok(identity)
}

fn new_server(options: &NodeOptions) -> NewServer {
    NewServer {
        name: options.server_name.clone(),
        tags: options.server_tags.clone(),
        cache_size_mb: options.cache_size_mb,
        addresses: options.addresses.clone(),
    }
}

/// Pushes an event whenever rows of the catalog or seals were applied. The shards do not keep the queue alive.
fn report_changes(options: &NodeOptions, catalog: &CatalogReplica) {
    let events = Arc::downgrade(&options.wiring.events);
    catalog.shard.on_applied(Box::new(move |_| push(&events, Event::Catalog)));
    let events = Arc::downgrade(&options.wiring.events);
    options.replicas.on_seal_change(Box::new(move |group| push(&events, Event::SealChanged(group))));
}

fn push(events: &Weak<EventQueue>, event: Event) {
    if let Some(events) = events.upgrade() {
        events.push(event);
    }
}

/// The handles of the rooms below `membership`.
fn handles_of(
    options: &NodeOptions,
    own: ServerId,
    catalog: &CatalogReplica,
) -> (Handles, Arc<ReplicaStates>) {
    let wiring = &options.wiring;
    let (peers, transport, leadership) =
        (wiring.peers.clone(), wiring.transport.clone(), wiring.leadership.clone());
    let (log, ids) = (options.log.clone(), Ids::new(options.random.clone()));
    let local = Arc::new(LocalReplicas::new(catalog.shard.clone()));
    let stalls = Arc::<DiskStalls>::default();
    let states = Arc::new(ReplicaStates::new(log.clone(), leadership.clone(), local.clone(), stalls.clone()));
    let leaders = LeaderLookup::new(own, peers.clone(), leadership.clone(), local.clone(), states.clone());
    let client = CatalogClient::new(
        own,
        (peers.clone(), transport.clone()),
        leadership.clone(),
        log.clone(),
        catalog.shard.clone(),
        Arc::<CatalogView>::default(),
    );
    let handles = Handles {
        own,
        placer: Arc::new(ShardPlacer::new(own, peers.clone(), stalls.clone(), ids.clone())),
        peers,
        transport,
        leadership,
        leaders: Arc::new(leaders),
        log,
        replicas: options.replicas.clone(),
        local,
        stalls,
        catalog: Arc::new(client),
        ids,
        clock: options.clock.clone(),
        events: wiring.events.clone(),
        state_changes: wiring.state_changes.clone(),
    };
    (handles, states)
}

/// Builds the owners of all rooms.
fn build(
    options: NodeOptions,
    identity: Identity,
    catalog: CatalogReplica,
    begun: &GroupStatus,
) -> (Arc<Core>, EventLoop, ReconcileLoop) {
    let (handles, states) = handles_of(&options, identity.server, &catalog);
    let stopping = Arc::<AtomicBool>::default();
    let pending = Arc::<PendingHandovers>::default();
    let restart = Arc::new(RestartState::new(options.log.clone(), begun.last));
    let connectivity = Arc::new(Connectivity::new(&handles));
    let positions = Arc::new(PositionLookup::new(&handles));
    let membership = Arc::new(Membership::new(&handles, positions.clone()));
    let health = Arc::new(LogHealth::new(&handles));
    let handovers = Arc::new(HandoverEnd::new(&handles, pending.clone()));
    let resharder =
        Arc::new(Resharder::new(&handles, membership.clone(), positions.clone(), handovers.clone()));
    let repair = Arc::new(Repair::new(&handles, positions.clone(), connectivity.clone()));
    let removal =
        Arc::new(ServerRemoval::new(&handles, positions.clone(), connectivity.clone(), repair.clone()));
    let copies = Arc::new(Copies::new(&handles, stopping.clone()));
    let indexes = Arc::new(Indexes::new(&handles));
    let servers = Arc::new(Servers::new(handles.own, handles.catalog.clone()));
    let host = Arc::new(ReplicaHost::new(&handles, membership.clone(), pending.clone(), restart.clone()));
    let publisher = Arc::new(Publisher::new(
        &handles,
        catalog.shard,
        host.clone(),
        indexes.clone(),
        pending.clone(),
        restart.clone(),
    ));
    let owners = Owners {
        health: health.clone(),
        positions,
        handovers: handovers.clone(),
        resharder: resharder.clone(),
        repair: repair.clone(),
        copies: copies.clone(),
        states,
    };
    let requests = Arc::new(ClusterRequests::new(&handles, owners));
    let event_loop = EventLoop {
        events: handles.events.clone(),
        publisher: publisher.clone(),
        copies: copies.clone(),
        pending,
        restart,
    };
    let reconcile_loop = ReconcileLoop {
        peers: handles.peers.clone(),
        catalog: handles.catalog.clone(),
        membership,
        resharder: resharder.clone(),
        handovers,
        removal: removal.clone(),
        servers: servers.clone(),
        host,
        copies: copies.clone(),
        stopping: stopping.clone(),
    };
    let core = Core {
        first_name: options.server_name,
        started: (handles.clock.now(), handles.clock.unix()),
        random: options.random,
        schema: Schema::new(handles.catalog.clone(), handles.placer.clone(), handles.ids.clone()),
        accounts: Accounts::new(handles.catalog.clone()),
        states: TableStates::new(&handles, connectivity.clone()),
        identity,
        handles,
        stopping,
        publisher,
        requests,
        servers,
        resharder,
        repair,
        removal,
        indexes,
        copies,
        health,
        connectivity,
    };
    (Arc::new(core), event_loop, reconcile_loop)
}
