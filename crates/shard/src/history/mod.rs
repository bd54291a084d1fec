//! The history of a group: the applied entries that changefeeds follow. docs/decisions/0046-changefeeds-follow-the-log.md.
//!
//! While the history of a group is on, changes have the row before them, and each replica keeps the applied entries in its
//! engine for a while, in the same batch as the rows.
//!
//! - [`HistoryEntry`], [`ChangedRow`]: one entry, decoded
//! - [`read_history`]: the records of the entries after a position
//! - [`rows_at`]: rows as they were at an earlier position
//! - [`HistoryListener`]: receives the entries as they are applied

mod entry;
mod listener;
mod read;
mod rows;
mod snapshot;

pub use entry::{ChangedRow, DamagedHistory, HistoryEntry, HistoryEvent};
pub use listener::HistoryListener;
pub use read::{HistoryError, HistoryPart, read_history};
pub use rows::{HistoryRows, HistoryRowsError, rows_at};
pub use snapshot::history_position_of;
