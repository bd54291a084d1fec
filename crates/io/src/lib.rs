//! What a node asks of its machine: the time, files, other nodes, and chance.
//!
//! Everything above reaches the world through these four traits, and its threads wait through
//! [`task`], so that the same code runs on a real machine ([`real`]) and inside a seeded simulation
//! ([`sim`]) that loses unsynced data, jumps clocks and cuts cables on purpose. Knows nothing of what the
//! bytes mean. [`memory`] is what may be asked of the machine's memory.

// The counting allocator of `memory` implements a trait that is unsafe, and `sim::tasks` switches
// stacks; nothing else may.
#![deny(unsafe_code)]

pub mod memory;
pub mod real;
pub mod sim;
pub mod task;

mod clock;
mod files;
mod network;
mod random;

pub use clock::{Clock, Nanos};
pub use files::{File, Files, Lock};
pub use network::{
    ConnectionId, Endpoints, LoopWaker, NetworkCommand, NetworkEvent, NetworkHandler, TLS_FAULT,
};
pub use random::Random;
