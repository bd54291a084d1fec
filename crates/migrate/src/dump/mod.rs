//! The write hooks of a dump: `rethinkdb-restore` sets none of a table without secondary indexes.

mod archive;
mod hooks;

pub use archive::{DumpError, read_hooks};
pub use hooks::set_hooks;
