//! The client through which any node reads and changes the catalog. Its methods are in three files: the state and the
//! quorum here, the lookup of the leader in `leader`, changes in `change`.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::Guard;
use log::{Log, Members, PeerId};
use shard::Shard;

use super::display_names;
use super::snapshot::Catalog;
use super::view::CatalogView;
use crate::config::{CATALOG_GROUP, ReplicaConfig, ServerId};
use crate::error::AdminError;
use crate::locks::{Rank, RankedGuard, RankedMutex};
use crate::routing::{Leadership, ReplicaTransport};
use crate::rpc::Peers;

/// Reads and changes the catalog.
pub(crate) struct CatalogClient {
    pub(super) own: ServerId,
    pub(super) peers: Arc<Peers>,
    pub(super) transport: Arc<ReplicaTransport>,
    pub(super) leadership: Arc<Leadership>,
    pub(super) log: Arc<dyn Log>,
    /// The replica of the catalog on this node.
    pub(super) shard: Arc<Shard>,
    view: Arc<CatalogView>,
    /// Held during a change of the catalog by this node: one change at a time.
    changing: RankedMutex<()>,
}

impl CatalogClient {
    pub(crate) fn new(
        own: ServerId,
        transport: (Arc<Peers>, Arc<ReplicaTransport>),
        leadership: Arc<Leadership>,
        log: Arc<dyn Log>,
        shard: Arc<Shard>,
        view: Arc<CatalogView>,
    ) -> CatalogClient {
        let (peers, transport) = transport;
        CatalogClient {
            own,
            peers,
            transport,
            leadership,
            log,
            shard,
            view,
            changing: RankedMutex::new(Rank::CatalogChange, ()),
        }
    }

    /// The version of the catalog that this node shows.
    pub(crate) fn shown(&self) -> Arc<Catalog> {
        self.view.shown()
    }

    /// The version that this node shows, without touching its reference count; hold it briefly.
    pub(crate) fn guard(&self) -> Guard<Arc<Catalog>> {
        self.view.guard()
    }

    /// The holder of the version that this node shows, for threads that wait for a later version.
    pub(crate) fn view(&self) -> &CatalogView {
        &self.view
    }

    /// Waits until this node makes no other change of the catalog, and prevents others while the guard is held.
    pub(crate) fn lock_changes(&self) -> RankedGuard<'_, ()> {
        self.changing.lock()
    }

    /// As [`CatalogClient::lock_changes`], but returns `None` instead of waiting.
    pub(crate) fn try_lock_changes(&self) -> Option<RankedGuard<'_, ()>> {
        self.changing.try_lock()
    }

    /// Whether this node leads the catalog.
    pub(crate) fn leads(&self) -> bool {
        self.shard.is_leader()
    }

    /// Whether this server is a proxy: it serves clients and holds no data.
    pub(crate) fn is_proxy(&self) -> bool {
        self.guard().server(self.own).is_some_and(|server| server.is_proxy)
    }

    /// The other servers of the catalog that this one is connected to.
    pub(crate) fn connected_servers(&self) -> Vec<ServerId> {
        let catalog = self.shown();
        let others = catalog.servers().into_iter().map(|server| server.id);
        others.filter(|id| *id != self.own && self.peers.is_connected(*id)).collect()
    }

    /// Whether a quorum of these voters is on connected servers. `known` gives the servers of replicas; for others the
    /// transport is asked. The vote of a proxy does not count, nor does one whose server is unknown.
    pub(crate) fn is_quorum_connected(&self, members: &Members, known: &[ReplicaConfig]) -> bool {
        let servers = self.servers_of(&members.voters, known);
        let catalog = self.shown();
        let is_alive = |id: &ServerId| {
            self.peers.is_connected(*id) && !catalog.server(*id).is_some_and(|server| server.is_proxy)
        };
        let alive = servers.iter().flatten().filter(|server| is_alive(server)).count();
        alive * 2 > servers.len()
    }

    /// The server of each replica: by `known`, else by the transport; `None` if neither knows it.
    pub(crate) fn servers_of(&self, peers: &[PeerId], known: &[ReplicaConfig]) -> Vec<Option<ServerId>> {
        let server_of = |peer: &PeerId| {
            let known = known.iter().find(|replica| replica.peer == *peer);
            known.map(|replica| replica.server).or_else(|| self.transport.server_of(*peer))
        };
        peers.iter().map(server_of).collect()
    }

    /// Whether a quorum of the catalog's voters, by the local replica, is connected, so that the catalog can be changed.
    /// `catalog` names the servers of the voters.
    pub(crate) fn has_quorum(&self, catalog: &Catalog) -> bool {
        let status = self.log.group_status(CATALOG_GROUP);
        status.map_or_else(
            |_| self.has_configured_quorum(catalog),
            |status| self.is_quorum_connected(&status.members, &catalog.own_replicas()),
        )
    }

    /// Whether a quorum of the servers that `catalog` configures as its voters is connected. New ones may not vote yet.
    pub(crate) fn has_configured_quorum(&self, catalog: &Catalog) -> bool {
        let servers = catalog.servers();
        let voters = || servers.iter().filter(|server| server.catalog.voting);
        voters().filter(|server| self.peers.is_connected(server.id)).count() * 2 > voters().count()
    }

    /// The reason why the catalog cannot be changed while it has no leader.
    pub(crate) fn no_leader_error(&self) -> AdminError {
        let catalog = self.shown();
        if self.has_quorum(&catalog) {
            return AdminError::NoCatalog;
        }
        let voters = catalog.servers().into_iter().filter(|server| server.catalog.voting);
        let missing = voters.map(|server| server.id).filter(|server| !self.peers.is_connected(*server));
        let servers = display_names::servers(&catalog, &missing.collect::<BTreeSet<_>>());
        AdminError::CatalogNoQuorum { servers }
    }
}
