//! One replica of one key range: evaluates writes, orders them in the log, applies them, serves reads.
//!
//! Layer 3 of a request's path. Here a write leaves the request's thread: it is evaluated under a latch, proposed to
//! the log, and acknowledged when the log reports its outcome. A shard knows neither its node nor the reason of a
//! change.
//!
//! - [`Shard`]: reads and writes of a range; [`Decision`]: the outcome of a write for one row
//! - [`WriteTicket`]: a future of a write's outcome; [`WriteError`]: whether a failed write took effect
//! - [`IndexDef`], [`IndexRows`], [`GeoIndexReader`], [`IndexBuilder`]: definitions of indexes, reads by an index,
//!   building an index
//! - [`Restoration`], [`CopyRange`], [`Difference`]: replaces rows by a copy, transferring only the differences
//! - [`HistoryEntry`], [`read_history`], [`HistoryListener`]: the applied entries, for changefeeds
//! - [`LogReplay`]: the rows that applying entries would change, without an engine
//! - [`Replicas`]: all shards of one engine, as the log sees them; applies entries
//!
//! `docs/formats/entry.md` describes the bytes of an entry, and the rule by which writes that depend on a refused write
//! are not applied either.

#![forbid(unsafe_code)]

mod activity;
mod copy_range;
mod entry;
mod entry_builder;
mod error;
mod history;
mod history_position;
mod history_switch;
mod index;
mod index_build;
mod latch;
mod progress;
mod proposal;
mod replay;
mod replica;
mod replicas;
mod restore;
mod seal;
mod shard;
mod ticket;

pub use activity::Activity;
pub use copy_range::{CopyRange, CopyRangeSizes, Difference};
pub use entry_builder::Decision;
pub use error::{OpenError, WriteError, WriteRefusal};
pub use history::{
    ChangedObjects, ChangedRow, ChangedValues, DamagedHistory, HistoryEntry, HistoryError, HistoryEvent,
    HistoryListener, HistoryPart, HistoryRows, HistoryRowsError, RowsBefore, history_position_of,
    read_history, rows_at,
};
pub use history_position::HistoryPosition;
pub use index::{
    Bounds, GeoIndexHits, GeoIndexReader, IndexCursor, IndexDef, IndexDefs, IndexError, IndexKind,
    IndexQuery, IndexRow, IndexRowPosition, IndexRows, RowOrder, Side,
};
pub use index_build::{BuildStep, IndexBuilder};
pub use replay::{DamagedEntry, LogReplay};
pub use replica::{Predecessor, RowsGeneration};
pub use replicas::Replicas;
pub use restore::{CopyEnd, PresentRows, Restoration, RestoreError, clear_rows, drop_rows};
pub use seal::SealState;
pub use shard::Shard;
pub use storage::{Direction, HistoryRecord, IndexBuild, IndexId, ReadError, TableSnapshot};
pub use ticket::WriteTicket;
