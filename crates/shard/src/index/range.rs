//! Ranges of index values, and the corresponding ranges of keys.

use std::cmp::Ordering;

use bytes::Bytes;
use datum::key::secondary;
use datum::{Datum, KeyError};
use storage::{Direction, IndexRange};

/// Whether a bound belongs to the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The bound is excluded.
    Open,
    /// The bound is included.
    Closed,
}

/// A range of the values of an index, which may be the primary key.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// The lower bound.
    pub left: Datum,
    /// Whether `left` belongs to it.
    pub left_side: Side,
    /// The upper bound.
    pub right: Datum,
    /// Whether `right` belongs to it.
    pub right_side: Side,
}

impl Bounds {
    /// Every value.
    #[must_use]
    pub fn all() -> Bounds {
        Bounds { left: Datum::MinVal, left_side: Side::Closed, right: Datum::MaxVal, right_side: Side::Open }
    }

    #[must_use]
    pub fn one(value: Datum) -> Bounds {
        Bounds { left: value.clone(), left_side: Side::Closed, right: value, right_side: Side::Closed }
    }

    /// Whether it contains every value. Source: `datum_range_t::is_universe` of RethinkDB.
    #[must_use]
    pub fn is_universe(&self) -> bool {
        (&self.left, self.left_side, &self.right, self.right_side)
            == (&Datum::MinVal, Side::Open, &Datum::MaxVal, Side::Open)
    }

    /// Whether it ends before it begins, so that it contains no value.
    /// Source: `datum_range_t::is_empty` of RethinkDB.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.left.cmp(&self.right) {
            Ordering::Less => false,
            Ordering::Equal => self.left_side == Side::Open || self.right_side == Side::Open,
            Ordering::Greater => true,
        }
    }

    #[must_use]
    pub fn contains(&self, value: &Datum) -> bool {
        let after_left = match self.left_side {
            Side::Open => *value > self.left,
            Side::Closed => *value >= self.left,
        };
        after_left
            && match self.right_side {
                Side::Open => *value < self.right,
                Side::Closed => *value <= self.right,
            }
    }

    /// The keys of the values inside. A truncated key is included if any of its values is, so those values must be
    /// checked with [`Bounds::contains`]. Fails if a bound cannot be an index key.
    pub fn range(&self) -> Result<IndexRange, KeyError> {
        let (left, right) = (secondary::bound(&self.left)?, secondary::bound(&self.right)?);
        let start = match (&self.left, self.left_side) {
            (Datum::MinVal, _) => Bytes::new(),
            (_, Side::Open) if !left.truncated => after(&left.bytes).unwrap_or(left.bytes),
            _ => left.bytes,
        };
        let end = match (&self.right, self.right_side) {
            (Datum::MaxVal, _) => None,
            (_, Side::Open) if !right.truncated => Some(right.bytes),
            _ => after(&right.bytes),
        };
        Ok(IndexRange { start, end })
    }
}

/// The part of `range` that does not come before the entries of `key` in this direction.
pub(super) fn resume_at(range: IndexRange, key: &Bytes, direction: Direction) -> IndexRange {
    match direction {
        Direction::Ascending => IndexRange { start: range.start.max(key.clone()), ..range },
        Direction::Descending => {
            let end = [range.end.clone(), after(key)].into_iter().flatten().min();
            IndexRange { end, ..range }
        }
    }
}

/// The first key after all that begin with `key`. No key is a prefix of another, so these are only its own entries.
fn after(key: &[u8]) -> Option<Bytes> {
    let mut bytes = key.to_vec();
    while let Some(last) = bytes.pop() {
        if last < u8::MAX {
            bytes.push(last + 1);
            return Some(Bytes::from(bytes));
        }
    }
    None
}
