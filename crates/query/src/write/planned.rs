//! Rows to be written.

use datum::PrimaryKey;

use crate::edit::Edit;

/// Rows to be written, each with its key and edit.
pub(crate) struct PlannedWrites<'a> {
    /// The keys, in the order of the reports.
    pub keys: &'a [PrimaryKey],
    /// The edit of the row at an index.
    pub edit: &'a dyn Fn(usize) -> &'a Edit,
    /// Whether the key at an index was generated.
    pub generated: &'a dyn Fn(usize) -> bool,
}
