//! Rows as they were at an earlier position of the history.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::history_position::HistoryPosition;
use datum::{KeyBound, KeyRange, Object, PrimaryKey, row};
use engine::Engine;
use log::GroupId;
use storage::{Direction, ReadError, TableSnapshot};

use super::{HistoryEntry, HistoryError, HistoryEvent, history_position_of, read_history};

/// About how many bytes of the history are read at once.
const READ_BYTES: usize = 1 << 20;

/// Some rows of a range, in the order of their keys.
#[derive(Debug, Default, PartialEq)]
pub struct HistoryRows {
    pub rows: Vec<(PrimaryKey, Object)>,
    /// The key up to which these are all rows; `None` if they reach to the end of the range.
    pub reach: Option<PrimaryKey>,
}

impl HistoryRows {
    /// The part of `range`, which was read, that these rows are.
    #[must_use]
    pub fn covered(&self, range: &KeyRange) -> KeyRange {
        match &self.reach {
            Some(last) => range
                .intersect(&KeyRange { start: KeyBound::Unbounded, end: KeyBound::Included(last.clone()) }),
            None => range.clone(),
        }
    }
}

/// Why rows at a position cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryRowsError {
    /// The snapshot is older than the position.
    #[error("this replica has not applied the entries up to the position yet")]
    Behind,
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The rows in `range` at position `at` of the history of `group`, with the first `further` changes of the entry after it: the rows
/// of `snapshot`, a later one, without the changes in between. At least one row if there is one; no further ones once they
/// have `bytes_max` bytes.
pub fn rows_at(
    engine: &dyn Engine,
    snapshot: &TableSnapshot,
    group: GroupId,
    range: &KeyRange,
    at: HistoryPosition,
    further: u32,
    bytes_max: usize,
) -> Result<HistoryRows, HistoryRowsError> {
    let present = history_position_of(snapshot, group)?.ok_or(HistoryError::Gone)?;
    if present.lsn < at.lsn || (further > 0 && present.lsn == at.lsn) {
        return Err(HistoryRowsError::Behind);
    }
    let found = read_rows(snapshot, range, bytes_max)?;
    if present == at {
        return Ok(found);
    }
    let covered = found.covered(range);
    let mut before = RowsBefore::new(group, covered, at, further);
    before.read_up_to(engine, present)?;
    Ok(before.undo(found))
}

fn read_rows(snapshot: &TableSnapshot, range: &KeyRange, bytes_max: usize) -> Result<HistoryRows, ReadError> {
    let mut scan = snapshot.scan(range, Direction::Ascending).to_the_end();
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = scan.next_batch()? {
        bytes += batch.bytes();
        for nth in 0..batch.len() {
            rows.push(batch.row(nth)?);
        }
        if bytes >= bytes_max {
            let reach = rows.last().map(|(key, _)| key.clone());
            return Ok(HistoryRows { rows, reach });
        }
    }
    Ok(HistoryRows { rows, reach: None })
}

/// Finds the rows of a range that have changed since a position, as they were there, from the entries that follow it.
pub struct RowsBefore {
    group: GroupId,
    range: KeyRange,
    position: HistoryPosition,
    /// How many changes of the next entry belong to the position.
    left_out: usize,
    rows: BTreeMap<PrimaryKey, Option<Object>>,
}

impl RowsBefore {
    /// For the rows of `range` at position `at` of the history of `group`, and the first `further` changes of the entry after it.
    #[must_use]
    pub fn new(group: GroupId, range: KeyRange, at: HistoryPosition, further: u32) -> RowsBefore {
        RowsBefore { group, range, position: at, left_out: further as usize, rows: BTreeMap::new() }
    }

    #[must_use]
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The position of the last entry that was taken.
    #[must_use]
    pub fn position(&self) -> HistoryPosition {
        self.position
    }

    /// The rows that have changed, as they were at the position; `None` for a key without a row.
    #[must_use]
    pub fn into_changed(self) -> BTreeMap<PrimaryKey, Option<Object>> {
        self.rows
    }

    /// Takes the next entry. Fails if a row in it is damaged.
    pub fn take(&mut self, entry: HistoryEntry) -> Result<(), ReadError> {
        self.position = entry.at;
        let HistoryEvent::Rows(changed) = entry.event else { return Ok(()) };
        let undone = changed.into_iter().skip(std::mem::take(&mut self.left_out));
        for change in undone.filter(|change| self.range.contains(&change.key)) {
            // The first change after the position has the row as it was there.
            if let Entry::Vacant(vacant) = self.rows.entry(change.key) {
                let corrupt =
                    |_| ReadError::CorruptMeta { what: format!("the history of group {}", self.group) };
                vacant.insert(change.old.map(row::decode).transpose().map_err(corrupt)?);
            }
        }
        Ok(())
    }

    fn read_up_to(&mut self, engine: &dyn Engine, until: HistoryPosition) -> Result<(), HistoryRowsError> {
        while self.position.lsn < until.lsn {
            let records = read_history(engine, self.group, self.position, READ_BYTES)?.records;
            if records.is_empty() {
                return Err(HistoryError::Gone.into());
            }
            for record in records {
                let entry = HistoryEntry::decode(record).map_err(HistoryError::from)?;
                if entry.at.lsn > until.lsn {
                    break;
                }
                self.take(entry)?;
            }
        }
        Ok(())
    }

    /// The rows that are in `found` after all entries that were taken, as they were before these.
    #[must_use]
    pub fn undo(self, found: HistoryRows) -> HistoryRows {
        if self.rows.is_empty() {
            return found;
        }
        let mut rows: BTreeMap<PrimaryKey, Object> = found.rows.into_iter().collect();
        for (key, old) in self.rows {
            match old {
                Some(old) => _ = rows.insert(key, old),
                None => _ = rows.remove(&key),
            }
        }
        HistoryRows { rows: rows.into_iter().collect(), reach: found.reach }
    }
}
