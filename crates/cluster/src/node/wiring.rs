//! The parts of a node that exist before its log and its links, which report to them.

use std::sync::Arc;

use shard::Replicas;

use crate::events::EventQueue;
use crate::events::Notifier;
use crate::routing::{Leadership, ReplicaTransport};
use crate::rpc::Peers;

/// The parts of a node that its log and its links need. The log sends through `transport` and reports to `leadership`.
#[derive(Clone)]
pub struct Wiring {
    /// The other servers.
    pub peers: Arc<Peers>,
    /// Sends the messages of replicas.
    pub transport: Arc<ReplicaTransport>,
    /// Receives changes of replicas' roles and leaders.
    pub leadership: Arc<Leadership>,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) state_changes: Arc<Notifier>,
}

impl Wiring {
    /// The wiring of a node whose shards are `replicas`. Messages and requests are dropped until the peers are connected.
    #[must_use]
    pub fn new(replicas: Arc<Replicas>) -> Wiring {
        let (peers, events) = (Arc::<Peers>::default(), Arc::<EventQueue>::default());
        let state_changes = Arc::<Notifier>::default();
        let transport = Arc::new(ReplicaTransport::new(peers.clone()));
        let leadership = Arc::new(Leadership::new(
            peers.clone(),
            transport.clone(),
            replicas,
            events.clone(),
            state_changes.clone(),
        ));
        Wiring { peers, transport, leadership, events, state_changes }
    }
}
