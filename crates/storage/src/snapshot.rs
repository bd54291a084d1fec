//! The rows of a part of a table, as of one moment.

use std::sync::Arc;

use bytes::Bytes;
use datum::{KeyBound, KeyRange, Object, PrimaryKey};
use engine::{Direction, Snapshot, Space};

use crate::layout::{RowKey, RowSpan};
use crate::row::decode;
use crate::{Applied, Count, IndexBuild, IndexId, IndexScan, IndexSpan, Part, ReadError, RowScan, TableId};

/// A read-only view of a part of a table. Later writes are not seen. Cheap to clone; keeps
/// overwritten rows alive for as long as it lives.
#[derive(Clone)]
pub struct TableSnapshot {
    view: Arc<dyn Snapshot>,
    table: TableId,
    part: Part,
}

impl TableSnapshot {
    pub(crate) fn new(view: Arc<dyn Snapshot>, table: TableId, part: Part) -> TableSnapshot {
        TableSnapshot { view, table, part }
    }

    /// The row under `key`, its checksum verified, or `None` if there is none. Fails with
    /// [`ReadError::Elsewhere`] if the key is not in this part.
    pub fn get(&self, key: &PrimaryKey) -> Result<Option<Object>, ReadError> {
        let bytes = self.get_bytes(key)?;
        bytes.map(|bytes| decode(self.table, key, bytes)).transpose()
    }

    /// The stored bytes of the row under `key`, not verified.
    pub fn get_bytes(&self, key: &PrimaryKey) -> Result<Option<Bytes>, ReadError> {
        if !self.part.range.contains(key) {
            return Err(ReadError::Elsewhere { key: key.clone(), group: self.part.group });
        }
        let row_key = RowKey::new(self.table, key.as_bytes());
        Ok(self.view.get(Space::Rows, row_key.as_bytes())?)
    }

    /// The rows of this part that lie in `range`, by key. The scan lives on its own.
    #[must_use]
    pub fn scan(&self, range: &KeyRange, direction: Direction) -> RowScan {
        let span = RowSpan::new(self.table, &self.part.range.intersect(range));
        let scan = Arc::clone(&self.view).scan(Space::Rows, span.as_span(), direction);
        RowScan::new(scan, self.table)
    }

    /// The entries of an index in `span` that belong to those rows of this part whose keys lie in `rows`, by index key
    /// and then by primary key. The scan lives on its own.
    #[must_use]
    pub fn scan_index(
        &self,
        index: IndexId,
        span: &IndexSpan,
        rows: &KeyRange,
        direction: Direction,
    ) -> IndexScan {
        let rows = self.part.range.intersect(rows);
        IndexScan::new(&self.view, self.table, index, span, rows, direction)
    }

    /// About how many bytes the entries of `span` take, whichever rows they belong to.
    pub fn index_bytes_in(&self, index: IndexId, span: &IndexSpan) -> Result<u64, ReadError> {
        let (start, end) = span.within(self.table, index);
        let span = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
        Ok(self.view.bytes_in(Space::Index, span)?)
    }

    /// How far the log of this part's group is contained in the view.
    pub fn applied(&self) -> Result<Applied, ReadError> {
        Ok(Applied::read_at(&*self.view, self.part.group)?.unwrap_or_default())
    }

    /// The number of rows of this part. Reads one record, not the rows.
    pub fn count(&self) -> Result<u64, ReadError> {
        Ok(Count::read_at(&*self.view, self.table, self.part.group)?.0)
    }

    /// How far the indexes that the part's group was told of are built.
    pub fn builds(&self) -> Result<Vec<(IndexId, IndexBuild)>, ReadError> {
        IndexBuild::read_all_at(&self.view, self.table, self.part.group)
    }

    /// The number of rows of this part that lie in `range`, by walking its keys.
    pub fn count_range(&self, range: &KeyRange) -> Result<u64, ReadError> {
        let span = RowSpan::new(self.table, &self.part.range.intersect(range));
        let mut scan = Arc::clone(&self.view).scan(Space::Rows, span.as_span(), Direction::Ascending);
        let mut rows = 0;
        while scan.next()?.is_some() {
            rows += 1;
        }
        Ok(rows)
    }

    /// About how many bytes the rows of `range` take.
    pub fn bytes_in(&self, range: &KeyRange) -> Result<u64, ReadError> {
        let span = RowSpan::new(self.table, &self.part.range.intersect(range));
        Ok(self.view.bytes_in(Space::Rows, span.as_span())?)
    }

    /// `range` within this part in at most `pieces` ranges, ascending, that hold roughly as many
    /// bytes each. Together they are the whole of it; a small range comes back in fewer.
    pub fn split(&self, range: &KeyRange, pieces: usize) -> Result<Vec<KeyRange>, ReadError> {
        let range = self.part.range.intersect(range);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let span = RowSpan::new(self.table, &range);
        let cuts = self.view.cuts(Space::Rows, span.as_span(), pieces)?;
        Ok(pieces_of(range, cuts))
    }

    /// The same in ranges that differ by one row at most. Walks the keys.
    pub fn split_evenly(&self, range: &KeyRange, pieces: usize) -> Result<Vec<KeyRange>, ReadError> {
        let range = self.part.range.intersect(range);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let (rows, pieces) = (self.count_range(&range)?, pieces as u64);
        let span = RowSpan::new(self.table, &range);
        let mut scan = Arc::clone(&self.view).scan(Space::Rows, span.as_span(), Direction::Ascending);
        let mut cuts = Vec::new();
        for row in 0..rows {
            let Some((key, _)) = scan.next()? else { break };
            // The first row of a piece is the first whose number is not below the piece's share.
            if row > 0 && row * pieces / rows != (row - 1) * pieces / rows {
                cuts.push(Bytes::copy_from_slice(key));
            }
        }
        Ok(pieces_of(range, cuts))
    }
}

/// The ranges into which stored keys cut `range`.
fn pieces_of(range: KeyRange, cuts: Vec<Bytes>) -> Vec<KeyRange> {
    let mut start = range.start;
    let mut ranges = Vec::with_capacity(cuts.len() + 1);
    for cut in cuts {
        let key = PrimaryKey(cut.slice(TableId::BYTES..));
        let end = KeyBound::Excluded(key.clone());
        ranges.push(KeyRange { start, end });
        start = KeyBound::Included(key);
    }
    ranges.push(KeyRange { start, end: range.end });
    ranges
}
