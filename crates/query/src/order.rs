//! The order in which the rows of a table are asked for, and what they are found by.

use std::sync::Arc;

use datum::key::bound_position;
use datum::{Datum, KeyBound, KeyRange, Text};
use reql::geo::{LazyShape, nearest};
use reql::{Env, EvalError};
use shard::{Bounds, IndexId, IndexPlace, IndexQuery, RowOrder, Side};
use storage::Direction;

/// The order rows come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// None was asked for.
    Any,
    /// By key.
    Ascending,
    /// By key, the largest first.
    Descending,
}

impl KeyOrder {
    /// The word used by `info`.
    pub fn name(self) -> &'static str {
        match self {
            KeyOrder::Any => "UNORDERED",
            KeyOrder::Ascending => "ASCENDING",
            KeyOrder::Descending => "DESCENDING",
        }
    }

    /// The way a scan goes.
    pub fn direction(self) -> Direction {
        match self {
            KeyOrder::Any | KeyOrder::Ascending => Direction::Ascending,
            KeyOrder::Descending => Direction::Descending,
        }
    }
}

/// What is read by a secondary index. Plain data.
#[derive(Clone)]
pub(crate) struct IndexRead {
    /// The index.
    pub id: IndexId,
    /// Its name, for messages.
    pub name: Text,
    /// Which rows are wanted.
    pub wanted: Wanted,
    /// What is wanted of the rows.
    pub items: IndexItems,
}

impl IndexRead {
    /// The question for the index of a shard, if rows are found by their values: all of them, in no order.
    pub fn values(&self) -> Option<IndexQuery> {
        let Wanted::Values(wanted) = &self.wanted else { return None };
        let (wanted, order) = (wanted.clone(), RowOrder::Any);
        Some(IndexQuery { index: self.id, wanted, order, sorted_max: reql::ARRAY_LIMIT_DEFAULT })
    }
}

/// Which rows are found by an index.
#[derive(Clone)]
pub(crate) enum Wanted {
    /// Those under some values, and how many times each.
    Values(Arc<[(Bounds, u32)]>),
    /// Those with a shape that has something in common with this one, once for every such shape.
    Meeting(LazyShape),
    /// Of each shard those with the shapes nearest to a place. The distance in metres is the index value.
    Nearest(nearest::Bounds),
}

/// What an item of a sequence by an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexItems {
    /// The row.
    Rows,
    /// The index value.
    Values,
    /// An array of the index value and the row.
    Pairs,
}

/// An item and where it stands in the order of an index.
#[derive(Clone)]
pub(crate) struct Placed {
    /// Where; of no meaning when the order does not matter.
    pub place: IndexPlace,
    /// The item.
    pub item: Datum,
    /// How many times it is wanted.
    pub times: u64,
    /// Out of which hand it is given when no order was asked for ([`datum::key::hand_of`]).
    pub hand: u8,
}

/// Items by an index, one after the other.
pub(crate) trait PlacedItems: Send {
    /// The next one.
    fn next_placed(&mut self, env: &Env<'_>) -> Result<Option<Placed>, EvalError>;
}

/// A step on a way through rows that nobody ordered.
pub(crate) enum Handed {
    /// An item, made of a row of this hand, below [`datum::key::HANDS`].
    Item(u8, Datum),
    /// So many rows were looked at, and no item was made of them.
    Nothing(usize),
    /// There are no more rows.
    End,
}

/// Items of a sequence that nobody ordered, one after the other, those of each hand in the order of its rows.
pub(crate) trait HandedItems: Send {
    /// The next one. After the end there may be anything.
    fn next_handed(&mut self, env: &Env<'_>) -> Result<Handed, EvalError>;

    /// Whether it is known without reading that there is nothing more.
    fn is_exhausted(&self) -> bool {
        false
    }
}

/// The range of primary keys between `bounds`. Bounds that cannot be keys select by ReQL's total order.
pub(crate) fn primary_range(bounds: &Bounds) -> KeyRange {
    let start = match (&bounds.left, bounds.left_side) {
        (Datum::MinVal, _) => KeyBound::Unbounded,
        (left, Side::Closed) => KeyBound::Included(bound_position(left)),
        (left, Side::Open) => KeyBound::Excluded(bound_position(left)),
    };
    let end = match (&bounds.right, bounds.right_side) {
        (Datum::MaxVal, _) => KeyBound::Unbounded,
        (right, Side::Closed) => KeyBound::Included(bound_position(right)),
        (right, Side::Open) => KeyBound::Excluded(bound_position(right)),
    };
    KeyRange { start, end }
}
