//! How the memory of the process is divided between caches, memtables and queries.

pub(crate) mod cache_size;
pub(crate) mod plan;
