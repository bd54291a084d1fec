//! Writes one table's changes to the target, in the order in which they came.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::budget::ByteBudget;
use super::feed::Parcel;
use crate::copy::{delete_rows, put_rows};
use crate::error::MigrateError;
use crate::gate::{Batch, Change};
use crate::key::Key;
use crate::server::{Line, Stop};
use crate::table::Table;

/// Changes of one batch.
const BATCH_MAX: usize = 2_000;
/// Between two looks for released changes.
const LOOK: Duration = Duration::from_millis(50);

/// The writer of a table's changes.
pub(super) struct Writer<'a> {
    pub(super) table: &'a Table,
    pub(super) target: Line,
    pub(super) stop: &'a Stop,
    pub(super) budget: &'a ByteBudget,
    pub(super) parcels: Receiver<Parcel>,
}

/// The changes that a feed has sent.
enum Collected {
    /// With their bytes.
    Changes(Vec<Change>, u64),
    Nothing,
    /// Nothing, and nothing will: the feed has ended.
    End,
}

impl Writer<'_> {
    /// Writes until the feed has ended and everything is written, or until the end of everything is requested. Fails when the target is
    /// lost.
    pub(super) fn run(mut self) -> Result<(), MigrateError> {
        while !self.stop.is_requested() {
            let (changes, bytes) = match self.collect() {
                Collected::Changes(changes, bytes) => (changes, bytes),
                _ if self.table.gate().has_released() => (Vec::new(), 0),
                Collected::Nothing => continue,
                Collected::End if self.table.gate().pending() == 0 => return Ok(()),
                // The rest waits for readers.
                Collected::End => {
                    self.stop.pause(LOOK);
                    continue;
                }
            };
            let batch = self.table.gate().batch(changes);
            let outcome = self.write(&batch);
            self.budget.give_back(bytes);
            outcome?;
            self.table.gate().written(&batch);
            self.table.notify();
        }
        Ok(())
    }

    /// The changes that have come, as far as they make one batch.
    fn collect(&self) -> Collected {
        let first = match self.parcels.recv_timeout(LOOK) {
            Ok(parcel) => parcel,
            Err(RecvTimeoutError::Timeout) => return Collected::Nothing,
            Err(RecvTimeoutError::Disconnected) => return Collected::End,
        };
        let (mut changes, mut bytes) = (first.changes, first.bytes);
        while changes.len() < BATCH_MAX {
            let Ok(parcel) = self.parcels.try_recv() else { break };
            changes.extend(parcel.changes);
            bytes += parcel.bytes;
        }
        Collected::Changes(changes, bytes)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), MigrateError> {
        let mut rows: Vec<(Key, String)> = Vec::new();
        let mut gone = Vec::new();
        for change in &batch.changes {
            match &change.row {
                Some(row) => rows.push((change.key.clone(), row.clone())),
                None => gone.push(change.key.clone()),
            }
        }
        put_rows(&mut self.target, self.stop, self.table, &rows)?;
        delete_rows(&mut self.target, self.stop, self.table, &gone)
    }
}
