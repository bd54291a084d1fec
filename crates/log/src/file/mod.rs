//! The log in files: segments through [`io::Files`], a log thread and a sync thread. Proposers may carry out steps
//! themselves.

mod drive;
mod examine;
mod high_water_mark;
mod inbox;
mod index;
mod log;
mod log_health;
mod recover;
mod runner;
mod store;
mod thread;

#[cfg(test)]
#[path = "../../tests/crashes/mod.rs"]
mod crashes;
#[cfg(test)]
#[path = "../../tests/fleet/mod.rs"]
mod fleet;

pub use examine::{ExaminedGroup, ExaminedLog};
pub use log::{FileLog, FileLogOptions};
pub use recover::{exists, has_replicas};
pub use store::{FileStore, StoreOptions};
