//! What an operator does when servers are lost: emergency repair of tables and of the catalog, and the removal of servers.
//! Decision 0015.

mod catalog;
mod force_members;
mod lost_servers;
mod remove_server;
mod survivor;
mod tables;

pub use remove_server::ServerRemoval;
pub use tables::{Repair, RepairMode, RepairScope, Repaired};
