//! Routes to shards: the leaders that this node knows, and the replicas that are open on it.
//!
//! - [`TableHandle`], [`ShardHandle`], [`Route`]: a query gets the handle of a key's shard from its table, and from the
//!   handle a route to the leader or to any replica.
//! - [`KnownLeader`]: the leader of one group, shared by all handles of the group.
//! - [`Leadership`]: receives roles and voters from the log; steps down from groups while the log makes no progress.
//! - [`LeaderLookup`], [`ReplicaStates`]: ask other servers for leaders and the state of their replicas; respond with
//!   the local ones.
//! - [`LocalReplicas`], [`Gate`]: the replicas that are open on this node, and the gates through which copies
//!   read and write their rows until the replica is discarded.
//! - [`ReplicaTransport`]: sends the messages of replicas to the servers that hold the receiving replicas, and passes received
//!   ones to the log.
//! - [`DiskStalls`]: stalls of this server's log and of other servers' logs.
//! - `readers`, `lag`: the servers to read from; how far a replica may be behind its leader.
//!
//! Locks: all have ranks in `locks`. Three locks are held while further ones are taken: the own log
//! of [`DiskStalls`], while it calls [`Leadership::step_down`]; the roles of [`Leadership`], while it updates a
//! [`KnownLeader`] and notifies the event loop; and its table of known leaders, while it reads one of them. The others are
//! leaves.

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
