//! The interface between a node and its machine: time, files, the network, random numbers.
//!
//! All other crates use the machine through these four traits, and their threads wait through [`task`]. So the same
//! code runs on a real machine ([`real`]) and in a seeded simulation ([`sim`]) that loses unsynced data, moves clocks
//! and cuts connections on purpose. [`ReadFields`] reads numbers in messages and records. [`memory`] limits the
//! process's memory.

// The counting allocator of `memory` implements an unsafe trait, and `sim::tasks` switches stacks. No other code may be
// unsafe.
#![deny(unsafe_code)]

pub mod memory;
pub mod real;
pub mod sim;
pub mod task;

mod clock;
mod failpoint;
mod fields;
mod files;
mod network;
mod random;

pub use clock::{Clock, Nanos};
#[cfg(feature = "failpoints")]
pub use failpoint::{ArmError, arm_failpoint};
pub use failpoint::{FAILPOINTS_ENABLED, failpoint};
pub use fields::ReadFields;
pub use files::{File, Files, Lock};
pub use network::{
    ConnectionId, Endpoints, LoopWaker, NetworkCommand, NetworkEvent, NetworkHandler, TLS_FAULT,
};
pub use random::Random;
