//! The log in files: segments through [`io::Files`], one log thread, one sync thread, and proposers who
//! take a turn themselves.

#[cfg(test)]
mod fleet;
mod inbox;
mod index;
mod log;
mod newest;
mod pulse;
mod recover;
mod runner;
#[cfg(test)]
mod simulation;
mod store;
mod thread;
mod turns;

pub use log::{FileLog, FileLogOptions};
pub use recover::{exists, has_replicas};
pub use store::{FileStore, StoreOptions};
