//! The rows of a table in an engine: point reads, snapshots, scans, and the one way rows change.
//!
//! Line 2 of the river. A request comes from `shard` with a key or a range and leaves for `engine`
//! with bytes. Knows nothing of queries or replicas. Where things are kept is
//! `docs/formats/engine-keys.md`.
//!
//! - [`Store`]: an engine and the rows at hand; everything else stands in one
//! - [`Table`]: the newest rows; [`TableSnapshot`]: the rows of one moment
//! - [`RowScan`], [`RowBatch`]: many rows, read in blocks that the rows share
//! - [`RowTexts`]: rows on their way to a client
//! - [`RowChange`], [`Changes`]: how rows change
//! - [`IndexChange`], [`IndexScan`]: how index entries change and are found; [`IndexBuild`]: how far
//!   an index is built
//! - [`Applied`], [`Count`]: what the engine remembers about each group's log, in the same batches
//! - [`drop_table`], [`tables_present`]: the end of a table

#![forbid(unsafe_code)]

mod batch;
mod change;
mod error;
mod group;
mod index;
mod index_build;
mod index_scan;
mod layout;
mod row;
mod row_cache;
mod row_texts;
mod scan;
mod shard_range;
mod snapshot;
mod store;
mod sweep;
mod table;
mod table_id;

pub use batch::RowBatch;
pub use change::{Changes, RowChange};
pub use engine::Direction;
pub use error::{FormatError, ReadError};
pub use group::{Applied, Count};
pub use index::{IndexChange, IndexEntry, IndexId};
pub use index_build::IndexBuild;
pub use index_scan::{IndexHit, IndexRange, IndexScan};
pub use row_cache::RowCacheStats;
pub use row_texts::RowTexts;
pub use scan::RowScan;
pub use shard_range::ShardRange;
pub use snapshot::TableSnapshot;
pub use store::Store;
pub use sweep::{drop_index, drop_table, forget_group, groups_present, indexes_present, tables_present};
pub use table::Table;
pub use table_id::TableId;
