//! The way from a query to the server that has a shard: the clients of remote procedure calls, and the search for a
//! shard's leader.
//!
//! - [`peers`], [`read_batch`]: requests to other nodes, one by one and several reads in one
//! - [`leader_lookup`], [`known_leaderless`]: who leads a shard
//! - [`failover`]: requests to servers that do not respond
//! - [`read_mode`]: which replicas may serve a read

mod failover;
mod known_leaderless;
mod leader_lookup;
mod peers;
mod read_batch;
mod read_mode;

pub(crate) use failover::{Failover, FailoverTo};
pub(crate) use known_leaderless::LEADER_LOOKUP_TIMEOUT;
pub(crate) use leader_lookup::{LeaderLookup, LookupAttempts, backoff_after};
pub use peers::Peers;
pub(crate) use peers::{
    CallError, CallbackTask, EncodedRequest, LONG, OneShot, RemoteError, ResponseSlot, SHORT,
};
pub(crate) use read_batch::{BATCH_KEYS_MAX, BatchKey, BatchRpc, ReadBatches, RowSlot, RowUnavailable};
pub(crate) use read_mode::ReadMode;
