//! Lookups of rows by their keys.

use datum::{Object, PrimaryKey};
use storage::RowTexts;

use super::Shard;
use crate::ReadError;

impl Shard {
    /// The newest applied row under `key`, or `None` if there is none. Fails with [`ReadError::WrongShard`] if the key
    /// is outside this shard, or the rows have become unusable.
    pub fn get(&self, key: &PrimaryKey) -> Result<Option<Object>, ReadError> {
        self.checked_read(key, || self.table.get(key))
    }

    /// Calls `read_row` with the result of [`Shard::get`], without counting a reference: cheaper if the caller only
    /// reads the row. `read_row` must be quick; if this fails, its result is discarded.
    pub fn with_row<R>(
        &self,
        key: &PrimaryKey,
        read_row: impl FnOnce(Option<&Object>) -> R,
    ) -> Result<R, ReadError> {
        self.checked_read(key, || self.table.with_row(key, read_row))
    }

    fn checked_read<R>(
        &self,
        key: &PrimaryKey,
        read: impl FnOnce() -> Result<R, ReadError>,
    ) -> Result<R, ReadError> {
        if !self.shard_range.range.contains(key) {
            return Err(ReadError::WrongShard { key: key.clone(), group: self.shard_range.group });
        }
        self.activity.add_read(1);
        let rows_generation = self.rows_generation();
        let found = read()?;
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
        texts: &mut RowTexts,
        bytes_max: usize,
    ) -> Result<(), ReadError> {
        if let Some(key) = keys.iter().find(|key| !self.shard_range.range.contains(key)) {
            return Err(ReadError::WrongShard { key: key.clone(), group: self.shard_range.group });
        }
        self.activity.add_read(keys.len());
        let rows_generation = self.rows_generation();
        self.table.get_texts(keys, texts, bytes_max)?;
        match keys.first() {
            Some(key) if !self.is_current(rows_generation) => {
                Err(ReadError::WrongShard { key: key.clone(), group: self.shard_range.group })
            }
            _ => Ok(()),
        }
    }
}
