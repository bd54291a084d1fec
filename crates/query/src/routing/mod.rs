//! How a query reaches the server that has a shard: calls to other nodes, and the lookup of leaders.
//!
//! - [`remote_calls`], [`read_batch`]: calls to other nodes, one by one or several reads in one request
//! - [`shared_leader_lookup`], [`known_leaderless`]: which server leads a shard
//! - [`failover`]: ends calls to servers that hang
//! - [`read_mode`]: which replicas may serve a read

mod failover;
mod known_leaderless;
mod read_batch;
mod read_mode;
mod remote_calls;
mod shared_leader_lookup;

pub(crate) use failover::{Failover, FailoverTo};
pub(crate) use known_leaderless::LEADER_LOOKUP_TIMEOUT;
pub(crate) use read_batch::{BATCH_KEYS_MAX, BatchKey, BatchRpc, ReadBatches, RowSlot, RowUnavailable};
pub(crate) use read_mode::ReadMode;
pub use remote_calls::RemoteCalls;
pub(crate) use remote_calls::{
    CallError, CallbackTask, EncodedRequest, LONG_CALL_TIMEOUT, OneShot, RemoteError, ResponseSlot,
    SHORT_CALL_TIMEOUT,
};
pub(crate) use shared_leader_lookup::{LookupAttempts, SharedLeaderLookup, backoff_after};
