//! Gives tables other shards: splits, merges and moves them while they are served. No rows are copied for a split: the present
//! groups are sealed, and new groups take over the rows where they are. Decision 0024.
//!
//! [`Resharder`] is asked for a change. `plan` works out what is to be done, and adds temporary replicas where a new shard has no
//! server with all of its rows; `seal` carries it out; `handover` ends it on each server.

mod change_table;
mod handover;
mod pending_handovers;
mod plan;
mod quorum;
mod rebalance;
mod removal_wait;
mod resharder;
mod seal;
mod shard_layout;
mod split_points;
mod table_change;
mod temporary_replicas;

pub(crate) use handover::HandoverEnd;
pub(crate) use pending_handovers::PendingHandovers;
pub(crate) use quorum::{CONNECTION_CHECK_INTERVAL, QUORUM_TIMEOUT};
pub(crate) use resharder::ReshardAges;
pub use resharder::Resharder;
pub use table_change::TableChange;
