//! How a query reaches the server that has a shard: calls to other nodes, and the lookup of leaders.
//!
//! - [`peers`], [`read_batch`]: calls to other nodes, one by one or several reads in one request
//! - [`leader_lookup`], [`known_leaderless`]: which server leads a shard
//! - [`failover`]: ends calls to servers that hang
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
    CallError, CallbackTask, EncodedRequest, LONG_CALL_TIMEOUT, OneShot, RemoteError, ResponseSlot,
    SHORT_CALL_TIMEOUT,
};
pub(crate) use read_batch::{BATCH_KEYS_MAX, BatchKey, BatchRpc, ReadBatches, RowSlot, RowUnavailable};
pub(crate) use read_mode::ReadMode;
