//! A lazy sequence as a value, and whether its items are still rows of a table.

use crate::stream::Pipe;
use crate::table::TableRef;

/// A lazy sequence and what may be done with it.
pub(crate) struct Seq {
    /// The table whose rows these are, while they can still be written to.
    pub table: Option<TableRef>,
    /// Whether it was read as a whole before: SELECTION<ARRAY>.
    pub eager: bool,
    /// Where the items come from.
    pub pipe: Pipe,
}

impl Seq {
    /// A stream of anything.
    pub fn stream(pipe: Pipe) -> Seq {
        Seq { table: None, eager: false, pipe }
    }

    /// Rows of `table`.
    pub fn selection(table: TableRef, pipe: Pipe) -> Seq {
        Seq { table: Some(table), eager: false, pipe }
    }
}
