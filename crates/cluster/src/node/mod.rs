//! A node: opens and closes replicas according to the catalog, runs the two loops, and handles requests of other servers.
//!
//! [`Node::open`] builds the owners of all rooms ([`Core`] holds them) and starts two threads:
//!
//! - `event_loop` follows the catalog. `publisher` reads each new version and shows it; `replica_host` opens the replicas
//!   that it places here (`opening` decides when) and discards the others. Data is deleted only once the replica's
//!   tombstone is durable (`tombstone`, `leftover_rows`). `restart_state` tells whether the catalog has caught up since the
//!   start: nothing is discarded because of an older version.
//! - `reconcile_loop` makes the next change in each group that this node leads: members, leadership, the continuation of
//!   a reshard, the removal of servers and proxies.
//!
//! Other threads enter through `inbound` (messages and requests from the links), `cluster_requests` (cluster requests),
//! `table_state` (states of tables for queries), `join` (before the node is opened) and `stop` (before it is dropped).
//!
//! When the disk of a leader hangs or is full, other servers elect leaders and this one steps down (`membership::step_down`).
//! Meanwhile `cluster_requests` rejects at once the requests that need the log; it handles reports of stalls, and requests
//! for the terms of groups, without the log. On a full disk `tombstone` keeps the data of removed replicas until their
//! tombstones can be written.

mod assembly;
mod bootstrap;
mod cluster_requests;
mod core;
mod event_loop;
mod inbound;
mod join;
mod leftover_rows;
mod opening;
mod publisher;
mod reconcile_loop;
mod replica_host;
mod restart_state;
mod stop;
mod table_state;
#[cfg(test)]
mod tests;
mod tombstone;
mod wiring;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use datum::{Object, Text};
use io::task::{self, Thread};
use io::{Clock, Files, Random};
use log::Log;
use shard::Replicas;

pub use self::core::Core;
pub use self::inbound::{Inbound, UNASSIGNED_PEER};
pub use self::join::{JoinOptions, join};
pub use self::table_state::{CatalogOutage, Readiness, ReplicaState, ShardState, TableStates, readiness};
pub use self::wiring::Wiring;

use self::bootstrap::NewServer;
use crate::catalog::{CatalogReplica, Identity};
use crate::config::{CATALOG_GROUP, Ids, ServerId};
use crate::error::{AdminError, OpenError};
use crate::events::{Event, EventQueue};

/// The options to open a node.
pub struct NodeOptions {
    /// Its data directory, which exists and is locked by the caller.
    pub dir: PathBuf,
    /// The name of a new server.
    pub server_name: Text,
    /// The tags of a new server.
    pub server_tags: Vec<Text>,
    /// The cache of a new server in megabytes; `None` chooses a size.
    pub cache_size_mb: Option<u64>,
    /// The addresses at which other servers reach this one, `host:port`.
    pub addresses: Vec<Text>,
    /// Every shard of the engine, as the log applies to them.
    pub replicas: Arc<Replicas>,
    /// The log of all groups, which sends and reports through `wiring`.
    pub log: Arc<dyn Log>,
    /// The parts of the node that the log and the links report to.
    pub wiring: Wiring,
    /// The clock of queries.
    pub clock: Arc<dyn Clock>,
    /// The files of the data directory.
    pub files: Arc<dyn Files>,
    /// The source of new ids.
    pub random: Arc<dyn Random>,
    /// How long changefeeds can be resumed: the history of a group stays on for this long after its last use.
    pub feed_retention: Duration,
    /// The password record of a new `admin`, and whether its password is not empty.
    pub admin_password: (Object, bool),
}

/// One server of the cluster with its replicas. Dropping it ends its threads; the log and the engine end with their last
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
        self.core.events.push(Event::Stop);
        self.core.feeds.stop();
        for thread in self.threads.drain(..) {
            thread.unpark();
            thread.join();
        }
    }
}

impl Node {
    /// Opens the node: its identity (created in a new directory), the catalog, and every replica that is placed here.
    /// Deletes the remains of replicas that are not.
    ///
    /// Blocks while the log is replayed. Fails if anything stored cannot be read. A node that has joined and does not
    /// have the catalog yet opens without one: [`Core::await_catalog`].
    pub fn open(options: NodeOptions) -> Result<Arc<Node>, OpenError> {
        Node::open_on(options, None)
    }

    /// As [`Node::open`], over a replica of the catalog that is open already.
    pub fn open_on(options: NodeOptions, catalog: Option<CatalogReplica>) -> Result<Arc<Node>, OpenError> {
        let identity = identity_in(&options)?;
        let open = || CatalogReplica::open(&identity, &options.replicas, &options.log, &options.wiring.peers);
        let catalog = catalog.map_or_else(open, Ok)?;
        let catalog_status = options.log.group_status(CATALOG_GROUP).map_err(AdminError::from)?;
        let votes_alone = catalog_status.members.voters == [catalog_status.own] && !catalog_status.needs_rows;
        report_changes(&options, &catalog);
        let is_first = identity.joined.is_none() && votes_alone;
        let (own, peer) = (identity.server, catalog_status.own);
        let (server, admin_password) = (new_server(&options), options.admin_password.clone());
        let (core, event_loop, reconcile_loop, feeds_worker) =
            assembly::build(options, identity, catalog, &catalog_status);
        core.publisher.publish()?;
        let threads = vec![
            task::spawn("event-loop", move || event_loop.run())?,
            task::spawn("reconcile", move || reconcile_loop.run())?,
            task::spawn("feeds", move || feeds_worker.run())?,
        ];
        let node = Arc::new(Node { core, threads });
        let (client, ids) = (&node.catalog, &node.ids);
        // If there are other voters, these rows were written before they joined, and may just not be applied again yet.
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

/// Pushes an event whenever rows of the catalog or a seal were applied. The shards hold the queue weakly.
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
