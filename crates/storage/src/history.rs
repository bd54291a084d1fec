//! The history of a group: its applied log entries with old and new rows, as changefeeds read them.
//!
//! A record names the one before it. A reader that follows these links from a record it knows notices every gap, whatever
//! made it: records that the engine has forgotten, or a replica whose rows came from a copy. The link has the incarnation of that
//! record, too, so that it leads on also if the record itself has been forgotten.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Batch, Direction, EngineError, Snapshot, Space};
use log::{GroupId, Lsn};

use crate::history_value::entry_of;

const KEY_BYTES: usize = 32;

/// One record of a group's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRecord {
    /// The position of the entry.
    pub lsn: Lsn,
    /// The position of the record before it; 0 if it is the first of its group.
    pub previous: Lsn,
    /// The incarnation in that entry; 0 if there is none.
    pub previous_incarnation: u64,
    /// As it was proposed.
    pub entry: Bytes,
}

impl HistoryRecord {
    /// Adds the record to the batch that holds the entry's rows.
    pub fn put(self, batch: &mut Batch, group: GroupId) {
        let mut key = [0; KEY_BYTES];
        key[..16].copy_from_slice(&first_key(group, self.lsn));
        key[16..24].copy_from_slice(&self.previous.0.to_be_bytes());
        key[24..].copy_from_slice(&self.previous_incarnation.to_be_bytes());
        batch.put(Space::History, &key, self.entry);
    }

    /// Deletes the history of a group.
    pub fn forget(batch: &mut Batch, group: GroupId) {
        let (start, end) = (first_key(group, Lsn(0)), first_key(GroupId(group.0.wrapping_add(1)), Lsn(0)));
        match group.0 {
            u64::MAX => batch.delete_range(Space::History, &start, &[u8::MAX; KEY_BYTES]),
            _ => batch.delete_range(Space::History, &start, &end),
        }
    }

    /// The records of `group` from position `from` on, in order: at least one if there is one, and no further ones once
    /// they have `bytes_max` bytes.
    pub fn read(
        snapshot: &Arc<dyn Snapshot>,
        group: GroupId,
        from: Lsn,
        bytes_max: usize,
    ) -> Result<Vec<HistoryRecord>, EngineError> {
        let (start, end) = (first_key(group, from), first_key(GroupId(group.0.wrapping_add(1)), Lsn(0)));
        let end = if group.0 == u64::MAX { Bound::Unbounded } else { Bound::Excluded(&end[..]) };
        let range = (Bound::Included(&start[..]), end);
        let mut scan = Arc::clone(snapshot).scan(Space::History, range, Direction::Ascending);
        let (mut records, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max
            && let Some((key, value)) = scan.next()?
        {
            if key.len() != KEY_BYTES {
                continue;
            }
            let record = HistoryRecord::of_pair(key, value).map(|(_, record)| record);
            bytes += KEY_BYTES + value.len();
            records.push(record.ok_or_else(|| damaged(group, key))?);
        }
        Ok(records)
    }

    /// The record in a pair of the engine, with its group. `None` if the key is malformed or the value
    /// cannot be decompressed.
    pub(crate) fn of_pair(key: &[u8], value: &[u8]) -> Option<(GroupId, HistoryRecord)> {
        let key: &[u8; KEY_BYTES] = key.try_into().ok()?;
        let (numbers, _) = key.as_chunks::<8>();
        let [group, lsn, previous, previous_incarnation] =
            [0, 1, 2, 3].map(|at| u64::from_be_bytes(numbers[at]));
        let (lsn, previous, entry) = (Lsn(lsn), Lsn(previous), entry_of(value)?);
        Some((GroupId(group), HistoryRecord { lsn, previous, previous_incarnation, entry }))
    }
}

fn damaged(group: GroupId, key: &[u8]) -> EngineError {
    let lsn = key[8..16].iter().fold(0_u64, |lsn, byte| lsn << 8 | u64::from(*byte));
    EngineError::Corrupt {
        detail: format!("record {lsn} of the history of group {group} cannot be decompressed"),
    }
}

/// The start of the keys of the records at `lsn`.
fn first_key(group: GroupId, lsn: Lsn) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&group.0.to_be_bytes());
    key[8..].copy_from_slice(&lsn.0.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use engine::Engine;
    use engine::memory::MemoryEngine;

    use super::*;

    #[test]
    fn records_of_a_group_come_back_in_order_and_in_chunks() {
        let engine = MemoryEngine::new();
        let mut batch = Batch::new();
        let record = |lsn: u64, previous| HistoryRecord {
            lsn: Lsn(lsn),
            previous: Lsn(previous),
            previous_incarnation: 7 * previous,
            entry: Bytes::from(format!("entry {lsn}")),
        };
        for (group, lsn, previous) in [(7, 300, 2), (7, 2, 0), (8, 1, 0), (6, 9, 0), (u64::MAX, 4, 0)] {
            record(lsn, previous).put(&mut batch, GroupId(group));
        }
        engine.write(batch).unwrap();
        let snapshot = engine.snapshot().unwrap();
        let read =
            |group, from, bytes| HistoryRecord::read(&snapshot, GroupId(group), Lsn(from), bytes).unwrap();
        assert_eq!(read(7, 0, 1000), [record(2, 0), record(300, 2)]);
        assert_eq!(read(7, 2, 1), [record(2, 0)]);
        assert_eq!(read(7, 3, 1), [record(300, 2)]);
        assert_eq!(read(7, 301, 1000), []);
        assert_eq!(read(u64::MAX, 0, 1000), [record(4, 0)]);
    }
}
