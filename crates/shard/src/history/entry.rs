//! Entries of a history, decoded.

use log::Lsn;
use storage::{HistoryRecord, RowChange};

use super::ChangedRow;
use crate::SealState;
use crate::entry::{BadEntry, Control, Entry, Item};
use crate::history_position::HistoryPosition;

/// An entry of a group's history.
#[derive(Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// The position just after it.
    pub at: HistoryPosition,
    /// The position of the entry before it in the history.
    pub previous: Lsn,
    pub event: HistoryEvent,
}

/// The content of an entry.
#[derive(Debug, PartialEq, Eq)]
pub enum HistoryEvent {
    /// Rows have changed, in this order; a row may occur more than once.
    Rows(Vec<ChangedRow>),
    /// The group has another seal state.
    Seal(SealState),
    /// The history begins here.
    On,
    /// The history ends here: later changes are not in it.
    Off,
}

/// A record of a history cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the entry at position {lsn} of the history is damaged: {cause}")]
pub struct DamagedHistory {
    lsn: Lsn,
    cause: BadEntry,
}

impl HistoryEntry {
    /// Decodes a record. Keys and rows are slices of its bytes.
    pub fn decode(record: HistoryRecord) -> Result<HistoryEntry, DamagedHistory> {
        let HistoryRecord { lsn, previous, previous_incarnation: _, entry } = record;
        let damaged = |cause| DamagedHistory { lsn, cause };
        let entry = Entry::parse(entry).map_err(damaged)?;
        let at = HistoryPosition { lsn, incarnation: entry.incarnation };
        let event = match entry.control {
            Some(Control::Seal(seal_state)) => HistoryEvent::Seal(seal_state),
            Some(Control::HistoryOn) => HistoryEvent::On,
            Some(Control::HistoryOff) => HistoryEvent::Off,
            None => HistoryEvent::Rows(changed_rows(entry).map_err(damaged)?),
        };
        Ok(HistoryEntry { at, previous, event })
    }
}

fn changed_rows(entry: Entry) -> Result<Vec<ChangedRow>, BadEntry> {
    let mut rows = Vec::new();
    let mut is_complete = true;
    entry.each(|item| {
        if let Item::Row(RowChange { key, row, existed }, old) = item {
            is_complete &= existed == old.is_some();
            rows.push(ChangedRow::new(key, old, row));
        }
    })?;
    if is_complete { Ok(rows) } else { Err(BadEntry::NoOldRow) }
}
