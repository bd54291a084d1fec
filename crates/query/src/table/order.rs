//! The order in which the rows of a table are asked for, and what they are found by.

use std::sync::Arc;

use cluster::IndexConfig;
use datum::key::bound_position;
use datum::{Datum, KeyBound, KeyRange, Text};
use reql::geo::{LazyShape, nearest};
use reql::{Env, EvalError};
use shard::{Bounds, IndexCursor, IndexId, IndexQuery, IndexRowPosition, RowOrder, Side};
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
    /// Only what comes after this; of values only.
    pub after: Option<IndexCursor>,
    /// What it holds, where somebody counts on that: not whoever only said its name. It does not travel.
    pub counted_on: Option<IndexConfig>,
}

impl IndexRead {
    /// The same by `other`, if that is another index which may be read in the place of this one.
    pub fn by_another(&self, other: &IndexConfig) -> Option<IndexRead> {
        let is_of_shapes = !matches!(self.wanted, Wanted::Values(_));
        let holds_the_same =
            |known: &IndexConfig| known.kind == other.kind && known.function == other.function;
        let fits = other.kind.is_geo() == is_of_shapes && self.counted_on.as_ref().is_none_or(holds_the_same);
        // What was begun by one is not gone on with by another.
        let may = other.id != self.id && self.after.is_none() && fits;
        may.then(|| IndexRead { id: other.id, ..self.clone() })
    }

    /// The question for the index of a shard, if rows are found by their values: all of them, in no order.
    pub fn values(&self) -> Option<IndexQuery> {
        let Wanted::Values(wanted) = &self.wanted else { return None };
        Some(IndexQuery::of(self.id, wanted.clone(), RowOrder::Any, reql::ARRAY_LIMIT_DEFAULT))
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
    pub place: IndexRowPosition,
    /// In which of the ranges of values that are wanted it was found.
    pub wanted: u32,
    /// The item.
    pub item: Datum,
    /// How many times it is wanted.
    pub times: u64,
    /// Where it is given when no order was asked for.
    pub hand: BucketPosition,
}

impl Placed {
    /// An item once, whose order does not matter.
    pub fn nowhere(item: Datum) -> Placed {
        Placed { place: IndexRowPosition::none(), wanted: 0, item, times: 1, hand: BucketPosition::default() }
    }
}

/// Items by an index, one after the other.
pub(crate) trait PlacedItems: Send {
    /// Waits until it is known whether they can be read.
    fn begin(&mut self) -> Result<(), EvalError> {
        Ok(())
    }

    /// The next one.
    fn next_placed(&mut self, env: &Env<'_>) -> Result<Option<Placed>, EvalError>;
}

/// What decides about the place of an item where no order was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketPosition {
    /// Out of which hand it is given: [`datum::key::bucket_of`] its row.
    pub number: u8,
    /// The rows looked at since the item before it, its own among them.
    pub rows: u32,
}

/// A step on a way through rows.
pub(crate) enum BucketedItem {
    /// An item.
    Item(BucketPosition, Datum),
    /// So many rows were looked at, and no item was made of them.
    Skipped(usize),
    /// There are no more rows.
    End,
}

/// Items that are made of rows in the order of their keys, one after the other, with their hands where there is no order.
pub(crate) trait BucketedItems: Send {
    /// The next one. After the end there may be anything.
    fn next_bucketed(&mut self, env: &Env<'_>) -> Result<BucketedItem, EvalError>;
}

/// Whether rows that are read so are dealt out of hands (decision 0042): nobody ordered them, and they are not found by their
/// shapes.
pub(crate) fn are_interleaved(order: KeyOrder, index: Option<&IndexRead>) -> bool {
    order == KeyOrder::Any && index.is_none_or(|index| matches!(index.wanted, Wanted::Values(_)))
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
