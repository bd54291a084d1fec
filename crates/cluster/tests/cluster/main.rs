//! Tests of clusters of several nodes in one process, connected by a simulated network (`hub`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod administration;
mod catalog_repair;
mod connectivity;
mod copies;
mod disk_stalls;
mod fixture;
mod founders_without_rows;
mod hub;
mod indexes;
mod lifecycle;
mod moves;
mod no_quorum;
mod partition;
mod proxies;
mod readiness;
mod removal;
mod removal_wait;
mod repair;
mod reshard;
mod restart;
mod seal;
mod slow_engine;
mod step_down;
mod temporary_replicas;
