//! Lazy sequences as values, and whether their items are still rows of a table.

use crate::stream::Pipe;
use crate::table::TableRef;

/// A lazy sequence.
pub(crate) struct Seq {
    /// The table of its rows, while they can still be written.
    pub table: Option<TableRef>,
    /// Whether it was read as a whole: SELECTION<ARRAY>.
    pub eager: bool,
    /// Where the items come from.
    pub pipe: Pipe,
}

impl Seq {
    /// A stream of any items.
    pub fn stream(pipe: Pipe) -> Seq {
        Seq { table: None, eager: false, pipe }
    }

    /// Rows of `table`.
    pub fn selection(table: TableRef, pipe: Pipe) -> Seq {
        Seq { table: Some(table), eager: false, pipe }
    }
}
