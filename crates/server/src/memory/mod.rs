//! How the memory of the process is divided between caches, memtables and queries, and how its limit is kept.
//!
//! [`plan`] divides it at the start, [`cache_size`] again when the configured size changes. While the server runs,
//! [`accountant`] compares the memory in use with the limit, and [`pressure`] decides what to shrink.

pub(crate) mod accountant;
pub(crate) mod cache_size;
pub(crate) mod plan;
mod pressure;
