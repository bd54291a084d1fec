//! The rules for elements of feeds. The checkers are pure: they get elements and the progress of the writers.

mod first_rows;
mod rows;

pub(super) use first_rows::{FirstRows, FirstRowsChecker};
pub(super) use rows::{RowChecker, RowOptions};

use serde_json::Value;

use super::model::{Content, Document};

/// The field of rows of writes that must be refused.
pub(super) const REFUSED_MARK: &str = "refused";

/// How far the writers had come at one moment: for each document, by its place, a number of writes.
pub(super) type Versions = Vec<u32>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultKind {
    /// A change or an initial value is missing before this element.
    Gap,
    /// The element has been delivered before.
    Repeat,
    /// It shows a write that was refused.
    Refused,
    /// It shows a row that no write has made, or a row of another sequence.
    Wrong,
    /// The feed was too slow, and has dropped changes.
    Skipped,
    /// At a quiescent point the feed has not led to the rows of the table.
    Fold,
    /// A feed has ended that should go on.
    Ended,
}

/// A fault with its description.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) what: String,
}

impl Fault {
    pub(super) fn new(kind: FaultKind, what: impl Into<String>) -> Fault {
        Fault { kind, what: what.into() }
    }
}

/// The table at a quiescent point.
pub(super) struct Rest {
    /// The last write of each document that has taken effect.
    pub(super) versions: Versions,
    /// The rows that there are, ascending by score and key.
    pub(super) ordered: Vec<(Document, Content)>,
}

/// The fault of an element that shows a refused write.
fn refused(element: &Value) -> Option<Fault> {
    let has_mark = |row: &Value| row.get(REFUSED_MARK).is_some();
    let shows = has_mark(&element["new_val"]) || has_mark(&element["old_val"]);
    shows.then(|| Fault::new(FaultKind::Refused, element.to_string()))
}
