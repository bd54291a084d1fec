//! The order of rows that a query reads, and the index that finds them.

use std::sync::Arc;

use cluster::IndexConfig;
use datum::key::bound_position;
use datum::{Datum, KeyBound, KeyRange, Text};
use reql::geo::{LazyShape, nearest};
use reql::{Env, EvalError};
use shard::{Bounds, IndexCursor, IndexId, IndexQuery, IndexRowPosition, RowOrder, Side};
use storage::Direction;

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// Unspecified.
    Any,
    Ascending,
    Descending,
}

impl KeyOrder {
    /// The name in the result of `info`.
    pub fn name(self) -> &'static str {
        match self {
            KeyOrder::Any => "UNORDERED",
            KeyOrder::Ascending => "ASCENDING",
            KeyOrder::Descending => "DESCENDING",
        }
    }

    /// The direction of a scan.
    pub fn direction(self) -> Direction {
        match self {
            KeyOrder::Any | KeyOrder::Ascending => Direction::Ascending,
            KeyOrder::Descending => Direction::Descending,
        }
    }
}

/// A read by a secondary index. Plain data.
#[derive(Clone)]
pub(crate) struct IndexRead {
    pub id: IndexId,
    /// Its name, for messages.
    pub name: Text,
    pub search: IndexSearch,
    /// What to return of each row.
    pub items: IndexItems,
    /// Starts after this position; only for values.
    pub after: Option<IndexCursor>,
    /// The definition of the index, if the query relies on it and not only on the name. It is not sent to other nodes.
    pub relied_on: Option<IndexConfig>,
}

impl IndexRead {
    /// The same read by index `other`, if that is another index that may take its place.
    pub fn with_index(&self, other: &IndexConfig) -> Option<IndexRead> {
        let is_of_shapes = !matches!(self.search, IndexSearch::Values(_));
        let holds_the_same =
            |known: &IndexConfig| known.kind == other.kind && known.function == other.function;
        let fits = other.kind.is_geo() == is_of_shapes && self.relied_on.as_ref().is_none_or(holds_the_same);
        // A read that has begun by one index cannot continue by another.
        let may = other.id != self.id && self.after.is_none() && fits;
        may.then(|| IndexRead { id: other.id, ..self.clone() })
    }

    /// The query of a shard's index if rows are found by values: all of them, in no order.
    pub fn values(&self) -> Option<IndexQuery> {
        let IndexSearch::Values(values) = &self.search else { return None };
        Some(IndexQuery::of(self.id, values.clone(), RowOrder::Any, reql::ARRAY_LIMIT_DEFAULT))
    }
}

/// A search by an index: the rows that it finds.
#[derive(Clone)]
pub(crate) enum IndexSearch {
    /// The rows under some values, each a number of times.
    Values(Arc<[(Bounds, u32)]>),
    /// The rows with a shape that intersects this one, once for every such shape.
    Intersecting(LazyShape),
    /// The rows of each shard with the shapes nearest to a place. The distance in metres is the index value.
    Nearest(nearest::Bounds),
}

/// The items of a sequence by an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexItems {
    Rows,
    Values,
    /// Arrays of index value and row.
    Pairs,
}

/// An item and its position in the order of an index.
#[derive(Clone)]
pub(crate) struct Placed {
    /// The position; meaningless when the order does not matter.
    pub place: IndexRowPosition,
    /// The index of the range of values in which it was found.
    pub wanted: u32,
    pub item: Datum,
    /// How many times it is in the sequence.
    pub times: u64,
    /// Its bucket, where no order was asked for.
    pub bucket: BucketPosition,
}

impl Placed {
    /// An item once, whose order does not matter.
    pub fn unordered(item: Datum) -> Placed {
        Placed {
            place: IndexRowPosition::none(),
            wanted: 0,
            item,
            times: 1,
            bucket: BucketPosition::default(),
        }
    }
}

/// Items by an index.
pub(crate) trait PlacedItems: Send {
    /// Waits until it is known whether they can be read.
    fn begin(&mut self) -> Result<(), EvalError> {
        Ok(())
    }

    fn next_placed(&mut self, env: &Env<'_>) -> Result<Option<Placed>, EvalError>;
}

/// The bucket of an item, which decides on its place where no order was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketPosition {
    /// The bucket of its row: [`datum::key::bucket_of`].
    pub number: u8,
    /// The rows read since the item before it, including its own.
    pub rows: u32,
}

/// A step of a scan.
pub(crate) enum BucketedItem {
    Item(BucketPosition, Datum),
    /// This many rows were read and resulted in no item.
    Skipped(usize),
    End,
}

/// Items in the order of their rows' keys, with buckets where no order was asked for.
pub(crate) trait BucketedItems: Send {
    /// The next step. It must not be called again after the end.
    fn next_bucketed(&mut self, env: &Env<'_>) -> Result<BucketedItem, EvalError>;
}

/// Whether rows that are read this way are interleaved by bucket (decision 0042): no order was asked for, and they are
/// not found by shapes.
pub(crate) fn are_interleaved(order: KeyOrder, index: Option<&IndexRead>) -> bool {
    order == KeyOrder::Any && index.is_none_or(|index| matches!(index.search, IndexSearch::Values(_)))
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
