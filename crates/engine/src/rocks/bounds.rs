//! Bounds of ranges in RocksDB's form: the lower one included, the upper one excluded.

use std::ops::Bound;

/// The lower bound: the first key that may be inside.
pub(super) fn first_included(start: Bound<&[u8]>) -> Option<Vec<u8>> {
    match start {
        Bound::Included(key) => Some(key.to_vec()),
        Bound::Excluded(key) => Some(successor(key)),
        Bound::Unbounded => None,
    }
}

/// The upper bound: the first key outside.
pub(super) fn first_excluded(end: Bound<&[u8]>) -> Option<Vec<u8>> {
    match end {
        Bound::Included(key) => Some(successor(key)),
        Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    }
}

/// The smallest key above `key`.
pub(super) fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}
