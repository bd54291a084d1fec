//! Long tests that fail the nodes of real clusters on purpose and compare what clients saw with what they were promised.
//! Each command has a folder; what they share is in [`harness`] (nodes) and `workload` (writers). `cargo xtask` has the
//! same commands under the same names.
#![forbid(unsafe_code)]

pub mod crash;
pub mod failover;
pub mod harness;
pub mod histories;
pub mod index_build;
pub mod reshard;
mod workload;
