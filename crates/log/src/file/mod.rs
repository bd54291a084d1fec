//! The log in files: segments through [`io::Files`], one log thread, one sync thread.

mod index;
mod recover;
mod store;

pub use store::{FileStore, StoreOptions};
