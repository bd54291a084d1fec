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

/// The rows in `range` at position `at` of the history of `group`: the rows of `snapshot`, a later one, without the changes in
/// between. At least one row if there is one; no further ones once they have
/// `bytes_max` bytes.
pub fn rows_at(
    engine: &dyn Engine,
    snapshot: &TableSnapshot,
    group: GroupId,
    range: &KeyRange,
    at: HistoryPosition,
    bytes_max: usize,
) -> Result<HistoryRows, HistoryRowsError> {
    let present = history_position_of(snapshot, group)?.ok_or(HistoryError::Gone)?;
    if present.lsn < at.lsn {
        return Err(HistoryRowsError::Behind);
    }
    let found = read_rows(snapshot, range, bytes_max)?;
    if present == at {
        return Ok(found);
    }
    let covered = match &found.reach {
        Some(last) => {
            range.intersect(&KeyRange { start: KeyBound::Unbounded, end: KeyBound::Included(last.clone()) })
        }
        None => range.clone(),
    };
    let before = rows_before(engine, group, &covered, at, present)?;
    if before.is_empty() {
        return Ok(found);
    }
    let mut rows: BTreeMap<PrimaryKey, Object> = found.rows.into_iter().collect();
    for (key, old) in before {
        match old {
            Some(old) => _ = rows.insert(key, old),
            None => _ = rows.remove(&key),
        }
    }
    Ok(HistoryRows { rows: rows.into_iter().collect(), reach: found.reach })
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

/// The rows of `range` that have changed after `at` and up to `until`, as they were at `at`.
fn rows_before(
    engine: &dyn Engine,
    group: GroupId,
    range: &KeyRange,
    at: HistoryPosition,
    until: HistoryPosition,
) -> Result<BTreeMap<PrimaryKey, Option<Object>>, HistoryRowsError> {
    let (mut rows, mut position) = (BTreeMap::new(), at);
    while position.lsn < until.lsn {
        let records = read_history(engine, group, position, READ_BYTES)?.records;
        if records.is_empty() {
            return Err(HistoryError::Gone.into());
        }
        for record in records {
            let entry = HistoryEntry::decode(record).map_err(HistoryError::from)?;
            if entry.at.lsn > until.lsn {
                break;
            }
            position = entry.at;
            let HistoryEvent::Rows(changed) = entry.event else { continue };
            for change in changed.into_iter().filter(|change| range.contains(&change.key)) {
                // The first change after `at` has the row as it was there.
                if let Entry::Vacant(vacant) = rows.entry(change.key) {
                    let corrupt =
                        |_| ReadError::CorruptMeta { what: format!("the history of group {group}") };
                    vacant.insert(change.old.map(row::decode).transpose().map_err(corrupt)?);
                }
            }
        }
    }
    Ok(rows)
}
