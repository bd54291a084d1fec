//! One step of applying entries to a replica: the changes for the engine's batch, and the state after them.

use bytes::Bytes;
use engine::Batch;
use log::{GroupId, Lsn};
use storage::{Applied, Changes, Count, HistoryRecord, IndexBuild, IndexId, TableId};

use super::{AppliedState, SkipCause};
use crate::entry::{BadEntry, Control, Entry, Item};
use crate::history_position::HistoryPosition;
use crate::progress::Verdict;

/// The next state of a replica; becomes the present one when the engine has the batch.
pub(crate) struct ApplyStep {
    group: GroupId,
    table: TableId,
    pub(super) next: AppliedState,
    /// Incarnation and sequence of each entry that is skipped.
    pub(super) skipped: Vec<(u64, u64, SkipCause)>,
    pub(super) builds: Vec<(IndexId, IndexBuild)>,
    /// The entries that join the history.
    pub(crate) recorded: Vec<HistoryRecord>,
}

impl ApplyStep {
    /// A step from the state `next` of a group's replica.
    pub(super) fn new(group: GroupId, table: TableId, next: AppliedState) -> ApplyStep {
        ApplyStep { group, table, next, skipped: Vec::new(), builds: Vec::new(), recorded: Vec::new() }
    }

    /// Adds the entry at `lsn`, whose bytes are `payload`, to `changes`, if it is to be applied.
    pub(crate) fn advance(
        &mut self,
        changes: &mut Changes,
        lsn: Lsn,
        entry: Entry,
        payload: &Bytes,
    ) -> Result<(), BadEntry> {
        let next = &mut self.next;
        next.lsn = lsn;
        let (incarnation, sequence) = (entry.incarnation, entry.sequence);
        let here = HistoryPosition { lsn, incarnation };
        let verdict = next.progress.admit(incarnation, sequence, entry.dependencies());
        if let (Some(Control::Seal(seal_state)), Verdict::Apply) = (entry.control, verdict) {
            next.progress.set_seal_state(seal_state);
            self.record_entry(here, payload);
            return Ok(());
        }
        match verdict {
            _ if next.progress.seal_state().is_sealed() => {
                if verdict == Verdict::Apply {
                    next.progress.refuse(sequence);
                }
                self.skipped.push((incarnation, sequence, SkipCause::Sealed));
                // Malformed entries are an error even here.
                entry.each(|_| {})
            }
            Verdict::Apply if entry.control.is_some() => {
                self.switch_history(entry.control, here, payload);
                Ok(())
            }
            Verdict::Apply => {
                let has_rows = self.apply_items(changes, entry)?;
                if has_rows {
                    self.record_entry(here, payload);
                }
                Ok(())
            }
            Verdict::Skip => {
                self.skipped.push((incarnation, sequence, SkipCause::Dependency));
                Ok(())
            }
        }
    }

    /// Adds the items of an entry to `changes`. Returns whether one of them changes a row.
    fn apply_items(&mut self, changes: &mut Changes, entry: Entry) -> Result<bool, BadEntry> {
        let (table, group) = (self.table, self.group);
        let mut has_rows = false;
        entry.each(|item| match item {
            Item::Row(change, _) => {
                has_rows = true;
                let gained = changes.add(table, &change);
                self.next.rows = self.next.rows.saturating_add_signed(gained);
            }
            Item::Index(primary, change) => changes.add_index(table, &primary, &change),
            Item::Build(index, build) => {
                build.put(&mut changes.batch, table, group, index);
                self.builds.push((index, build));
            }
        })?;
        Ok(has_rows)
    }

    /// Adds the records of this group's progress to `batch`.
    pub(crate) fn put_records(&mut self, batch: &mut Batch) {
        let next = &mut self.next;
        Applied { lsn: next.lsn, progress: next.progress.encode() }.put(batch, self.group);
        if next.rows_stored != next.rows {
            Count(next.rows).put(batch, self.table, self.group);
            next.rows_stored = next.rows;
        }
        for record in &self.recorded {
            record.clone().put(batch, self.group);
        }
    }

    /// Adds an entry to the history, if it is on.
    fn record_entry(&mut self, here: HistoryPosition, payload: &Bytes) {
        if let Some(previous) = self.next.progress.history() {
            self.recorded.push(HistoryRecord {
                lsn: here.lsn,
                previous: previous.lsn,
                previous_incarnation: previous.incarnation,
                entry: payload.clone(),
            });
            self.next.progress.set_history(Some(here));
        }
    }

    /// Switches the history on or off. Both are part of it, so that readers notice.
    fn switch_history(&mut self, control: Option<Control>, here: HistoryPosition, payload: &Bytes) {
        let is_on = self.next.progress.history().is_some();
        match control {
            Some(Control::HistoryOn) if !is_on => {
                // There is no way into this record from an earlier one.
                self.recorded.push(HistoryRecord {
                    lsn: here.lsn,
                    previous: here.lsn,
                    previous_incarnation: 0,
                    entry: payload.clone(),
                });
                self.next.progress.set_history(Some(here));
            }
            Some(Control::HistoryOff) => {
                self.record_entry(here, payload);
                self.next.progress.set_history(None);
            }
            _ => {}
        }
    }
}
