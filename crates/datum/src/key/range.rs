//! Ranges of primary keys.

use std::ops::Bound;

use super::primary::PrimaryKey;

/// One end of a range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyBound {
    /// No limit at this end.
    Unbounded,
    /// The range includes this key.
    Included(PrimaryKey),
    /// The range excludes this key.
    Excluded(PrimaryKey),
}

impl KeyBound {
    /// The bound over bytes.
    #[must_use]
    pub fn as_bytes(&self) -> Bound<&[u8]> {
        match self {
            KeyBound::Unbounded => Bound::Unbounded,
            KeyBound::Included(key) => Bound::Included(key.as_bytes()),
            KeyBound::Excluded(key) => Bound::Excluded(key.as_bytes()),
        }
    }
}

/// The keys between two bounds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// The lower end.
    pub start: KeyBound,
    /// The upper end.
    pub end: KeyBound,
}

impl KeyRange {
    #[must_use]
    pub fn all() -> KeyRange {
        KeyRange { start: KeyBound::Unbounded, end: KeyBound::Unbounded }
    }

    /// Only `key`.
    #[must_use]
    pub fn one(key: PrimaryKey) -> KeyRange {
        KeyRange { start: KeyBound::Included(key.clone()), end: KeyBound::Included(key) }
    }

    #[must_use]
    pub fn contains(&self, key: &PrimaryKey) -> bool {
        let after_start = match &self.start {
            KeyBound::Unbounded => true,
            KeyBound::Included(start) => start <= key,
            KeyBound::Excluded(start) => start < key,
        };
        after_start
            && match &self.end {
                KeyBound::Unbounded => true,
                KeyBound::Included(end) => key <= end,
                KeyBound::Excluded(end) => key < end,
            }
    }

    /// Whether the bounds exclude every key. A range between adjacent keys is not recognised as empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (KeyBound::Unbounded, _) | (_, KeyBound::Unbounded) => false,
            (KeyBound::Included(start), KeyBound::Included(end)) => start > end,
            (
                KeyBound::Included(start) | KeyBound::Excluded(start),
                KeyBound::Included(end) | KeyBound::Excluded(end),
            ) => start >= end,
        }
    }

    /// The keys inside both ranges; may be empty.
    #[must_use]
    pub fn intersect(&self, other: &KeyRange) -> KeyRange {
        KeyRange {
            start: later_start(&self.start, &other.start).clone(),
            end: earlier_end(&self.end, &other.end).clone(),
        }
    }

    /// Both bounds as bytes, in the form that storage engines take.
    #[must_use]
    pub fn as_bytes(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.start.as_bytes(), self.end.as_bytes())
    }
}

fn later_start<'a>(a: &'a KeyBound, b: &'a KeyBound) -> &'a KeyBound {
    let order = |bound: &'a KeyBound| match bound {
        KeyBound::Unbounded => None,
        KeyBound::Included(key) => Some((key, false)),
        KeyBound::Excluded(key) => Some((key, true)),
    };
    if order(a) >= order(b) { a } else { b }
}

fn earlier_end<'a>(a: &'a KeyBound, b: &'a KeyBound) -> &'a KeyBound {
    let order = |bound: &'a KeyBound| match bound {
        KeyBound::Unbounded => (true, None),
        KeyBound::Included(key) => (false, Some((key, true))),
        KeyBound::Excluded(key) => (false, Some((key, false))),
    };
    if order(a) <= order(b) { a } else { b }
}
