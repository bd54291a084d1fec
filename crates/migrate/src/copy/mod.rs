//! Readers: each takes a segment of a table and works through it, chunk by chunk.

mod chunk;
mod readers;
mod write;

pub use readers::{Readers, run_readers};
pub use write::{delete_rows, put_rows};
