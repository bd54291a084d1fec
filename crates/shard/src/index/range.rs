//! A range of the values of an index, and where it lies among the bytes of keys.

use std::cmp::Ordering;

use bytes::Bytes;
use datum::key::secondary;
use datum::{Datum, KeyError};
use storage::{Direction, IndexRange};

/// Whether a bound belongs to the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It does not.
    Open,
    /// It does.
    Closed,
}

/// A range of the values of an index, which may be the primary key.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// Where it begins.
    pub left: Datum,
    /// Whether `left` belongs to it.
    pub left_side: Side,
    /// Where it ends.
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

    /// One value.
    #[must_use]
    pub fn one(value: Datum) -> Bounds {
        Bounds { left: value.clone(), left_side: Side::Closed, right: value, right_side: Side::Closed }
    }

    /// Whether it says nothing at all. Source: `datum_range_t::is_universe` of RethinkDB.
    #[must_use]
    pub fn is_universe(&self) -> bool {
        (&self.left, self.left_side, &self.right, self.right_side)
            == (&Datum::MinVal, Side::Open, &Datum::MaxVal, Side::Open)
    }

    /// Whether it ends before it begins, so that no value can be inside.
    /// Source: `datum_range_t::is_empty` of RethinkDB.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.left.cmp(&self.right) {
            Ordering::Less => false,
            Ordering::Equal => self.left_side == Side::Open || self.right_side == Side::Open,
            Ordering::Greater => true,
        }
    }

    /// Whether `value` is inside.
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

    /// The keys of the values inside. Keys that were cut are in it if any of their values is, so
    /// those values are to be asked with [`Bounds::contains`]. Fails when a bound has no place
    /// among index keys.
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

/// What of `range` does not come before the entries of `key` when it is walked in this direction.
pub(super) fn begun_at(range: IndexRange, key: &Bytes, direction: Direction) -> IndexRange {
    match direction {
        Direction::Ascending => IndexRange { start: range.start.max(key.clone()), ..range },
        Direction::Descending => {
            let end = [range.end.clone(), after(key)].into_iter().flatten().min();
            IndexRange { end, ..range }
        }
    }
}

/// The first bytes after everything that begins with a key. No key is the beginning of another,
/// so only its own entries do.
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
