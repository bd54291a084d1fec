//! Applies log entries to nothing: the rows that a replica would change, for the offline check and for salvage. By the same rule as
//! `replica::apply_step`.

use bytes::Bytes;
use log::Lsn;
use storage::{Applied, RowChange};

use crate::entry::{BadEntry, Control, Entry, Item};
use crate::progress::{Progress, Verdict};

/// A log entry that cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the log entry at position {lsn} is damaged: {cause}")]
pub struct DamagedEntry {
    lsn: Lsn,
    cause: BadEntry,
}

/// The state from which the next entry of a group is applied.
pub struct LogReplay {
    progress: Progress,
}

impl LogReplay {
    /// The state after `applied`, or before the first entry. `None` if the record is malformed.
    #[must_use]
    pub fn after(applied: Option<&Applied>) -> Option<LogReplay> {
        let progress = match applied {
            Some(applied) => Progress::decode(&applied.progress)?,
            None => Progress::default(),
        };
        Some(LogReplay { progress })
    }

    /// The changes of rows by the entry at `lsn`, in order. Empty if it changes no rows or a replica skips it.
    pub fn changes(&mut self, lsn: Lsn, entry: Bytes) -> Result<Vec<RowChange>, DamagedEntry> {
        let damaged = |cause| DamagedEntry { lsn, cause };
        let entry = Entry::parse(entry).map_err(damaged)?;
        let sequence = entry.sequence;
        let verdict = self.progress.admit(entry.incarnation, sequence, entry.dependencies());
        let is_applied = verdict == Verdict::Apply;
        if let (Some(Control::Seal(seal_state)), true) = (entry.control, is_applied) {
            self.progress.set_seal_state(seal_state);
            return Ok(Vec::new());
        }
        let is_sealed = self.progress.seal_state().is_sealed();
        if is_sealed && is_applied {
            self.progress.refuse(sequence);
        }
        let mut changes = row_changes(entry).map_err(damaged)?;
        if is_sealed || !is_applied {
            changes.clear();
        }
        Ok(changes)
    }

    /// The changes of rows in an entry, whether a replica would skip it or not: for a log with missing entries.
    pub fn all_changes(lsn: Lsn, entry: Bytes) -> Result<Vec<RowChange>, DamagedEntry> {
        let changes = Entry::parse(entry).and_then(row_changes);
        changes.map_err(|cause| DamagedEntry { lsn, cause })
    }
}

fn row_changes(entry: Entry) -> Result<Vec<RowChange>, BadEntry> {
    let mut changes = Vec::new();
    entry.each(|item| {
        if let Item::Row(change, _) = item {
            changes.push(change);
        }
    })?;
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use datum::PrimaryKey;

    use super::*;
    use crate::SealState;
    use crate::entry::EntryWriter;

    fn entry(sequence: u64, dependencies: &[u64], key: &'static [u8]) -> Bytes {
        let mut writer = EntryWriter::new(7, sequence, dependencies, 0);
        writer.change(&PrimaryKey(Bytes::from_static(key)), Some(b"row"), false, None);
        writer.finish()
    }

    fn keys(changes: Vec<RowChange>) -> Vec<PrimaryKey> {
        changes.into_iter().map(|change| change.key).collect()
    }

    #[test]
    fn entries_are_skipped_as_a_replica_skips_them() {
        let mut replay = LogReplay::after(None).unwrap();
        let mut changed = |lsn, bytes| keys(replay.changes(Lsn(lsn), bytes).unwrap());
        let a = PrimaryKey(Bytes::from_static(b"a"));
        assert_eq!(changed(1, entry(1, &[], b"a")), std::slice::from_ref(&a));
        // Proposal 2 was refused by the log, so 3 does not count.
        assert_eq!(changed(2, entry(3, &[2], b"a")), []);
        assert_eq!(changed(3, EntryWriter::seal(7, 4, SealState::sealed(1))), []);
        assert_eq!(changed(4, entry(5, &[], b"a")), []);
        assert_eq!(keys(LogReplay::all_changes(Lsn(2), entry(3, &[2], b"a")).unwrap()), [a]);
        let cause = LogReplay::all_changes(Lsn(9), Bytes::from_static(b"nonsense")).unwrap_err();
        assert!(cause.to_string().contains("position 9"), "{cause}");
    }
}
