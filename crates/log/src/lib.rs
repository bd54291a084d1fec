//! An ordered, durable sequence of entries for each group; the only write-ahead log of a node.
//!
//! Stands under `shard`: a shard proposes what changed, the log orders it, makes it durable and
//! hands it to the [`Applier`]. All groups of a node share one store and one fsync. Never knows
//! what an entry means.
//!
//! - [`Log`] is the contract, [`conformance`] the suite every implementation runs.
//! - [`memory::MemoryLog`] keeps entries in memory, for tests.

#![forbid(unsafe_code)]

pub mod file;
pub mod memory;
pub mod recovery;

mod contract;
mod error;
mod lsn;
mod outline;
mod record;
mod segment;
mod stats;
mod store;

pub use contract::{Applier, ApplyError, Done, Entry, Log};
pub use error::{Doubt, LogError, ProposeError, Refusal};
pub use record::{EntryKind, Record};
pub use segment::HeaderError;
pub use lsn::{Durability, GroupId, Lsn};
pub use stats::{GROUP_COMMIT_BUCKETS, LogStats};
pub use store::{Forgotten, Position, Store, StoreError, StoreSize, StoredEntry, StoredGroup, SyncTask};
