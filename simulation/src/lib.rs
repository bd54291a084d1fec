//! Simulates whole clusters in one thread, by seed: the real code from `log` to `cluster` on simulated machines, under
//! crashes, power losses, partitions, slow disks and changes of the cluster, with a check of all results at the end.
//!
//! [`run()`] runs one seed. [`world`] is its state: [`machine`]s, on which [`startup`] starts nodes as the server does,
//! and [`client`]s, whose operations [`executor`] runs. `driver` is the event loop; `faults` injects random faults of a
//! [`fault_plan`], and `scenarios` sequences of faults in their worst order. At the end `checks` checks each
//! [`invariant`]: [`linearizability`] judges the [`history`] of each document, and [`elections`] has the leaders of every
//! term, and [`feeds`] has readers of changefeeds, which must receive every change once. `mutants` are faults in the code that the seeds must detect.
#![forbid(unsafe_code)]

mod checks;
pub mod client;
pub mod disk;
mod driver;
pub mod elections;
pub mod executor;
pub mod fault_plan;
mod faults;
pub mod feeds;
pub mod history;
pub mod invariant;
pub mod linearizability;
pub mod machine;
#[cfg(feature = "mutants")]
pub mod mutants;
mod run;
mod scenarios;
pub mod seeds;
pub mod startup;
pub mod trace;
pub mod world;

pub use run::{Failure, Summary, run};
pub use world::{RunOptions, Scope};
