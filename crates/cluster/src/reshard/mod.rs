//! Resharding: splits, merges and moves the shards of a table while it is served. Decision 0024.
//!
//! A split copies no rows. Rows are stored by table and key, not by group. So the old groups are *sealed* by an entry
//! in their logs, and new groups begin on the same servers over the rows that are there. Rows are copied only where a
//! merge brings together shards of different servers, and to servers that are new to a shard.
//!
//! [`Resharder`] is the owner and the entry point. Its methods are in `change_table` ([`TableChange`]: settings and the
//! number of shards), `rebalance` (the same number of shards, of equal size) and `resharder` (reconciliation on
//! leaders). A reshard has these steps:
//!
//! 1. `plan`: `Planner` makes a `Plan`. `split_points` chooses the boundaries, `shard_layout` the founders (servers
//!    that have all rows of a new shard), `quorum` refuses to change shards without a quorum, and `temporary_replicas`
//!    removes replicas that were added for a merge.
//! 2. `seal`: `Sealer` seals the old groups, and writes the new shards into the catalog. If that fails it opens the old
//!    groups again.
//! 3. `node::opening`: each server opens its replicas of the new shards' groups. A founder opens its replica once the old
//!    groups are applied there up to their seals; `pending_handovers` lists the replicas that are not open yet.
//! 4. `handover`: on each server, `HandoverEnd` reports that the founded shards have their rows durably. After that
//!    nothing needs the old groups.
//!
//! # Why nothing is lost
//!
//! - After a crash an engine holds a prefix of its writes (column families are flushed together). A new group's first
//!   record comes after all writes of the old groups. If the record is missing, the old logs still exist, since they are
//!   deleted only after the flush, and are applied again.
//! - The table's epoch fences plans. A seal names its epoch, and the catalog accepts a plan only in that epoch. Both a
//!   reshard and its end without success raise the epoch. A group is opened again only with an epoch in which the catalog
//!   still has it in force. The greatest seal or opening counts, so late ones change nothing.
//! - A planner may stop before the new shards are in the catalog. Then the leader of each sealed group opens it again
//!   after three seconds; a planner that gives up does so at once, where it finds the leaders. Once the new shards are in
//!   the catalog, the planner is not needed.
//! - A proposal without a result when its group closes comes after the seal: its writer is refused and retries.
//! - At most one replica per server writes a range. A new one opens when the old ones stand still and copies from and to
//!   them have permanently ended. Until then the sealed group's leader gives copies; it may need the vote of a member that
//!   lacks trimmed entries, to open the group again or to end it.
//! - With `write_acks: "single"` a leader waits for a majority again from the request to seal on, and a new group opens
//!   only where the seal is committed.
//!
//! Locks: steps 2 and 4 write the catalog under `CatalogClient::lock_changes`, which admits one change of this node at
//! a time. The lock is held while the seals of step 2 wait for other servers; all other requests to servers are made before
//! it is taken. While a seal is proposed, `Membership::hold_changes` keeps members from being changed.
//! `PendingHandovers::lock` is held for moments and never while another server is asked. `locks.rs` has the order of the
//! locks of this crate.

mod change_table;
mod handover;
mod pending_handovers;
mod plan;
mod preparation;
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
