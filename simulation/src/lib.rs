//! Whole clusters in one thread, by seed: the real code from `log` to `cluster` on simulated machines,
//! through crashes, power losses, partitions, slow disks and changes of its own shape, with everything
//! it answered checked at the end.
//!
//! [`world`] lets time pass and machines take turns; [`machine`] is one of them, started by [`boot`] as
//! the server starts itself; [`storm`] breaks things; [`client`] asks and [`site`] carries out;
//! [`scheme`] does it in the worst order; [`history`] is what was answered, [`register`] says whether one
//! document could have behaved so, [`witness`] sees elections, and [`peace`] says what must hold when all is
//! healed. [`promise`] names what was broken, and `planted` which fault must break what.
#![forbid(unsafe_code)]

mod checks;
pub mod client;
pub mod disk;
mod driver;
pub mod elections;
pub mod executor;
pub mod fault_plan;
mod faults;
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

pub use run::{Failure, Ran, run};
pub use world::{Plot, Scope};
