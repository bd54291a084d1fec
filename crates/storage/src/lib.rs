//! The rows of tables in an engine: point reads, snapshots, scans, and all changes of rows.
//!
//! Layer 2 of a request's path: `shard` calls it with keys and ranges, and it calls `engine` with bytes. It knows
//! nothing of queries or replicas. `docs/formats/engine-keys.md` describes the keys.
//!
//! - [`Store`]: an engine with a row cache; holds all tables of a node
//! - [`Table`]: the newest rows; [`TableSnapshot`]: the rows at one moment
//! - [`Reach`]: whether a read may wait for the disk; [`RowAhead`]: a row that is read before it is latched
//! - [`RowScan`], [`RowBatch`]: many rows, read in blocks that their rows share
//! - [`RowTexts`]: rows as JSON texts for a client
//! - [`RowChange`], [`Changes`]: changes of rows
//! - [`IndexChange`], [`IndexScan`]: changes and scans of index entries; [`IndexBuild`]: how far an index is built
//! - [`Applied`], [`Count`]: records about each group's log, written in the same batches as its rows
//! - [`CompressedEngine`]: compresses rows between the other parts and the engine on disk
//! - [`HistoryRecord`]: applied log entries, as changefeeds read them
//! - [`row_place`], [`index_hit`], [`meta_record`], [`history_record`]: single pairs of an engine, decoded for a check
//! - [`drop_table`], [`reclaim_table`], [`tables_present`]: removal of tables

#![forbid(unsafe_code)]

mod batch;
mod change;
mod compression;
mod error;
mod group;
mod history;
mod history_value;
mod index;
mod index_build;
mod index_scan;
mod inspect;
mod layout;
mod reach;
mod row;
mod row_ahead;
mod row_cache;
mod row_texts;
mod scan;
mod shard_range;
mod sizes;
mod snapshot;
mod store;
mod sweep;
mod table;
mod table_id;

pub use batch::RowBatch;
pub use change::{Changes, RowChange};
pub use compression::{CompressedEngine, CompressionOptions, IsArchive};
pub use engine::Direction;
pub use error::{FormatError, ReadError};
pub use group::{Applied, Count};
pub use history::HistoryRecord;
pub use index::{IndexChange, IndexEntry, IndexId};
pub use index_build::IndexBuild;
pub use index_scan::{IndexHit, IndexRange, IndexScan};
pub use inspect::{MetaRecord, history_record, index_hit, meta_record, row_place};
pub use layout::after_prefix;
pub use reach::Reach;
pub use row_ahead::RowAhead;
pub use row_cache::RowCacheStats;
pub use row_texts::RowTexts;
pub use scan::RowScan;
pub use shard_range::ShardRange;
pub use snapshot::TableSnapshot;
pub use store::Store;
pub use sweep::{
    drop_index, drop_index_entries, drop_rows, drop_table, forget_group, groups_present, indexes_present,
    reclaim_index, reclaim_table, row_bounds, tables_present,
};
pub use table::Table;
pub use table_id::TableId;
