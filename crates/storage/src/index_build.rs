//! Build records of indexes, one per index and group: `docs/formats/engine-keys.md`.

use std::ops::Bound;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use datum::PrimaryKey;
use engine::{Batch, Direction, Engine, Snapshot, Space};
use log::GroupId;

use crate::layout::{after_prefix, build_key, builds_prefix, corrupt_meta};
use crate::{IndexId, ReadError, TableId};

/// How far an index is built. Written in the same batch as the entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexBuild {
    /// Rows up to a key have their entries. Rows written meanwhile have them in any case.
    Under {
        /// The key of the last indexed row; `None` before the first.
        after: Option<PrimaryKey>,
        /// The number of rows indexed so far.
        rows: u64,
    },
    /// Every row has its entries.
    Ready,
}

const UNDER: u8 = 0;
const UNDER_AFTER: u8 = 1;
const READY: u8 = 2;

impl Default for IndexBuild {
    fn default() -> Self {
        IndexBuild::Under { after: None, rows: 0 }
    }
}

impl IndexBuild {
    /// The build records of a table's indexes in a group, by index.
    pub fn read_all(
        engine: &dyn Engine,
        table: TableId,
        group: GroupId,
    ) -> Result<Vec<(IndexId, IndexBuild)>, ReadError> {
        IndexBuild::read_all_at(&engine.snapshot()?, table, group)
    }

    /// The records in a snapshot.
    pub fn read_all_at(
        snapshot: &Arc<dyn Snapshot>,
        table: TableId,
        group: GroupId,
    ) -> Result<Vec<(IndexId, IndexBuild)>, ReadError> {
        let prefix = builds_prefix(table, group);
        let end = after_prefix(&prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Included(&prefix[..]), end);
        let mut scan = Arc::clone(snapshot).scan(Space::Meta, range, Direction::Ascending);
        let mut builds = Vec::new();
        while let Some((key, value)) = scan.next()? {
            let damaged = || corrupt_meta(format!("an index build of group {group}"));
            let id = key[prefix.len()..].try_into().map_err(|_| damaged())?;
            builds.push((IndexId(u32::from_be_bytes(id)), IndexBuild::decode(value).ok_or_else(damaged)?));
        }
        Ok(builds)
    }

    /// Adds the record to a batch.
    pub fn put(&self, batch: &mut Batch, table: TableId, group: GroupId, index: IndexId) {
        batch.put(Space::Meta, &build_key(table, group, index), self.encode());
    }

    /// The bytes of the record, in the engine as in log entries.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        match self {
            IndexBuild::Ready => bytes.put_u8(READY),
            IndexBuild::Under { after, rows } => {
                bytes.put_u8(if after.is_some() { UNDER_AFTER } else { UNDER });
                bytes.put_u64_le(*rows);
                bytes.put_slice(after.as_ref().map_or(&[], PrimaryKey::as_bytes));
            }
        }
        bytes.freeze()
    }

    /// The record in these bytes, or `None` if they are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<IndexBuild> {
        match bytes.split_first()? {
            (&READY, []) => Some(IndexBuild::Ready),
            (&kind @ (UNDER | UNDER_AFTER), rest) => {
                let (rows, after) = rest.split_first_chunk()?;
                let after = match kind {
                    UNDER if !after.is_empty() => return None,
                    UNDER => None,
                    _ => Some(PrimaryKey(Bytes::copy_from_slice(after))),
                };
                Some(IndexBuild::Under { after, rows: u64::from_le_bytes(*rows) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_other_bytes_do_not() {
        let key = PrimaryKey(Bytes::from_static(b"\x60row"));
        for build in
            [IndexBuild::default(), IndexBuild::Under { after: Some(key), rows: 70_000 }, IndexBuild::Ready]
        {
            assert_eq!(IndexBuild::decode(&build.encode()), Some(build));
        }
        for bytes in [&[][..], &[3], &[READY, 1], &[UNDER, 1], &[UNDER, 0, 0, 0, 0, 0, 0, 0, 0, 7]] {
            assert_eq!(IndexBuild::decode(bytes), None);
        }
    }
}
