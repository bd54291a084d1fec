//! The newest rows of a table.

use std::sync::Arc;

use bytes::Bytes;
use datum::{Object, PrimaryKey};
use engine::{EngineError, Space};
use log::GroupId;

use crate::layout::RowKey;
use crate::row::decode;
use crate::{Applied, Reach, ReadError, RowAhead, RowTexts, ShardRange, Store, TableId, TableSnapshot};

/// A table in a store. Cheap to create and to clone; holds no rows itself.
#[derive(Clone)]
pub struct Table {
    store: Arc<Store>,
    id: TableId,
}

impl Table {
    /// The table `id` in `store`, which may have no rows of it yet.
    #[must_use]
    pub fn new(store: Arc<Store>, id: TableId) -> Table {
        Table { store, id }
    }

    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    #[must_use]
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The row under `key`, its checksum verified, or `None` if there is none.
    pub fn get(&self, key: &PrimaryKey) -> Result<Option<Object>, ReadError> {
        self.get_within(key, Reach::Disk)
    }

    /// As [`Table::get`], as far as `reach` goes.
    pub fn get_within(&self, key: &PrimaryKey, reach: Reach) -> Result<Option<Object>, ReadError> {
        let row_key = RowKey::new(self.id, key.as_bytes());
        self.store.row(row_key.as_bytes(), || self.read(&row_key, key, reach))
    }

    /// Calls `read_row` with the row under `key`, as [`Table::get`] would return it. Cheaper if the caller only reads
    /// the row. `read_row` must be quick and must not access the store.
    pub fn with_row<R>(
        &self,
        key: &PrimaryKey,
        reach: Reach,
        read_row: impl FnOnce(Option<&Object>) -> R,
    ) -> Result<R, ReadError> {
        let row_key = RowKey::new(self.id, key.as_bytes());
        self.store.with_row(row_key.as_bytes(), read_row, || self.read(&row_key, key, reach))
    }

    /// The row under `key`, for a writer that does not have its latch yet. May wait for the disk.
    pub fn read_ahead(&self, key: &PrimaryKey) -> Result<RowAhead, ReadError> {
        let row_key = RowKey::new(self.id, key.as_bytes());
        self.store.row_ahead(row_key.as_bytes(), || self.read(&row_key, key, Reach::Disk))
    }

    /// The row in `ahead`, if the table still has it. `None` if some row was changed since: perhaps this one.
    #[must_use]
    pub fn newest<'a>(&self, ahead: &'a RowAhead) -> Option<Option<&'a Object>> {
        self.store.is_newest(ahead).then_some(ahead.row.as_ref())
    }

    /// The row and its stored size in bytes, from the engine.
    fn read(
        &self,
        row_key: &RowKey,
        key: &PrimaryKey,
        reach: Reach,
    ) -> Result<Option<(Object, usize)>, ReadError> {
        let (engine, row_key) = (self.store.engine(), row_key.as_bytes());
        let bytes = match reach {
            Reach::Memory => engine.get_in_memory(Space::Rows, row_key)?,
            Reach::Disk => engine.get(Space::Rows, row_key)?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let row_bytes = bytes.len();
        Ok(Some((self.decode(key, bytes)?, row_bytes)))
    }

    /// As `row::decode`; a damaged row is listed.
    fn decode(&self, key: &PrimaryKey, bytes: Bytes) -> Result<Object, ReadError> {
        decode(self.id, key, bytes).inspect_err(|error| {
            if let Some(damage) = self.store.engine().damage() {
                damage.note_row(RowKey::new(self.id, key.as_bytes()).as_bytes(), &error.to_string());
            }
        })
    }

    /// Appends the rows under `keys` to `texts`, in the order of `keys`, each as [`Table::get`] would return it.
    /// Cheaper than single lookups. Adds nothing for a key without a row, and stops once `texts` has `bytes_max` bytes.
    /// After an error `texts` must be discarded.
    pub fn get_texts(
        &self,
        keys: &[PrimaryKey],
        reach: Reach,
        texts: &mut RowTexts,
        bytes_max: usize,
    ) -> Result<(), ReadError> {
        let row_keys: Vec<RowKey> = keys.iter().map(|key| RowKey::new(self.id, key.as_bytes())).collect();
        self.store.texts(&row_keys, texts, bytes_max, |missing| {
            let wanted: Vec<&[u8]> = missing.iter().map(|i| row_keys[*i].as_bytes()).collect();
            let found = self.read_many(&wanted, reach)?;
            let row = |(i, bytes): (&usize, Option<Bytes>)| {
                let Some(bytes) = bytes else { return Ok(None) };
                let row_bytes = bytes.len();
                Ok(Some((self.decode(&keys[*i], bytes)?, row_bytes)))
            };
            missing.iter().zip(found).map(row).collect()
        })
    }

    /// The stored rows under the engine's keys `keys`.
    fn read_many(&self, keys: &[&[u8]], reach: Reach) -> Result<Vec<Option<Bytes>>, EngineError> {
        let engine = self.store.engine();
        match reach {
            Reach::Memory => keys.iter().map(|key| engine.get_in_memory(Space::Rows, key)).collect(),
            Reach::Disk => engine.get_many(Space::Rows, keys),
        }
    }

    /// The row under `key`, read from the engine without using or filling the row cache.
    pub fn get_once(&self, key: &PrimaryKey) -> Result<Option<Object>, ReadError> {
        let bytes = self.get_bytes(key)?;
        bytes.map(|bytes| self.decode(key, bytes)).transpose()
    }

    /// The stored bytes of the row under `key`, not verified.
    pub fn get_bytes(&self, key: &PrimaryKey) -> Result<Option<Bytes>, ReadError> {
        let row_key = RowKey::new(self.id, key.as_bytes());
        Ok(self.store.engine().get(Space::Rows, row_key.as_bytes())?)
    }

    /// The record of the last entry of `group` whose rows can be read. One lookup in the engine.
    pub fn applied(&self, group: GroupId) -> Result<Applied, ReadError> {
        Ok(Applied::read(&**self.store.engine(), group)?.unwrap_or_default())
    }

    /// The rows of `shard_range` as they are now.
    pub fn snapshot(&self, shard_range: ShardRange) -> Result<TableSnapshot, ReadError> {
        Ok(TableSnapshot::new(self.store.engine().snapshot()?, self.id, shard_range))
    }

    /// As [`Table::snapshot`], for callers that must not block: `None` if too much would have to be flushed first. Reads
    /// of the snapshot fail rather than wait for the disk ([`ReadError::needs_disk`]).
    pub fn try_snapshot(&self, shard_range: ShardRange) -> Result<Option<TableSnapshot>, ReadError> {
        let view = self.store.engine().try_snapshot()?;
        Ok(view.map(|view| TableSnapshot::new(view, self.id, shard_range)))
    }
}
