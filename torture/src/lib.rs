//! Long tests that inject faults into real clusters and check the results that clients received. Each command has a
//! folder; [`harness`] (nodes) and `workload` (writers) are shared. `cargo xtask` has the same commands.
#![forbid(unsafe_code)]

pub mod crash;
pub mod failover;
pub mod feeds;
pub mod harness;
pub mod histories;
pub mod index_build;
pub mod reshard;
mod workload;
