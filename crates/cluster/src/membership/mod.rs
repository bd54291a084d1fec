//! The members of groups: adds and removes replicas until a group has the members that the catalog wants, and knows which
//! servers and replicas respond.
//!
//! - [`Membership`] (`reconcile`) makes one change at a time in a group that this node leads. The reconciliation loop of
//!   `node` calls it for each group.
//! - `next_change` decides which change is next, as a pure function of the group's status and of [`DesiredMembers`].
//! - `liveness` probes the members before a change of voters ([`Probes`]) and logs the members that a change waits for.
//! - `log_positions` asks servers for the last log positions of their replicas ([`PositionLookup`], [`LogPositions`],
//!   [`Farthest`]).
//! - [`Connectivity`] asks servers for their connections: a repair or a removal fails on a server that is cut off.
//! - [`StallMonitor`] (`step_down`) handles a log that makes no progress.
//!
//! A server whose disk is full or hangs, or whose log has stopped, is alive and connected, but nothing that it leads can
//! be written. [`StallMonitor::check`], called every 500 ms by `server::startup`, notices that and reports the stall to the
//! connected servers. These servers treat the replicas of the stalled server as unreachable, so their groups elect other
//! leaders. The stalled server steps down from the groups that other servers can lead or may lead already (`step_down` has
//! the conditions). When its log makes progress again, it leads a group only after a quorum has confirmed that no other
//! leader was elected (decision 0037).
//!
//! An `fsync` that hangs while appends go on is logged and shown in `current_issues`, but is no stall.
//!
//! Locks: `Membership` holds its `MemberChange` while a change of members is proposed, so that no other change and no seal
//! is proposed at the same time.

mod connectivity;
#[cfg(test)]
pub(crate) mod fixture;
mod liveness;
mod log_positions;
mod next_change;
mod reconcile;
mod step_down;

pub use connectivity::Connectivity;
pub(crate) use liveness::{Probes, WaitingLog};
pub(crate) use log_positions::{Farthest, LogPositions, PositionLookup};
pub(crate) use next_change::{DesiredMembers, has_quorum};
pub(crate) use reconcile::Membership;
pub use step_down::StallMonitor;
