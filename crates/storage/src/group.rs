//! Records about a group's log: the last applied position and the number of rows. They are written in the same batch as
//! the rows, so that they always agree.

use bytes::{BufMut, Bytes, BytesMut};
use engine::{Batch, Engine, Snapshot, Space};
use log::{GroupId, Lsn};

use crate::layout::{applied_key, corrupt_meta, count_key};
use crate::{ReadError, TableId};

/// How much of a group's log is applied to an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The last applied entry.
    pub lsn: Lsn,
    /// State that the caller needs to apply the next entry; opaque here.
    pub progress: Bytes,
}

impl Applied {
    /// The group's record, or `None` if no entry was ever applied.
    pub fn read(engine: &dyn Engine, group: GroupId) -> Result<Option<Applied>, ReadError> {
        Applied::decode(engine.get(Space::Meta, &applied_key(group))?, group)
    }

    /// The record that would be left after a power loss now.
    pub fn read_durable(engine: &dyn Engine, group: GroupId) -> Result<Option<Applied>, ReadError> {
        Applied::decode(engine.get_durable(Space::Meta, &applied_key(group))?, group)
    }

    /// The record in a snapshot.
    pub fn read_at(snapshot: &dyn Snapshot, group: GroupId) -> Result<Option<Applied>, ReadError> {
        Applied::decode(snapshot.get(Space::Meta, &applied_key(group))?, group)
    }

    pub(crate) fn decode(stored: Option<Bytes>, group: GroupId) -> Result<Option<Applied>, ReadError> {
        let Some(stored) = stored else { return Ok(None) };
        let (lsn, _) = stored.split_first_chunk().ok_or_else(|| corrupt_meta(format!("group {group}")))?;
        Ok(Some(Applied { lsn: Lsn(u64::from_le_bytes(*lsn)), progress: stored.slice(8..) }))
    }

    /// Adds the record to the batch that holds the entry's rows.
    pub fn put(&self, batch: &mut Batch, group: GroupId) {
        let mut record = BytesMut::with_capacity(8 + self.progress.len());
        record.put_u64_le(self.lsn.0);
        record.put_slice(&self.progress);
        batch.put(Space::Meta, &applied_key(group), record.freeze());
    }
}

/// The number of rows of a table in the range of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count(pub u64);

impl Count {
    /// The newest count; zero if none was ever written.
    pub fn read(engine: &dyn Engine, table: TableId, group: GroupId) -> Result<Count, ReadError> {
        Count::decode(engine.get(Space::Meta, &count_key(table, group))?, group)
    }

    /// The count as of a snapshot; fails if its bytes are damaged.
    pub fn read_at(snapshot: &dyn Snapshot, table: TableId, group: GroupId) -> Result<Count, ReadError> {
        Count::decode(snapshot.get(Space::Meta, &count_key(table, group))?, group)
    }

    /// Adds the count to the batch that changes it.
    pub fn put(self, batch: &mut Batch, table: TableId, group: GroupId) {
        let bytes = Bytes::copy_from_slice(&self.0.to_le_bytes());
        batch.put(Space::Meta, &count_key(table, group), bytes);
    }

    pub(crate) fn decode(stored: Option<Bytes>, group: GroupId) -> Result<Count, ReadError> {
        let Some(stored) = stored else { return Ok(Count(0)) };
        let bytes = stored[..].try_into();
        let bytes = bytes.map_err(|_| corrupt_meta(format!("the row count of group {group}")))?;
        Ok(Count(u64::from_le_bytes(bytes)))
    }
}
