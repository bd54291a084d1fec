//! A range of keys and the direction to walk it.

use std::ops::Bound;

/// A range of keys, given by its two bounds.
pub type ScanRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A key and its value, borrowed from a scan.
pub type Pair<'a> = (&'a [u8], &'a [u8]);

/// The order of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Smallest key first.
    Ascending,
    /// Largest key first.
    Descending,
}

/// The keys from `start` up to and not including `end`.
pub(crate) fn half_open<'a>(start: &'a [u8], end: &'a [u8]) -> ScanRange<'a> {
    (Bound::Included(start), Bound::Excluded(end))
}

/// Whether the bounds leave room for no key.
pub(crate) fn is_empty(range: ScanRange<'_>) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match range {
        (Unbounded, Excluded(end)) => end.is_empty(),
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(start), Included(end)) => start > end,
        (Excluded(start), Excluded(end)) => match end.strip_prefix(start) {
            // Nothing lies between a key and the same key followed by one zero byte.
            Some(rest) => rest.is_empty() || rest == [0],
            None => start > end,
        },
        (Included(start), Excluded(end)) | (Excluded(start), Included(end)) => start >= end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Bound::{Excluded, Included, Unbounded};

    #[test]
    fn emptiness_follows_the_bounds() {
        assert!(is_empty((Excluded(b"a"), Excluded(b"a"))));
        assert!(is_empty((Excluded(b"a"), Excluded(b"a\0"))));
        assert!(is_empty((Included(b"a"), Excluded(b"a"))));
        assert!(is_empty((Excluded(b"a"), Included(b"a"))));
        assert!(is_empty((Included(b"b"), Included(b"a"))));
        assert!(is_empty((Unbounded, Excluded(b""))));
        assert!(!is_empty((Included(b"a"), Included(b"a"))));
        assert!(!is_empty((Excluded(b"a"), Excluded(b"a\x01"))));
        assert!(!is_empty((Unbounded, Unbounded)));
    }
}
