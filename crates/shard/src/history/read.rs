//! Reads the history of a group from its replica's engine.

use engine::{Engine, EngineError};
use log::{GroupId, Lsn};
use storage::HistoryRecord;

use super::{DamagedHistory, HistoryEntry, HistoryEvent};
use crate::SealState;
use crate::history_position::HistoryPosition;

/// Why a history cannot be read from a position.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Entries after the position are missing here: they were forgotten, this replica never had them, or the position
    /// belongs to an entry that a power loss took.
    #[error("the history no longer has all entries after the position")]
    Gone,
    #[error(transparent)]
    Damaged(#[from] DamagedHistory),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Consecutive records, which begin at the position that the reader named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryPart {
    /// The seal state that the entry just before this part sets, if it sets one.
    pub seal_state: Option<SealState>,
    pub records: Vec<HistoryRecord>,
}

/// The records after `after` in the history of `group` that `engine` has, at most about `bytes_max` bytes of them and at
/// least one if there is one. No record between `after` and the last one is missing.
pub fn read_history(
    engine: &dyn Engine,
    group: GroupId,
    after: HistoryPosition,
    bytes_max: usize,
) -> Result<HistoryPart, HistoryError> {
    let snapshot = engine.snapshot()?;
    let mut seal_state = None;
    let mut is_position = after.lsn == Lsn(0);
    let mut found = HistoryRecord::read(&snapshot, group, after.lsn, 1)?.into_iter();
    if let Some(record) = found.next().filter(|record| record.lsn == after.lsn) {
        let HistoryEntry { at, event, .. } = HistoryEntry::decode(record)?;
        is_position = at == after;
        if let HistoryEvent::Seal(state) = event {
            seal_state = Some(state);
        }
        if !is_position {
            return Err(HistoryError::Gone);
        }
    }
    let mut records = HistoryRecord::read(&snapshot, group, Lsn(after.lsn.0 + 1), bytes_max)?;
    let mut last = after.lsn;
    let is_next = |record: &HistoryRecord| std::mem::replace(&mut last, record.lsn) == record.previous;
    let found = records.len();
    let linked = records.iter().map(is_next).take_while(|is_next| *is_next).count();
    // The record at the position may have been forgotten, if the next one names it.
    let is_named =
        records.first().is_some_and(|first| linked > 0 && first.previous_incarnation == after.incarnation);
    if (linked == 0 && found > 0) || !(is_position || is_named) {
        return Err(HistoryError::Gone);
    }
    // The records before a gap are complete; the caller meets the gap next.
    records.truncate(linked);
    Ok(HistoryPart { seal_state, records })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use datum::PrimaryKey;
    use engine::Batch;
    use engine::memory::MemoryEngine;

    use super::*;
    use crate::entry::EntryWriter;

    const GROUP: GroupId = GroupId(4);

    fn put(engine: &MemoryEngine, lsn: u64, previous: u64, entry: Bytes) {
        let mut batch = Batch::new();
        let previous_incarnation = if previous == 11 { 7 } else { 0 };
        HistoryRecord { lsn: Lsn(lsn), previous: Lsn(previous), previous_incarnation, entry }
            .put(&mut batch, GROUP);
        engine.write(batch).unwrap();
    }

    fn change(incarnation: u64) -> Bytes {
        let mut writer = EntryWriter::new(incarnation, 1, &[], 0);
        writer.change(&PrimaryKey(Bytes::from_static(b"key")), Some(b"row"), true, Some(b"old"));
        writer.finish()
    }

    fn read(engine: &MemoryEngine, lsn: u64, incarnation: u64) -> Result<Vec<u64>, HistoryError> {
        let after = HistoryPosition { lsn: Lsn(lsn), incarnation };
        let part = read_history(engine, GROUP, after, 1 << 20)?;
        Ok(part.records.iter().map(|entry| entry.lsn.0).collect())
    }

    #[test]
    fn a_gap_is_noticed() {
        let engine = MemoryEngine::new();
        put(&engine, 5, 5, EntryWriter::history(7, 1, true));
        put(&engine, 6, 5, change(7));
        put(&engine, 9, 6, change(8));
        put(&engine, 12, 11, change(8));
        assert_eq!(read(&engine, 5, 7).unwrap(), [6, 9]);
        assert_eq!(read(&engine, 6, 7).unwrap(), [9]);
        for (lsn, incarnation, why) in [
            (9, 8, "entry 11 is missing"),
            (11, 8, "another entry was at that position, and is forgotten by now"),
            (6, 8, "another entry was at that position"),
            (8, 8, "no entry is at that position"),
            (0, 0, "the history begins later"),
        ] {
            assert!(matches!(read(&engine, lsn, incarnation), Err(HistoryError::Gone)), "{why}");
        }
        assert_eq!(read(&engine, 12, 8).unwrap(), []);
        assert_eq!(read(&engine, 11, 7).unwrap(), [12], "the entry is forgotten, but the next one names it");
    }

    #[test]
    fn a_change_without_the_row_before_it_is_damage() {
        let engine = MemoryEngine::new();
        let mut writer = EntryWriter::new(7, 1, &[], 0);
        writer.change(&PrimaryKey(Bytes::from_static(b"key")), Some(b"row"), true, None);
        put(&engine, 1, 0, writer.finish());
        let records = read_history(&engine, GROUP, HistoryPosition::default(), 1).unwrap().records;
        HistoryEntry::decode(records[0].clone()).unwrap_err();
    }

    #[test]
    fn a_group_that_began_with_a_history_is_read_from_its_beginning() {
        let engine = MemoryEngine::new();
        put(&engine, 3, 0, change(7));
        put(&engine, 4, 3, EntryWriter::history(7, 2, false));
        let entries = read_history(&engine, GROUP, HistoryPosition::default(), 1).unwrap().records;
        assert_eq!(entries.len(), 1, "at least one");
        let first = HistoryEntry::decode(entries[0].clone()).unwrap();
        let HistoryEvent::Rows(rows) = &first.event else { panic!("{first:?}") };
        assert_eq!((rows[0].old.as_deref(), rows[0].new.as_deref()), (Some(&b"old"[..]), Some(&b"row"[..])));
        let entries = read_history(&engine, GROUP, first.at, 1000).unwrap().records;
        assert_eq!(HistoryEntry::decode(entries[0].clone()).unwrap().event, HistoryEvent::Off);
    }

    #[test]
    fn a_reader_at_a_seal_is_told_of_it() {
        let engine = MemoryEngine::new();
        put(&engine, 3, 0, change(7));
        put(&engine, 4, 3, EntryWriter::seal(7, 2, SealState::sealed(5)));
        let at = |lsn| HistoryPosition { lsn: Lsn(lsn), incarnation: 7 };
        let part = read_history(&engine, GROUP, at(4), 1000).unwrap();
        assert_eq!(part, HistoryPart { seal_state: Some(SealState::sealed(5)), records: Vec::new() });
        assert_eq!(read_history(&engine, GROUP, at(3), 1000).unwrap().seal_state, None);
    }
}
