//! Repairs after the loss of servers, at an operator's request: emergency repair of tables and of the catalog, and the
//! removal of servers. Decisions 0015 and 0045.
//!
//! [`Repair`] (`tables`, `shard_repair`) repairs tables; if the catalog has lost its quorum, `CatalogRepair`
//! (`catalog`) repairs it first. Both use the same three parts:
//!
//! - `lost_servers`: `LostServerLookup` decides which servers are lost, after a few seconds in which they may come
//!   back, and refuses if another server is still connected to one.
//! - `survivor`: `Survivors` finds the replica with most of a group's log.
//! - `force_members`: `MemberReset` makes the survivor the only voter of the group, and lets the other live replicas
//!   follow.
//!
//! [`ServerRemoval`] (`remove_server`) removes a server from the cluster if its shards have a quorum without it.
//!
//! Locks: catalog changes are made under `CatalogClient::lock_changes`, which admits one change of this node at a time.
//! Requests about groups are sent before the lock is taken.

mod catalog;
mod force_members;
mod lost_servers;
mod remove_server;
mod shard_repair;
mod survivor;
mod tables;

pub use remove_server::ServerRemoval;
pub use tables::{Repair, RepairMode, RepairScope, Repaired};
