//! One replica of one key range: evaluates writes, orders them in the log, applies them, reads.
//!
//! Line 3 of the river, where a write leaves the request's thread: it is evaluated under a latch,
//! proposed, and answered when the log says so. Never knows which node it is on, nor why a row
//! changes.
//!
//! - [`Shard`]: reads and writes of a range; [`Decision`]: what a write does to a row
//! - [`WriteTicket`]: the answer that comes later; [`WriteError`]: whether it took effect
//! - [`IndexDef`], [`IndexRows`], [`GeoIndexReader`], [`IndexBuilder`]: what an index holds of a row, reading
//!   by it, building it
//! - [`Restoration`], [`CopyRange`], [`Difference`]: rows that become those of a copy, by what is different
//! - [`Replicas`]: all shards of one engine as the log sees them; applies entries
//!
//! The entry's bytes and the rule that keeps dependants of a refused write from happening are
//! `docs/formats/entry.md`.

#![forbid(unsafe_code)]

mod activity;
mod copy_range;
mod entry;
mod entry_builder;
mod error;
mod index;
mod index_build;
mod index_reads;
mod latch;
mod progress;
mod proposal;
mod replica;
mod replicas;
mod restore;
mod seal;
mod seal_entry;
mod shard;
mod ticket;

pub use activity::Activity;
pub use copy_range::{CopyRange, CopyRangeSizes, Difference};
pub use entry_builder::Decision;
pub use error::{OpenError, WriteError, WriteRefusal};
pub use index::{
    Bounds, GeoIndexHits, GeoIndexReader, IndexCursor, IndexDef, IndexDefs, IndexError, IndexKind,
    IndexQuery, IndexRow, IndexRowPosition, IndexRows, RowOrder, Side,
};
pub use index_build::{BuildStep, IndexBuilder};
pub use replica::{Predecessor, RowsGeneration};
pub use replicas::Replicas;
pub use restore::{CopyEnd, Restoration, RestoreError};
pub use seal::SealState;
pub use shard::Shard;
pub use storage::{Direction, IndexBuild, IndexId, ReadError, TableSnapshot};
pub use ticket::WriteTicket;
