//! The simulated machine: time that moves when told, disks that forget what was not synced,
//! chance that repeats. Single-threaded use gives the same trace for the same seed.

mod chance;
mod clock;
mod files;
mod network;
mod random;
pub(crate) mod tasks;

pub use chance::Chance;
pub use clock::SimClock;
pub use files::{Fault, Hang, SimFiles};
pub use network::{Host, NetworkConditions, SimNetwork};
pub use random::SimRandom;
pub use tasks::{EnterGuard, Process, Tasks, is_task, process};
