//! Scans of rows in the order of their keys.

use bytes::Bytes;
use datum::row::{CorruptRow, RowView};
use datum::{Object, PrimaryKey};
use engine::Scan;

use crate::batch::BlockBuilder;
use crate::{ReadError, RowBatch, TableId};

/// Bytes of the first block: a query for a few rows should not read hundreds.
const BLOCK_BYTES_MIN: usize = 4 << 10;
/// Bytes of later blocks: large enough that the work per block is negligible per row, small enough for the cache of a
/// core.
const BLOCK_BYTES_MAX: usize = 256 << 10;

/// A scan of rows. Owns its snapshot, so a cursor may keep it as long as it is open.
pub struct RowScan {
    scan: Box<dyn Scan>,
    table: TableId,
    block_bytes: usize,
    rows_left: usize,
    // Average bytes of a row and its key in the last batch; zero before the first.
    row_bytes: usize,
    // The batch that `next` returns rows from, and how many it has returned.
    batch: Option<RowBatch>,
    given: usize,
}

impl RowScan {
    pub(crate) fn new(scan: Box<dyn Scan>, table: TableId) -> RowScan {
        let (block_bytes, rows_left) = (BLOCK_BYTES_MIN, usize::MAX);
        RowScan { scan, table, block_bytes, rows_left, row_bytes: 0, batch: None, given: 0 }
    }

    /// Uses full blocks from the start, because all rows will be read.
    #[must_use]
    pub fn to_the_end(mut self) -> RowScan {
        self.block_bytes = BLOCK_BYTES_MAX;
        self
    }

    /// Reads no more than `rows` rows.
    #[must_use]
    pub fn at_most(mut self, rows: usize) -> RowScan {
        self.rows_left = rows;
        self
    }

    /// The next rows, or `None` at the end. A batch is never empty and holds about 256 KiB, less at first; a single
    /// larger row comes alone.
    ///
    /// Must not be mixed with [`RowScan::next`], which reads ahead.
    pub fn next_batch(&mut self) -> Result<Option<RowBatch>, ReadError> {
        let builder = BlockBuilder::new(self.table, self.next_block_bytes());
        self.fill(builder)
    }

    /// The next rows, in the memory of `used` if none of its rows is still referenced.
    pub fn next_batch_after(&mut self, used: RowBatch) -> Result<Option<RowBatch>, ReadError> {
        let builder = BlockBuilder::in_place_of(used, self.next_block_bytes());
        self.fill(builder)
    }

    /// The next row with its key, or `None` at the end.
    #[allow(clippy::should_implement_trait, reason = "a failed read must not be skipped over")]
    pub fn next(&mut self) -> Result<Option<(PrimaryKey, Object)>, ReadError> {
        if self.batch.as_ref().is_none_or(|batch| self.given == batch.len()) {
            self.batch = match self.batch.take() {
                Some(used) => self.next_batch_after(used)?,
                None => self.next_batch()?,
            };
            self.given = 0;
        }
        let Some(batch) = &self.batch else { return Ok(None) };
        self.given += 1;
        batch.row(self.given - 1).map(Some)
    }

    /// The next row without copying it, or `None` at the end. Its checksum is verified, unless the engine guarantees
    /// its bytes (docs/decisions/0023-row-checksum-verification.md).
    ///
    /// Must not be called after the other methods, which read ahead; they may be called after it.
    #[inline]
    pub fn next_view(&mut self) -> Result<Option<RowView<'_>>, ReadError> {
        Ok(self.next_keyed_view()?.map(|(_, view)| view))
    }

    /// [`RowScan::next_view`] with the bytes of the row's key.
    #[inline]
    pub fn next_keyed_view(&mut self) -> Result<Option<(&[u8], RowView<'_>)>, ReadError> {
        if self.rows_left == 0 {
            return Ok(None);
        }
        self.rows_left -= 1;
        let is_verified = self.scan.is_verified();
        let Some((key, row)) = self.scan.next()? else { return Ok(None) };
        let view = if is_verified { RowView::of_verified(row) } else { RowView::new(row) };
        match view {
            Ok(view) => Ok(Some((&key[TableId::BYTES..], view))),
            Err(cause) => Err(corrupt(self.table, key, cause)),
        }
    }

    /// Hints that the caller will read the bytes at `offset` of each stored row, so that [`RowScan::next_view`]
    /// prefetches them.
    pub fn prefetch_row_at(&mut self, offset: usize) {
        self.scan.prefetch_value_at(offset);
    }

    /// Bytes for the rows still wanted, if their number is known, but never more than a block.
    fn next_block_bytes(&self) -> usize {
        match (self.rows_left, self.row_bytes) {
            (usize::MAX, _) | (_, 0) => self.block_bytes,
            (left, each) => left.saturating_mul(each + each / 4).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX),
        }
    }

    fn fill(&mut self, mut builder: BlockBuilder) -> Result<Option<RowBatch>, ReadError> {
        let limit_bytes = self.next_block_bytes();
        self.block_bytes = (self.block_bytes * 4).min(BLOCK_BYTES_MAX);
        while self.rows_left > 0 {
            let Some((key, row)) = self.scan.next()? else { break };
            builder.push(&key[TableId::BYTES..], row);
            self.rows_left -= 1;
            // Assumes that the next row is as large as this one.
            if builder.bytes() + key.len() + row.len() > limit_bytes {
                break;
            }
        }
        let batch = builder.finish();
        self.row_bytes = batch.bytes().checked_div(batch.len()).unwrap_or_default();
        Ok((!batch.is_empty()).then_some(batch))
    }
}

#[cold]
fn corrupt(table: TableId, row_key: &[u8], cause: CorruptRow) -> ReadError {
    let key = PrimaryKey(Bytes::copy_from_slice(&row_key[TableId::BYTES..]));
    ReadError::Corrupt { table, key, cause }
}
