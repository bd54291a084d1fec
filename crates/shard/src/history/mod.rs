//! The history of a group: the applied entries that changefeeds follow. docs/decisions/0046-changefeeds-follow-the-log.md.
//!
//! While the history of a group is on, changes have the row before them, and each replica keeps the applied entries in its
//! engine for a while, in the same batch as the rows.
//!
//! - [`HistoryEntry`]: one entry, decoded; [`ChangedRow`]: one of its changes
//! - [`read_history`]: the records of the entries after a position
//! - [`rows_at`]: rows as they were at an earlier position; [`RowsBefore`]: what has changed since
//! - [`HistoryListener`]: receives the entries as they are applied

mod changed_row;
mod entry;
mod listener;
mod read;
mod rows;
mod snapshot;

pub use changed_row::{ChangedObjects, ChangedRow, ChangedValues};
pub use entry::{DamagedHistory, HistoryEntry, HistoryEvent};
pub use listener::HistoryListener;
pub use read::{HistoryError, HistoryPart, read_history};
pub use rows::{HistoryRows, HistoryRowsError, RowsBefore, rows_at};
pub use snapshot::history_position_of;
pub(crate) use snapshot::position_in;
