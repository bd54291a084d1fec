//! Builds a node: the owners of all rooms, from the bottom up, and the loops that its threads run.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use log::{GroupStatus, Lsn};
use shard::Shard;

use super::NodeOptions;
use super::cluster_requests::{ClusterRequests, Owners};
use super::core::Core;
use super::event_loop::EventLoop;
use super::publisher::Publisher;
use super::reconcile_loop::ReconcileLoop;
use super::replica_host::ReplicaHost;
use super::restart_state::RestartState;
use super::table_state::TableStates;
use crate::catalog::{
    Accounts, CatalogClient, CatalogReplica, CatalogView, Handles, Identity, Schema, Servers, ShardPlacer,
};
use crate::config::{Ids, ServerId};
use crate::copy::{Copies, DamageRepair};
use crate::feeds::{Feeds, FeedsWorker};
use crate::index::Indexes;
use crate::membership::{Connectivity, Membership, PositionLookup, StallMonitor};
use crate::repair::{Repair, ServerRemoval};
use crate::reshard::{HandoverEnd, PendingHandovers, Resharder};
use crate::routing::{DiskStalls, LeaderLookup, LocalReplicas, ReplicaStates};

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

/// The owners of the rooms that use `catalog`, and the state that the loops share.
struct Rooms {
    stopping: Arc<AtomicBool>,
    pending: Arc<PendingHandovers>,
    restart: Arc<RestartState>,
    connectivity: Arc<Connectivity>,
    positions: Arc<PositionLookup>,
    membership: Arc<Membership>,
    handovers: Arc<HandoverEnd>,
    resharder: Arc<Resharder>,
    repair: Arc<Repair>,
    copies: Arc<Copies>,
    indexes: Arc<Indexes>,
    host: Arc<ReplicaHost>,
    publisher: Arc<Publisher>,
    stall_monitor: Arc<StallMonitor>,
    feeds: Arc<Feeds>,
}

impl Rooms {
    fn new(handles: &Handles, catalog: Arc<Shard>, catalog_end: Lsn, feeds: Arc<Feeds>) -> Rooms {
        let stopping = Arc::<AtomicBool>::default();
        let pending = Arc::<PendingHandovers>::default();
        let restart = Arc::new(RestartState::new(handles.log.clone(), catalog_end));
        let Handles { own, peers, catalog: client, log, .. } = handles;
        let connectivity = Arc::new(Connectivity::new(*own, peers.clone(), client.clone()));
        let positions = PositionLookup::new(*own, peers.clone(), log.clone(), handles.stalls.clone());
        let positions = Arc::new(positions);
        let membership = Arc::new(Membership::new(handles, positions.clone()));
        let handovers = Arc::new(HandoverEnd::new(handles, pending.clone()));
        let resharder = Resharder::new(handles, membership.clone(), positions.clone(), handovers.clone());
        let repair = Repair::new(handles, positions.clone(), connectivity.clone());
        let host = Arc::new(ReplicaHost::new(handles, membership.clone(), pending.clone(), restart.clone()));
        let (leaders, replicas) = (handles.leaders.clone(), handles.replicas.clone());
        let indexes = Arc::new(Indexes::new(client.clone(), leaders, replicas));
        let (opened, built) = (host.clone(), indexes.clone());
        let followers = (built, feeds.clone());
        let publisher = Publisher::new(handles, catalog, opened, followers, pending.clone(), restart.clone());
        Rooms {
            copies: Arc::new(Copies::new(handles, stopping.clone())),
            publisher: Arc::new(publisher),
            resharder: Arc::new(resharder),
            repair: Arc::new(repair),
            stall_monitor: Arc::new(StallMonitor::new(handles)),
            feeds,
            host,
            indexes,
            stopping,
            pending,
            restart,
            connectivity,
            positions,
            membership,
            handovers,
        }
    }

    /// The owners that serve requests of other servers.
    fn owners(&self, states: Arc<ReplicaStates>) -> Owners {
        Owners {
            stall_monitor: self.stall_monitor.clone(),
            positions: self.positions.clone(),
            handovers: self.handovers.clone(),
            resharder: self.resharder.clone(),
            repair: self.repair.clone(),
            copies: self.copies.clone(),
            feeds: self.feeds.clone(),
            states,
        }
    }
}

/// Builds the core of a node, and the loops that its threads run.
pub(super) fn build(
    options: NodeOptions,
    identity: Identity,
    catalog: CatalogReplica,
    catalog_status: &GroupStatus,
) -> (Arc<Core>, EventLoop, ReconcileLoop, FeedsWorker) {
    let (handles, states) = handles_of(&options, identity.server, &catalog);
    let (feeds, feeds_worker) = Feeds::new(&handles, options.feed_retention);
    let rooms = Rooms::new(&handles, catalog.shard, catalog_status.last, Arc::new(feeds));
    let requests = Arc::new(ClusterRequests::new(&handles, rooms.owners(states)));
    let Rooms { stopping, pending, restart, connectivity, positions, membership, handovers, .. } = rooms;
    let Rooms { resharder, repair, copies, indexes, host, publisher, stall_monitor, feeds, .. } = rooms;
    let removal = ServerRemoval::new(&handles, positions, connectivity.clone(), repair.clone());
    let (removal, servers) =
        (Arc::new(removal), Arc::new(Servers::new(handles.own, handles.catalog.clone())));
    let event_loop = EventLoop {
        events: handles.events.clone(),
        publisher: publisher.clone(),
        copies: copies.clone(),
        pending,
        restart,
    };
    let damage_repair = Arc::new(DamageRepair::new(&handles, copies.clone(), stopping.clone()));
    let reconcile_loop = ReconcileLoop {
        damage_repair,
        peers: handles.peers.clone(),
        catalog: handles.catalog.clone(),
        membership,
        resharder: resharder.clone(),
        handovers,
        removal: removal.clone(),
        servers: servers.clone(),
        host,
        copies: copies.clone(),
        feeds: feeds.clone(),
        stopping: stopping.clone(),
    };
    let core = Core {
        first_name: options.server_name,
        started: (handles.clock.now(), handles.clock.unix()),
        random: options.random,
        schema: Schema::new(handles.catalog.clone(), handles.placer.clone(), handles.ids.clone()),
        accounts: Accounts::new(handles.catalog.clone()),
        states: TableStates::new(&handles, connectivity.clone()),
        peers: handles.peers,
        transport: handles.transport,
        leaders: handles.leaders,
        log: handles.log,
        replicas: handles.replicas,
        local: handles.local,
        catalog: handles.catalog,
        ids: handles.ids,
        clock: handles.clock,
        events: handles.events,
        identity,
        stopping,
        publisher,
        requests,
        servers,
        resharder,
        repair,
        removal,
        indexes,
        copies,
        feeds,
        stall_monitor,
        connectivity,
    };
    (Arc::new(core), event_loop, reconcile_loop, feeds_worker)
}
