//! The handles that the owners in `copy`, `membership`, `reshard`, `repair` and `node` are built from.

use std::sync::Arc;

use io::Clock;
use log::Log;
use shard::Replicas;

use super::client::CatalogClient;
use super::shard_placer::ShardPlacer;
use crate::config::{Ids, ServerId};
use crate::events::EventQueue;
use crate::events::Notifier;
use crate::routing::{DiskStalls, LeaderLookup, Leadership, LocalReplicas, ReplicaTransport};
use crate::rpc::Peers;

/// Handles to the owners in `rpc`, `routing` and `catalog`, and to the log. Used only while a node is assembled: the
/// constructor of an owner that needs many of them takes all and keeps the handles that the owner uses.
pub(crate) struct Handles {
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
    /// Notified of every change of leaders, connections, the catalog and copies.
    pub(crate) state_changes: Arc<Notifier>,
}
