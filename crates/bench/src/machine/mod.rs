//! Facts and counters of machines: the client's processor time, the servers' use of processor, memory and disk, and a
//! description of the machine. [`cgroup`] makes nodes equally fast; [`leash`] and [`holdings`] clean up at the end.

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
