//! The simulated machine: time that advances on command, disks that lose unsynced data, random numbers that repeat.
//! Used from a single thread, the same seed gives the same trace.

mod chance;
mod clock;
mod files;
mod network;
mod random;
pub(crate) mod tasks;

pub use chance::Chance;
pub use clock::SimClock;
pub use files::{Decay, Fault, Hang, SimFiles};
pub use network::{Host, NetworkConditions, SimNetwork};
pub use random::SimRandom;
pub use tasks::{EnterGuard, Process, Tasks, is_task, process};
