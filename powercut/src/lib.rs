//! Simulated power cuts for a real process on a real directory.
//!
//! A library that is preloaded (`powercut-recorder`) writes a [`journal`] of the changes of a process to the files of one
//! directory, and of its syncs. After the process was killed, [`Disk`] replays the journal: it knows which bytes
//! and names were durable and which were not, verifies that the directory has exactly what the journal says, and
//! [`Disk::cut_power`] returns the content of the directory after a power loss.
//!
//! The contract is that of POSIX and no more: bytes and the length of a file are durable once `fsync` or `fdatasync` of it
//! has returned, names once the directory was synced.
#![forbid(unsafe_code)]

mod disk;
pub mod journal;
mod tree;

pub use disk::{Disk, IgnoredSyncs, ReplayError};
pub use tree::{Node, Tree};
