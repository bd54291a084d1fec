//! A table or a part of one: bounds and an order on an index. What `table`, `between` and indexed
//! `order_by` answer.

use datum::key::bound_position;
use datum::{Datum, KeyBound, KeyRange, Text};
use reql::EvalError;

use crate::context::Cx;
use crate::read;
use crate::seq::Seq;
use crate::stream::{KeyOrder, Pipe, RowSource, Source};
use crate::table::TableRef;

/// Whether a bound belongs to the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It does not.
    Open,
    /// It does.
    Closed,
}

/// A range of the values of an index.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Where it begins.
    pub left: Datum,
    /// Whether `left` belongs to it.
    pub left_side: Side,
    /// Where it ends.
    pub right: Datum,
    /// Whether `right` belongs to it.
    pub right_side: Side,
}

/// A table, a range of it, an order.
#[derive(Clone)]
pub(crate) struct Slice {
    /// The table.
    pub table: TableRef,
    /// The index that bounds and order refer to; `None` while neither was asked for.
    pub index: Option<Text>,
    /// The range, if `between` was called.
    pub bounds: Option<Bounds>,
    /// The order, if `order_by` was called.
    pub order: KeyOrder,
}

impl Slice {
    /// The whole of `table`, in no particular order.
    pub fn whole(table: TableRef) -> Slice {
        Slice { table, index: None, bounds: None, order: KeyOrder::Any }
    }

    /// Whether nothing was asked of the table yet.
    pub fn is_whole(&self) -> bool {
        self.index.is_none()
    }

    /// The name of the index in use: the primary key unless another was named.
    pub fn index_name(&self) -> Text {
        self.index.clone().unwrap_or_else(|| self.table.primary_key())
    }

    /// The rows as a lazy sequence.
    pub fn into_seq(self, cx: &Cx) -> Result<Seq, EvalError> {
        let index = self.index_name();
        self.table.check_index(&index)?;
        let range = self.range();
        let source = match &self.table {
            TableRef::Stored(table) => {
                Source::Rows(RowSource { table: table.clone(), range, order: self.order })
            }
            TableRef::System(system) => {
                Source::of_array(read::system_rows(cx, system, &range, self.order)?.into())
            }
        };
        Ok(Seq::selection(self.table, Pipe::of_source(source)))
    }

    /// The range of primary keys the bounds describe.
    pub fn range(&self) -> KeyRange {
        self.bounds.as_ref().map_or_else(KeyRange::all, Bounds::range)
    }
}

impl Bounds {
    /// The range of primary keys between the bounds. Bounds that cannot be keys select by ReQL's
    /// total order.
    pub fn range(&self) -> KeyRange {
        let start = match (&self.left, self.left_side) {
            (Datum::MinVal, _) => KeyBound::Unbounded,
            (left, Side::Closed) => KeyBound::Included(bound_position(left)),
            (left, Side::Open) => KeyBound::Excluded(bound_position(left)),
        };
        let end = match (&self.right, self.right_side) {
            (Datum::MaxVal, _) => KeyBound::Unbounded,
            (right, Side::Closed) => KeyBound::Included(bound_position(right)),
            (right, Side::Open) => KeyBound::Excluded(bound_position(right)),
        };
        KeyRange { start, end }
    }
}
