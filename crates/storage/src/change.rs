//! Changes of rows. All writes of rows go through here.

use bytes::Bytes;
use datum::PrimaryKey;
use engine::{Batch, Change, Space};

use crate::{IndexChange, TableId};

/// A row to put or to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    pub key: PrimaryKey,
    /// Its new bytes (`docs/formats/row.md`), or `None` if it is deleted.
    pub row: Option<Bytes>,
    /// Whether the row existed before, for the row count.
    pub existed: bool,
}

/// Changed rows collected for one engine batch.
///
/// When many writers change the same row, a batch has many changes of it and only the last one matters. The earlier
/// ones are left out where that is cheap to detect, and cost the engine nothing.
#[derive(Default)]
pub struct Changes {
    /// The batch. The caller may add other records, but must not delete ranges.
    pub batch: Batch,
    // The index in the batch of a recent change of a row, by a hash of the row's key. A guess that is verified; on a
    // collision the older one is overwritten.
    recent: Vec<u32>,
}

/// Rows up to this size are copied out of their log entry; a longer row stays a slice of it until the engine has
/// written it.
pub(crate) const DETACHED_BYTES_MAX: usize = 64 << 10;

const RECENT_SLOTS: usize = 256;
const EMPTY_SLOT: u32 = u32::MAX;

impl Changes {
    /// Adds `change`. Returns by how much the table's row count grows.
    pub fn add(&mut self, table: TableId, change: &RowChange) -> i64 {
        let key = change.key.as_bytes();
        let gained = i64::from(change.row.is_some()) - i64::from(change.existed);
        self.recent.resize(RECENT_SLOTS, EMPTY_SLOT);
        let slot = &mut self.recent[recent_slot(key)];
        let recent = *slot as usize;
        let row = change.row.as_ref().map(detached);
        if is_row(self.batch.change(recent), table, key) {
            self.batch.supersede(recent, row);
            return gained;
        }
        *slot = self.batch.len() as u32;
        let parts: [&[u8]; 2] = [table.as_bytes(), key];
        match row {
            Some(row) => self.batch.put_joined(Space::Rows, &parts, row),
            None => self.batch.delete_joined(Space::Rows, &parts),
        }
        gained
    }

    /// Adds a change of an index entry of the row `primary`.
    pub fn add_index(&mut self, table: TableId, primary: &PrimaryKey, change: &IndexChange) {
        let index = change.index.0.to_be_bytes();
        let parts: [&[u8]; 4] = [table.as_bytes(), &index, &change.key, primary.as_bytes()];
        match &change.entry {
            Some(entry) => self.batch.put_joined(Space::Index, &parts, entry.encode(change.key.len())),
            None => self.batch.delete_joined(Space::Index, &parts),
        }
    }
}

/// A copy of a short row, which outlives its log entry: in the row cache, and until the engine has written it.
fn detached(row: &Bytes) -> Bytes {
    if row.len() <= DETACHED_BYTES_MAX { Bytes::copy_from_slice(row) } else { row.clone() }
}

fn is_row(change: Option<Change<'_>>, table: TableId, row: &[u8]) -> bool {
    match change {
        Some(Change::Put { space: Space::Rows, key, .. } | Change::Delete { space: Space::Rows, key }) => {
            key.strip_prefix(table.as_bytes()) == Some(row)
        }
        _ => false,
    }
}

/// Keys often differ only in their last bytes. A poor distribution only makes the batch larger than necessary.
fn recent_slot(key: &[u8]) -> usize {
    let mut hash = 0_u64;
    for chunk in key.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    (hash >> 56) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(number: u128) -> TableId {
        TableId::from_uuid(uuid::Uuid::from_u128(number))
    }

    fn change(key: u64, row: Option<&'static str>) -> RowChange {
        let key = PrimaryKey(Bytes::copy_from_slice(&key.to_be_bytes()));
        RowChange { key, row: row.map(Bytes::from), existed: false }
    }

    #[test]
    fn a_row_changed_again_and_again_is_written_once() {
        let mut changes = Changes::default();
        for _ in 0..100 {
            changes.add(table(1), &change(1, Some("old")));
            changes.add(table(1), &change(2, Some("kept")));
            changes.add(table(2), &change(1, Some("other table")));
        }
        changes.add(table(1), &change(1, None));
        let first = [table(1).as_bytes(), &1_u64.to_be_bytes()[..]].concat();
        let last = changes.batch.changes().filter(|change| match change {
            Change::Put { key, .. } | Change::Delete { key, .. } => *key == first,
            Change::DeleteRange { .. } => false,
        });
        assert_eq!(last.last(), Some(Change::Delete { space: Space::Rows, key: &first }));
        assert!(changes.batch.len() < 210, "{} changes of three rows", changes.batch.len());
    }

    #[test]
    fn many_rows_are_all_written() {
        let mut changes = Changes::default();
        for key in 0..5000 {
            assert_eq!(changes.add(table(1), &change(key, Some("row"))), 1);
        }
        let mut keys: Vec<_> = changes.batch.changes().map(|change| format!("{change:?}")).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 5000);
    }
}
