//! A block of rows read together. The rows are slices of one buffer.

use bytes::{Bytes, BytesMut};
use datum::{Object, PrimaryKey};

use crate::row::decode;
use crate::{ReadError, TableId};

/// Some rows of a table, in the order of the scan that read them.
///
/// A row of the batch is a slice of the shared block: nothing is copied or allocated per row, and the block lives as
/// long as any of its rows.
#[derive(Clone, Debug)]
pub struct RowBatch {
    table: TableId,
    block: Bytes,
    rows: Vec<RowOffsets>,
}

/// The position of a row in its block: the key, then the row.
#[derive(Clone, Copy, Debug)]
struct RowOffsets {
    start: usize,
    key_len: u32,
    row_len: u32,
}

impl RowBatch {
    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of all keys and rows.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.block.len()
    }

    /// The key and the row at `index`, the row's checksum verified.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`RowBatch::len`].
    pub fn row(&self, index: usize) -> Result<(PrimaryKey, Object), ReadError> {
        let key = self.key(index);
        let object = decode(self.table, &key, self.row_bytes(index))?;
        Ok((key, object))
    }

    /// The row at `index` without its key, its checksum verified.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`RowBatch::len`].
    pub fn object(&self, index: usize) -> Result<Object, ReadError> {
        datum::row::decode(self.row_bytes(index)).map_err(|cause| ReadError::Corrupt {
            table: self.table,
            key: self.key(index),
            cause,
        })
    }

    /// The key at `index`.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`RowBatch::len`].
    #[must_use]
    pub fn key(&self, index: usize) -> PrimaryKey {
        let offsets = self.rows[index];
        PrimaryKey(self.block.slice(offsets.start..offsets.start + offsets.key_len as usize))
    }

    /// The bytes of the key at `index`.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`RowBatch::len`].
    #[must_use]
    pub fn key_bytes(&self, index: usize) -> &[u8] {
        let offsets = self.rows[index];
        &self.block[offsets.start..offsets.start + offsets.key_len as usize]
    }

    /// The stored bytes of the row at `index`, not verified.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`RowBatch::len`].
    #[must_use]
    pub fn row_bytes(&self, index: usize) -> Bytes {
        let offsets = self.rows[index];
        let start = offsets.start + offsets.key_len as usize;
        self.block.slice(start..start + offsets.row_len as usize)
    }

    /// All rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Result<(PrimaryKey, Object), ReadError>> {
        (0..self.len()).map(|index| self.row(index))
    }
}

/// A block that is being filled.
pub(crate) struct BlockBuilder {
    table: TableId,
    block: BytesMut,
    rows: Vec<RowOffsets>,
}

impl BlockBuilder {
    pub(crate) fn new(table: TableId, block_bytes: usize) -> BlockBuilder {
        BlockBuilder { table, block: BytesMut::with_capacity(block_bytes), rows: Vec::new() }
    }

    /// Reuses the memory of `used`, if none of its rows is still referenced.
    pub(crate) fn in_place_of(used: RowBatch, block_bytes: usize) -> BlockBuilder {
        let RowBatch { table, block, mut rows } = used;
        let Ok(mut block) = block.try_into_mut() else {
            return BlockBuilder::new(table, block_bytes);
        };
        block.clear();
        rows.clear();
        block.reserve(block_bytes);
        BlockBuilder { table, block, rows }
    }

    pub(crate) fn push(&mut self, key: &[u8], row: &[u8]) {
        let start = self.block.len();
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(row);
        // Keys have less than a thousand bytes, rows less than 4 GiB (docs/formats/row.md).
        self.rows.push(RowOffsets { start, key_len: key.len() as u32, row_len: row.len() as u32 });
    }

    pub(crate) fn bytes(&self) -> usize {
        self.block.len()
    }

    pub(crate) fn finish(self) -> RowBatch {
        RowBatch { table: self.table, block: self.block.freeze(), rows: self.rows }
    }
}
