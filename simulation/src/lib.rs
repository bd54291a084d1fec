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

pub mod boot;
pub mod client;
pub mod disk;
pub mod history;
pub mod machine;
pub mod peace;
#[cfg(feature = "mutants")]
pub mod planted;
pub mod promise;
pub mod register;
pub mod scheme;
pub mod seeds;
pub mod site;
pub mod storm;
pub mod trace;
pub mod witness;
pub mod world;

pub use world::{Failure, Ran, World, run};
