//! The rows of a part of a table, as of one moment.

use std::sync::Arc;

use bytes::Bytes;
use datum::{KeyBound, KeyRange, Object, PrimaryKey};
use engine::{Direction, Snapshot, Space};

use crate::layout::{RowKey, RowRange};
use crate::row::decode;
use crate::{
    Applied, Count, IndexBuild, IndexId, IndexRange, IndexScan, ReadError, RowScan, ShardRange, TableId,
};

/// A read-only view of a part of a table. Later writes are not seen. Cheap to clone; keeps
/// overwritten rows alive for as long as it lives.
#[derive(Clone)]
pub struct TableSnapshot {
    view: Arc<dyn Snapshot>,
    table: TableId,
    shard_range: ShardRange,
}

impl TableSnapshot {
    pub(crate) fn new(view: Arc<dyn Snapshot>, table: TableId, shard_range: ShardRange) -> TableSnapshot {
        TableSnapshot { view, table, shard_range }
    }

    /// The row under `key`, its checksum verified, or `None` if there is none. Fails with
    /// [`ReadError::WrongShard`] if the key is not in this part.
    pub fn get(&self, key: &PrimaryKey) -> Result<Option<Object>, ReadError> {
        let bytes = self.get_bytes(key)?;
        bytes.map(|bytes| decode(self.table, key, bytes)).transpose()
    }

    /// The stored bytes of the row under `key`, not verified.
    pub fn get_bytes(&self, key: &PrimaryKey) -> Result<Option<Bytes>, ReadError> {
        if !self.shard_range.range.contains(key) {
            return Err(ReadError::WrongShard { key: key.clone(), group: self.shard_range.group });
        }
        let row_key = RowKey::new(self.table, key.as_bytes());
        Ok(self.view.get(Space::Rows, row_key.as_bytes())?)
    }

    /// The rows of this part that lie in `range`, by key. The scan lives on its own.
    #[must_use]
    pub fn scan(&self, range: &KeyRange, direction: Direction) -> RowScan {
        let keys = RowRange::new(self.table, &self.shard_range.range.intersect(range));
        let scan = Arc::clone(&self.view).scan(Space::Rows, keys.as_scan_range(), direction);
        RowScan::new(scan, self.table)
    }

    /// The entries of an index in `range` that belong to those rows of this part whose keys lie in `rows`, by index key
    /// and then by primary key. The scan lives on its own.
    #[must_use]
    pub fn scan_index(
        &self,
        index: IndexId,
        range: &IndexRange,
        rows: &KeyRange,
        direction: Direction,
    ) -> IndexScan {
        let rows = self.shard_range.range.intersect(rows);
        IndexScan::new(&self.view, self.table, index, range, rows, direction)
    }

    /// About how many bytes the entries of `range` take, whichever rows they belong to.
    pub fn index_bytes_in(&self, index: IndexId, range: &IndexRange) -> Result<u64, ReadError> {
        let (start, end) = range.within(self.table, index);
        let range = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
        Ok(self.view.bytes_in(Space::Index, range)?)
    }

    /// How far the log of this part's group is contained in the view.
    pub fn applied(&self) -> Result<Applied, ReadError> {
        Ok(Applied::read_at(&*self.view, self.shard_range.group)?.unwrap_or_default())
    }

    /// The number of rows of this part. Reads one record, not the rows.
    pub fn count(&self) -> Result<u64, ReadError> {
        Ok(Count::read_at(&*self.view, self.table, self.shard_range.group)?.0)
    }

    /// How far the indexes that the part's group was told of are built.
    pub fn builds(&self) -> Result<Vec<(IndexId, IndexBuild)>, ReadError> {
        IndexBuild::read_all_at(&self.view, self.table, self.shard_range.group)
    }

    /// The number of rows of this part that lie in `range`, by walking its keys.
    pub fn count_range(&self, range: &KeyRange) -> Result<u64, ReadError> {
        let keys = RowRange::new(self.table, &self.shard_range.range.intersect(range));
        let mut scan = Arc::clone(&self.view).scan(Space::Rows, keys.as_scan_range(), Direction::Ascending);
        let mut rows = 0;
        while scan.next()?.is_some() {
            rows += 1;
        }
        Ok(rows)
    }

    /// About how many bytes the rows of `range` take.
    pub fn bytes_in(&self, range: &KeyRange) -> Result<u64, ReadError> {
        let keys = RowRange::new(self.table, &self.shard_range.range.intersect(range));
        Ok(self.view.bytes_in(Space::Rows, keys.as_scan_range())?)
    }

    /// `range` within this part in at most `parts` ranges, ascending, that hold roughly as many
    /// bytes each. Together they are the whole of it; a small range comes back in fewer.
    pub fn split(&self, range: &KeyRange, parts: usize) -> Result<Vec<KeyRange>, ReadError> {
        let range = self.shard_range.range.intersect(range);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let keys = RowRange::new(self.table, &range);
        let points = self.view.split_points(Space::Rows, keys.as_scan_range(), parts)?;
        Ok(ranges_between(range, points))
    }

    /// The same in ranges that differ by one row at most. Walks the keys.
    pub fn split_evenly(&self, range: &KeyRange, parts: usize) -> Result<Vec<KeyRange>, ReadError> {
        let range = self.shard_range.range.intersect(range);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let (rows, parts) = (self.count_range(&range)?, parts as u64);
        let keys = RowRange::new(self.table, &range);
        let mut scan = Arc::clone(&self.view).scan(Space::Rows, keys.as_scan_range(), Direction::Ascending);
        let mut points = Vec::new();
        for row in 0..rows {
            let Some((key, _)) = scan.next()? else { break };
            // The first row of a piece is the first whose number is not below the piece's share.
            if row > 0 && row * parts / rows != (row - 1) * parts / rows {
                points.push(Bytes::copy_from_slice(key));
            }
        }
        Ok(ranges_between(range, points))
    }
}

/// The ranges into which stored keys cut `range`.
fn ranges_between(range: KeyRange, points: Vec<Bytes>) -> Vec<KeyRange> {
    let mut start = range.start;
    let mut ranges = Vec::with_capacity(points.len() + 1);
    for cut in points {
        let key = PrimaryKey(cut.slice(TableId::BYTES..));
        let end = KeyBound::Excluded(key.clone());
        ranges.push(KeyRange { start, end });
        start = KeyBound::Included(key);
    }
    ranges.push(KeyRange { start, end: range.end });
    ranges
}
