//! The members of groups: which replicas a group has, which of them respond, and how far their logs reach.
//!
//! [`Membership`] makes the changes, one at a time (`reconcile`); `next_change` decides which, as a pure function; `liveness` probes
//! the members first. [`LogHealth`] steps down from groups while the log of this node makes no progress.

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
pub(crate) use next_change::{Wanted, has_quorum};
pub(crate) use reconcile::Membership;
pub use step_down::LogHealth;
