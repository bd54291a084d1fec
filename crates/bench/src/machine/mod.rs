//! What machines say about themselves: the client's processor time, the servers' use of processor,
//! memory and disk, and what the machine is. [`cgroup`] makes nodes of one size of it, [`leash`] and [`holdings`] see to
//! it that nothing of ours stays.

pub mod batch;
pub mod cgroup;
pub mod facts;
pub mod holdings;
mod http;
pub mod leash;
mod listener;
pub mod openmetrics;
pub mod own;
pub mod process;
pub mod watch;
pub mod whole;
