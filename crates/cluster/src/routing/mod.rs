//! Which replica leads each shard, as this node knows it, and which replicas are open here.
//!
//! A query asks a [`TableHandle`] for the [`ShardHandle`] of a key, and that for a [`Route`]. [`Leadership`] receives
//! every change of role from the log; [`LeaderLookup`] asks other servers where the log of this node does not say it.

pub(crate) mod disk_stalls;
pub(crate) mod known_leader;
pub(crate) mod lag;
pub(crate) mod leader_lookup;
pub(crate) mod leadership;
pub(crate) mod local_replicas;
pub(crate) mod readers;
pub(crate) mod replica_states;
mod replica_transport;
mod shard_handle;
mod table_handle;

pub(crate) use disk_stalls::DiskStalls;
pub use known_leader::KnownLeader;
pub use leader_lookup::LeaderLookup;
pub(crate) use leader_lookup::Led;
pub use leadership::Leadership;
pub(crate) use local_replicas::{Gate, LocalReplica, LocalReplicas};
pub(crate) use replica_states::ReplicaStates;
pub use replica_transport::ReplicaTransport;
pub use shard_handle::{Route, ShardHandle};
pub use table_handle::TableHandle;
pub(crate) use table_handle::shard_range;
