//! Scans of index entries in the order of their keys.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use datum::{KeyRange, PrimaryKey};
use engine::{Direction, Scan, Snapshot, Space};

use crate::layout::{after_prefix, corrupt_meta, index_prefix};
use crate::{IndexEntry, IndexId, ReadError, TableId};

/// A range of index keys, from `start` up to and not including `end`.
///
/// In the engine the primary key follows the index key. So a bound that excludes an index key with all its rows is the
/// first key after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRange {
    /// The first key inside.
    pub start: Bytes,
    /// The first key after the range; `None` means no end.
    pub end: Option<Bytes>,
}

impl IndexRange {
    /// Every key.
    #[must_use]
    pub fn all() -> IndexRange {
        IndexRange { start: Bytes::new(), end: None }
    }

    /// Whether the bounds exclude every key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| self.start >= end)
    }

    /// The range of the engine's keys of an index.
    pub(crate) fn within(&self, table: TableId, index: IndexId) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let prefix = index_prefix(table, index);
        let full = |key: &[u8]| [&prefix[..], key].concat();
        let end = match &self.end {
            Some(end) => Bound::Excluded(full(end)),
            None => after_prefix(&prefix).map_or(Bound::Unbounded, Bound::Excluded),
        };
        (Bound::Included(full(&self.start)), end)
    }
}

/// An entry that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexHit {
    /// The index key.
    pub key: Bytes,
    /// The row's key.
    pub primary: PrimaryKey,
    /// Information about the row's values under this key.
    pub entry: IndexEntry,
}

/// A scan of index entries. Owns its snapshot, so a cursor may keep it as long as it is open.
pub struct IndexScan {
    scan: Option<Box<dyn Scan>>,
    table: TableId,
    index: IndexId,
    rows: KeyRange,
}

impl IndexScan {
    pub(crate) fn new(
        view: &Arc<dyn Snapshot>,
        table: TableId,
        index: IndexId,
        range: &IndexRange,
        rows: KeyRange,
        direction: Direction,
    ) -> IndexScan {
        let scan = (!range.is_empty()).then(|| {
            let (start, end) = range.within(table, index);
            let range = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
            Arc::clone(view).scan(Space::Index, range, direction)
        });
        IndexScan { scan, table, index, rows }
    }

    /// Repositions the scan to `range`, which lies inside the range the scan was created for.
    pub fn restart(&mut self, range: &IndexRange) {
        let (start, end) = range.within(self.table, self.index);
        if let Some(scan) = &mut self.scan {
            scan.restart((start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice)));
        }
    }

    /// The next entry, or `None` at the end.
    #[allow(clippy::should_implement_trait, reason = "a failed read must not be skipped over")]
    pub fn next(&mut self) -> Result<Option<IndexHit>, ReadError> {
        let Some(scan) = &mut self.scan else { return Ok(None) };
        while let Some((key, value)) = scan.next()? {
            let hit = hit(key, value).ok_or_else(|| corrupt_meta("an index entry"))?;
            // Entries of all shards of the table on this node are stored together.
            if self.rows.contains(&hit.primary) {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }
}

const PREFIX_BYTES: usize = 20;

/// The entry in a pair of the engine, or `None` if it is malformed.
pub(crate) fn hit(key: &[u8], value: &[u8]) -> Option<IndexHit> {
    let (entry, key_len) = IndexEntry::decode(value)?;
    let keys = Bytes::copy_from_slice(key.get(PREFIX_BYTES..)?);
    if keys.len() < key_len {
        return None;
    }
    Some(IndexHit { key: keys.slice(..key_len), primary: PrimaryKey(keys.slice(key_len..)), entry })
}
