//! Rows that are read before a writer has their latches.

use datum::Object;

use crate::row_cache::FillPermit;

/// A row, or the absence of one, as it was read at some moment. [`Table::newest`](crate::Table::newest) tells whether it
/// is still the newest one.
///
/// A writer reads the disk before it takes a latch, so that writers of other rows do not wait for the disk with it.
pub struct RowAhead {
    pub(crate) permit: FillPermit,
    pub(crate) row: Option<Object>,
}
