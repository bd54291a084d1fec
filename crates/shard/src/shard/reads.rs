//! Reads of a shard: rows by their keys, and rows by an index.

use std::sync::Arc;

use datum::{KeyRange, Object, PrimaryKey};
use storage::{IndexBuild, IndexId, Reach, RowTexts, TableSnapshot};

use super::Shard;
use crate::ReadError;
use crate::index::{GeoIndexReader, IndexDef, IndexError, IndexQuery, IndexRows};

impl Shard {
    /// The newest applied row under `key`, or `None` if there is none. Fails with [`ReadError::WrongShard`] if the key
    /// is outside this shard, or the rows have become unusable.
    pub fn get(&self, key: &PrimaryKey) -> Result<Option<Object>, ReadError> {
        self.get_within(key, Reach::Disk)
    }

    /// As [`Shard::get`], as far as `reach` goes.
    pub fn get_within(&self, key: &PrimaryKey, reach: Reach) -> Result<Option<Object>, ReadError> {
        self.checked_read(key, || self.table.get_within(key, reach))
    }

    /// Calls `read_row` with the result of [`Shard::get`], without counting a reference: cheaper if the caller only
    /// reads the row. `read_row` must be quick; if this fails, its result is discarded.
    pub fn with_row<R>(
        &self,
        key: &PrimaryKey,
        reach: Reach,
        read_row: impl FnOnce(Option<&Object>) -> R,
    ) -> Result<R, ReadError> {
        self.checked_read(key, || self.table.with_row(key, reach, read_row))
    }

    fn checked_read<R>(
        &self,
        key: &PrimaryKey,
        read: impl FnOnce() -> Result<R, ReadError>,
    ) -> Result<R, ReadError> {
        if !self.shard_range.range.contains(key) {
            return Err(ReadError::WrongShard { key: key.clone(), group: self.shard_range.group });
        }
        let rows_generation = self.rows_generation();
        let found = read()?;
        self.activity.add_read(1);
        // Checked afterwards: a row that was removed meanwhile, because the rows are being replaced, is not missing.
        match self.is_current(rows_generation) {
            true => Ok(found),
            false => Err(ReadError::WrongShard { key: key.clone(), group: self.shard_range.group }),
        }
    }

    /// Appends the newest applied rows under `keys` to `texts`, in order; cheaper than single lookups. Adds nothing for
    /// a key without a row, and stops once `texts` has `bytes_max` bytes. After an error `texts` must be discarded.
    pub fn get_texts(
        &self,
        keys: &[PrimaryKey],
        reach: Reach,
        texts: &mut RowTexts,
        bytes_max: usize,
    ) -> Result<(), ReadError> {
        if let Some(key) = keys.iter().find(|key| !self.shard_range.range.contains(key)) {
            return Err(ReadError::WrongShard { key: key.clone(), group: self.shard_range.group });
        }
        let rows_generation = self.rows_generation();
        self.table.get_texts(keys, reach, texts, bytes_max)?;
        self.activity.add_read(keys.len());
        match keys.first() {
            Some(key) if !self.is_current(rows_generation) => {
                Err(ReadError::WrongShard { key: key.clone(), group: self.shard_range.group })
            }
            _ => Ok(()),
        }
    }

    /// Starts reading rows by an index, as they are now. Fails unless the index is built, and for a geospatial index,
    /// whose keys have no meaningful order.
    pub fn read_index(&self, query: &IndexQuery) -> Result<IndexRows, IndexError> {
        let (index, snapshot) = self.built_index(query.index, Keys::Values)?;
        IndexRows::new(snapshot, index, query)
    }

    /// Starts reading the rows whose keys lie in `rows` by a geospatial index, as they are now. Fails unless the index
    /// is built.
    pub fn read_shapes(&self, index: IndexId, rows: KeyRange) -> Result<GeoIndexReader, IndexError> {
        let (index, snapshot) = self.built_index(index, Keys::Cells)?;
        Ok(GeoIndexReader::new(snapshot, index, rows))
    }

    /// The index, and a snapshot that has all of its entries.
    fn built_index(&self, id: IndexId, keys: Keys) -> Result<(Arc<IndexDef>, TableSnapshot), IndexError> {
        self.known_index(id, keys)?;
        if self.index_build(id) != IndexBuild::Ready {
            return Err(IndexError::NotReady(id));
        }
        // Taken after the build was checked, so that the snapshot has all entries.
        let snapshot = self.snapshot()?;
        // Checked again afterwards: the entries of a dropped index are deleted once the shard no longer knows it.
        Ok((self.known_index(id, keys)?, snapshot))
    }

    fn known_index(&self, id: IndexId, keys: Keys) -> Result<Arc<IndexDef>, IndexError> {
        let indexes = self.indexes();
        let is_it =
            |index: &&Arc<IndexDef>| index.id() == id && index.kind().is_geo() == (keys == Keys::Cells);
        indexes.iter().find(is_it).cloned().ok_or(IndexError::Missing(id))
    }
}

/// The kind of an index's keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Values,
    Cells,
}
