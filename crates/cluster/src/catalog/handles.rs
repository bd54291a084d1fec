//! The handles from which the owners of the rooms above are built.

use std::sync::Arc;

use io::Clock;
use log::Log;
use shard::Replicas;

use super::client::CatalogClient;
use super::shard_placer::ShardPlacer;
use crate::config::{Ids, ServerId};
use crate::event_queue::EventQueue;
use crate::notifier::Notifier;
use crate::routing::{DiskStalls, LeaderLookup, Leadership, LocalReplicas, ReplicaTransport};
use crate::rpc::Peers;

/// What the rooms below offer. Each owner keeps only the handles that it uses.
pub(crate) struct Handles {
    /// This server.
    pub(crate) own: ServerId,
    pub(crate) peers: Arc<Peers>,
    pub(crate) transport: Arc<ReplicaTransport>,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) leaders: Arc<LeaderLookup>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) local: Arc<LocalReplicas>,
    pub(crate) stalls: Arc<DiskStalls>,
    pub(crate) catalog: Arc<CatalogClient>,
    pub(crate) placer: Arc<ShardPlacer>,
    pub(crate) ids: Ids,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) events: Arc<EventQueue>,
    /// Notified of every change of the state of replicas: leaders, connections, the catalog, copies.
    pub(crate) state_changes: Arc<Notifier>,
}
