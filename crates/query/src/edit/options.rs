//! The options of writes.

use log::Durability;

use super::RowReport;

#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOptions {
    /// The durability to wait for; `None` means the table's setting.
    pub durability: Option<Durability>,
    /// Which rows its result shows.
    pub return_changes: ReturnChanges,
    /// Whether to skip the table's write hook.
    pub ignore_hook: bool,
}

/// Which rows the result of a write shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReturnChanges {
    No,
    /// Rows that changed.
    Changed,
    /// Every row.
    Always,
}

impl ReturnChanges {
    /// Whether the result shows the rows of `report`.
    pub fn shows(self, report: &RowReport) -> bool {
        match self {
            ReturnChanges::No => false,
            ReturnChanges::Changed => report.is_change(),
            ReturnChanges::Always => true,
        }
    }
}
