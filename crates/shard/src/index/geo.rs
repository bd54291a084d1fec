//! Reads by a geospatial index: rows that are stored under some cells, in one snapshot.

use std::sync::Arc;

use bytes::Bytes;
use datum::{KeyRange, Object, PrimaryKey};
use reql::geo::cover::CellRange;
use storage::{Direction, IndexRange, IndexScan, ReadError, TableSnapshot};

use super::def::{IndexDef, cell_key};

/// A geospatial index over some rows of a shard, as of one moment.
pub struct GeoIndexReader {
    snapshot: TableSnapshot,
    index: Arc<IndexDef>,
    rows: KeyRange,
}

/// A scan of the rows under some cells.
pub struct GeoIndexHits {
    // The ranges still to be scanned, the next one last.
    waiting: Vec<CellRange>,
    scan: IndexScan,
    // Whether the scan is inside one of the ranges.
    is_inside: bool,
}

impl GeoIndexReader {
    pub(crate) fn new(snapshot: TableSnapshot, index: Arc<IndexDef>, rows: KeyRange) -> GeoIndexReader {
        GeoIndexReader { snapshot, index, rows }
    }

    /// The index, which defines the shapes of a row.
    #[must_use]
    pub fn index(&self) -> &Arc<IndexDef> {
        &self.index
    }

    /// Scans the rows with shapes under these cells. A row is returned once for every cell of its shapes.
    #[must_use]
    pub fn hits(&self, mut ranges: Vec<CellRange>) -> GeoIndexHits {
        ranges.reverse();
        let (index, all) = (self.index.id(), IndexRange::all());
        let scan = self.snapshot.scan_index(index, &all, &self.rows, Direction::Ascending);
        GeoIndexHits { waiting: ranges, scan, is_inside: false }
    }

    /// The row of a hit.
    pub fn row(&self, primary: &PrimaryKey) -> Result<Object, ReadError> {
        let row = self.snapshot.get(primary)?;
        row.ok_or_else(|| ReadError::CorruptMeta { what: format!("an entry of index {}", self.index.id()) })
    }
}

impl GeoIndexHits {
    /// The key of the next row, or `None` at the end.
    #[allow(clippy::should_implement_trait, reason = "a failed read must not be skipped over")]
    pub fn next(&mut self) -> Result<Option<PrimaryKey>, ReadError> {
        loop {
            if self.is_inside
                && let Some(hit) = self.scan.next()?
            {
                return Ok(Some(hit.primary));
            }
            let Some((first, last)) = self.waiting.pop() else {
                self.is_inside = false;
                return Ok(None);
            };
            let end: Option<Bytes> = last.checked_add(1).map(cell_key);
            self.scan.restart(&IndexRange { start: cell_key(first), end });
            self.is_inside = true;
        }
    }
}
