//! Lazy sequences as values, and whether their items are still rows of a table.

use super::origin::Origin;
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
    /// The rows that a changefeed follows, if `pipe` does not tell.
    pub origin: Option<Box<Origin>>,
}

impl Seq {
    /// The rows that a changefeed of the sequence follows; `None` if it cannot be followed.
    pub fn followed(&self) -> Option<Origin> {
        match &self.origin {
            _ if self.eager => None,
            Some(origin) => Some((**origin).clone()),
            None => Origin::of_pipe(&self.pipe),
        }
    }

    /// A stream of any items.
    pub fn stream(pipe: Pipe) -> Seq {
        Seq { table: None, eager: false, pipe, origin: None }
    }

    /// Rows of `table`.
    pub fn selection(table: TableRef, pipe: Pipe) -> Seq {
        Seq { table: Some(table), eager: false, pipe, origin: None }
    }
}
