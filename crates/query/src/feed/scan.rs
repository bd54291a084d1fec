//! Reads the rows with which a feed begins.

use cluster::{FeedStart, InitialRows, Interest};
use datum::{Bytes, PrimaryKey};
use reql::EvalError;
use storage::TableId;

use crate::context::Cx;

/// The next rows of interest in the group of `start`, of `table`, after the key `after`, as they were at the start, and the
/// key that they reach to: `None` for the end. Blocks.
pub(super) fn scan(
    cx: &Cx,
    interest: &Interest,
    table: TableId,
    start: &FeedStart,
    after: Option<&PrimaryKey>,
) -> Result<InitialRows, EvalError> {
    cx.check_cancel()?;
    let read = cx.node().feeds().initial_rows(table, interest, start, after);
    read.map_err(|why| {
        EvalError::op_failed(format!("The initial values of a changefeed cannot be read: {why}"))
    })
}

/// A copy of the key that shares no memory with it.
pub(super) fn detached(key: &PrimaryKey) -> PrimaryKey {
    PrimaryKey(Bytes::copy_from_slice(key.as_bytes()))
}
