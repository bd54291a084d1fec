//! The rows of a shard's range at one moment.

use std::sync::Arc;

use bytes::Bytes;
use datum::{KeyBound, KeyRange, Object, PrimaryKey};
use engine::{Direction, Snapshot, Space};

use crate::layout::{RowKey, RowRange};
use crate::row::decode;
use crate::{
    Applied, Count, IndexBuild, IndexId, IndexRange, IndexScan, ReadError, RowScan, ShardRange, TableId,
};

/// A read-only view of a shard's range of a table. Later writes are not visible. Cheap to clone; keeps overwritten rows
/// alive as long as it lives.
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

    pub(crate) fn view(&self) -> &Arc<dyn Snapshot> {
        &self.view
    }

    pub(crate) fn table(&self) -> TableId {
        self.table
    }

    /// The row under `key`, its checksum verified, or `None` if there is none. Fails with [`ReadError::WrongShard`] if
    /// the key is outside the shard's range.
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

    /// Scans the rows of the shard that lie in `range`. The scan holds its own reference to the view.
    #[must_use]
    pub fn scan(&self, range: &KeyRange, direction: Direction) -> RowScan {
        let keys = RowRange::new(self.table, &self.shard_range.range.intersect(range));
        let scan = Arc::clone(&self.view).scan(Space::Rows, keys.as_scan_range(), direction);
        RowScan::new(scan, self.table)
    }

    /// Scans the entries of an index in `range`, by index key and then by primary key, of those rows of the shard whose
    /// keys lie in `rows`. The scan holds its own reference to the view.
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

    /// How much of the log of the shard's group is applied in the view.
    pub fn applied(&self) -> Result<Applied, ReadError> {
        Ok(Applied::read_at(&*self.view, self.shard_range.group)?.unwrap_or_default())
    }

    /// The number of rows of the shard. Reads one record, not the rows.
    pub fn count(&self) -> Result<u64, ReadError> {
        Ok(Count::read_at(&*self.view, self.table, self.shard_range.group)?.0)
    }

    /// The build records of the indexes that are registered with the shard's group.
    pub fn builds(&self) -> Result<Vec<(IndexId, IndexBuild)>, ReadError> {
        IndexBuild::read_all_at(&self.view, self.table, self.shard_range.group)
    }

    /// The number of rows of the shard that lie in `range`, by scanning the keys.
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

    /// Splits the part of `range` inside the shard into at most `parts` ranges, ascending, with roughly as many bytes
    /// each. Together they cover all of it; a small range is split into fewer.
    pub fn split(&self, range: &KeyRange, parts: usize) -> Result<Vec<KeyRange>, ReadError> {
        let range = self.shard_range.range.intersect(range);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let keys = RowRange::new(self.table, &range);
        let points = self.view.split_points(Space::Rows, keys.as_scan_range(), parts)?;
        Ok(ranges_between(range, points))
    }

    /// As [`TableSnapshot::split`], into ranges that differ by at most one row. Scans the keys.
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
            // A part begins at the first row whose number is not below the part's share.
            if row > 0 && row * parts / rows != (row - 1) * parts / rows {
                points.push(Bytes::copy_from_slice(key));
            }
        }
        Ok(ranges_between(range, points))
    }
}

/// Splits `range` at stored keys.
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
