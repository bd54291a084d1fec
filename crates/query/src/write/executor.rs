//! Executes the writes of one term: it sends keys to their shards, puts many rows into one entry, and waits for the
//! disk only after everything was proposed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::{ServerId, ShardHandle, TableHandle};
use datum::{Datum, Object, PrimaryKey, Text};
use log::Refusal;
use reql::{ErrorClass, EvalError};
use shard::{Decision, Shard, WriteError, WriteRefusal, WriteTicket};

use super::planned::PlannedWrites;
use super::system;
use crate::context::Cx;
use crate::edit::{Edit, ReturnChanges, RowOutcome, RowReport, RowTarget, WriteOptions};
use crate::remote::{
    Edits, RemoteWrite, RetryBudget, SettingsVersion, Target, WriteTarget, lost_contact, refreshed,
    unwritable,
};
use crate::routing::RemoteError;
use crate::table::{Privilege, Resource, StoredTable, TableRef, access, system_table_id, write_failed};

/// Most entries in flight; beyond that it waits for the oldest.
const IN_FLIGHT_MAX: usize = 32;

/// Most rows of one entry: their latches are held together.
const ENTRY_ROWS_MAX: usize = 128;
/// Most bytes of one entry, roughly.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Rows for other nodes are sent in groups of this many entries, so that fewer round trips are waited for.
const REMOTE_ENTRIES: usize = 8;

/// Counts rows until there are enough for an entry.
pub(crate) struct EntryFill {
    rows: usize,
    bytes: usize,
    /// The number of entries to fill.
    entries: usize,
}

impl EntryFill {
    /// Counts a row. Returns true when the entry is full, and starts again.
    pub fn add(&mut self, row: &Datum) -> bool {
        self.rows += 1;
        let bytes_max = ENTRY_BYTES_MAX * self.entries;
        self.bytes += row.json_size_to(bytes_max);
        let is_full = self.rows >= ENTRY_ROWS_MAX * self.entries || self.bytes >= bytes_max;
        if is_full {
            (self.rows, self.bytes) = (0, 0);
        }
        is_full
    }
}

/// Fails if the table has the read mode of the local replica, which cannot be written.
fn check_read_mode(table: &TableRef) -> Result<(), EvalError> {
    match table {
        TableRef::Stored(table) => table.read_mode.check_up_to_date(),
        TableRef::System(_) => Ok(()),
    }
}

/// Writes rows of one table.
pub(crate) struct WriteExecutor<'a> {
    cx: &'a Cx,
    table: TableRef,
    field: Text,
    options: WriteOptions,
    in_flight: VecDeque<InFlight>,
    /// Whether rows were written, or may have been, besides those in flight.
    wrote: bool,
    /// In a request of another node: rows whose entries were refused.
    refused: Vec<usize>,
}

/// An entry in flight. `retry` is for the case that the log refuses it because another replica leads by then.
struct InFlight {
    ticket: WriteTicket,
    /// Whether it changes anything.
    is_change: bool,
    /// In a request of another node: the indexes of its rows, which the sender writes again.
    indexes: Vec<usize>,
    retry: Option<RetriedEntry>,
}

/// The rows of an entry with their edits and reports.
struct RetriedEntry {
    keys: Vec<PrimaryKey>,
    edits: Vec<Edit>,
    reports: Vec<RowReport>,
}

impl<'a> WriteExecutor<'a> {
    /// An executor for `table`.
    pub fn new(cx: &'a Cx, table: TableRef, options: WriteOptions) -> Result<Self, EvalError> {
        if options.ignore_hook {
            access::check(cx, Privilege::Config, Resource::of_table(&table))?;
        }
        access::check_write(cx, &table)?;
        check_read_mode(&table)?;
        let field = table.primary_key();
        Ok(WriteExecutor {
            cx,
            table,
            field,
            options,
            in_flight: VecDeque::new(),
            wrote: false,
            refused: Vec::new(),
        })
    }

    /// Counts rows up to the number that is worth writing together.
    pub fn fill(&self) -> EntryFill {
        let service = &self.cx.service;
        let is_remote = |shard: &ShardHandle| matches!(service.leader(shard), Some(Target::Remote(_)));
        let entries = match &self.table {
            TableRef::Stored(stored) if stored.handle.shards().iter().any(is_remote) => REMOTE_ENTRIES,
            _ => 1,
        };
        EntryFill { rows: 0, bytes: 0, entries }
    }

    /// Decides and proposes `planned`; the reports are in its order. They are final once [`WriteExecutor::finish`]
    /// returns.
    pub fn write(&mut self, planned: &PlannedWrites<'_>) -> Result<Vec<RowReport>, EvalError> {
        self.cx.check_cancel()?;
        self.cx.service.counters().rows_written.fetch_add(planned.keys.len() as u64, Ordering::Relaxed);
        let written = match &self.table {
            TableRef::Stored(_) => self.write_stored(planned),
            TableRef::System(system) => system::write(self.cx, system, self.options.return_changes, planned),
        };
        written.map_err(|error| self.final_error(error))
    }

    /// Waits until everything is as durable as it has to be.
    pub fn finish(mut self) -> Result<(), EvalError> {
        self.settle_all().map_err(|error| self.final_error(error))
    }

    /// The error for the client if `error` ends the write: a definite failure becomes indeterminate if other rows were
    /// written, or may have been. Waits for the entries in flight. Source: `table_query_client_t` of RethinkDB reports
    /// the failure of some shards this way when others have written.
    pub fn final_error(&mut self, error: EvalError) -> EvalError {
        if error.class() != ErrorClass::OpFailed {
            return error;
        }
        while !self.wrote
            && let Some(entry) = self.in_flight.pop_front()
        {
            self.wrote = match entry.ticket.wait() {
                Ok(_) => entry.is_change,
                Err(error) => !error.is_definite(),
            };
        }
        if self.wrote { error.indeterminate() } else { error }
    }

    fn settle_all(&mut self) -> Result<(), EvalError> {
        while let Some(oldest) = self.in_flight.pop_front() {
            self.settle(oldest)?;
        }
        Ok(())
    }

    /// Waits for an entry. If it was refused because this node does not lead any more, its rows are written again
    /// wherever they belong now. If their reports differ from the first ones, which may have been used already, the
    /// outcome is unknown.
    fn settle(&mut self, entry: InFlight) -> Result<(), EvalError> {
        let error = match entry.ticket.wait() {
            Ok(_) => {
                self.wrote |= entry.is_change;
                return Ok(());
            }
            Err(error) if self.cx.serves_remote && is_refused(&error) => {
                self.refused.extend(entry.indexes);
                return Ok(());
            }
            Err(error) => error,
        };
        let Some(retry) = entry.retry.filter(|_| is_refused(&error)) else {
            return Err(write_failed(&error));
        };
        let RetriedEntry { keys, edits, reports } = &retry;
        let planned = PlannedWrites { keys, edit: &|i| &edits[i], generated: &|_| false };
        let now = self.write_stored(&planned)?;
        let show = self.options.return_changes;
        match reports.iter().zip(&now).all(|(then, now)| report_alike(then, now, show)) {
            true => Ok(()),
            false => Err(lost_contact()),
        }
    }

    fn write_stored(&mut self, planned: &PlannedWrites<'_>) -> Result<Vec<RowReport>, EvalError> {
        let mut reports: Vec<Option<RowReport>> = vec![None; planned.keys.len()];
        let mut waiting: Vec<usize> = (0..planned.keys.len()).collect();
        let mut budget = RetryBudget::new();
        loop {
            waiting = self.try_write(planned, &waiting, &mut reports)?;
            let Some(first) = waiting.first() else {
                let reports: Option<Vec<RowReport>> = reports.into_iter().collect();
                return reports.ok_or_else(|| EvalError::internal("a row was not written"));
            };
            let table = self.stored()?;
            let range = table.handle.shard(&planned.keys[*first]).range();
            if !budget.wait(self.cx, table, range)? {
                return Err(unwritable(range));
            }
            self.table = TableRef::Stored(refreshed(self.cx, self.stored()?, &mut budget)?);
        }
    }

    /// Decides and proposes the rows of `planned` that are on this node; the others have no report.
    pub fn write_here(&mut self, planned: &PlannedWrites<'_>) -> Result<Vec<Option<RowReport>>, EvalError> {
        self.cx.service.counters().rows_written.fetch_add(planned.keys.len() as u64, Ordering::Relaxed);
        let mut reports: Vec<Option<RowReport>> = vec![None; planned.keys.len()];
        let all: Vec<usize> = (0..planned.keys.len()).collect();
        self.try_write(planned, &all, &mut reports).map_err(|error| self.final_error(error))?;
        Ok(reports)
    }

    /// As [`WriteExecutor::finish`], after [`WriteExecutor::write_here`]: refused rows have no report.
    pub fn finish_here(mut self, reports: &mut [Option<RowReport>]) -> Result<(), EvalError> {
        self.settle_all().map_err(|error| self.final_error(error))?;
        self.refused.iter().for_each(|i| reports[*i] = None);
        Ok(())
    }

    fn stored(&self) -> Result<&StoredTable, EvalError> {
        match &self.table {
            TableRef::Stored(stored) => Ok(stored),
            TableRef::System(_) => Err(EvalError::internal("not a stored table")),
        }
    }

    /// Writes the rows at `waiting`; returns those whose shard was not where it was expected.
    fn try_write(
        &mut self,
        planned: &PlannedWrites<'_>,
        waiting: &[usize],
        reports: &mut [Option<RowReport>],
    ) -> Result<Vec<usize>, EvalError> {
        let handle = self.stored()?.handle.clone();
        let mut moved = Vec::new();
        let mut local: Vec<(&Arc<Shard>, Vec<usize>)> = Vec::new();
        let mut remote: BTreeMap<ServerId, Vec<usize>> = BTreeMap::new();
        for indexes in by_shard(&handle, planned.keys, waiting) {
            let Some(first) = indexes.first() else { continue };
            match self.cx.service.leader(handle.shard(&planned.keys[*first])) {
                Some(Target::Local(shard)) => local.push((shard, indexes)),
                Some(Target::Remote(server)) if !self.cx.serves_remote => {
                    remote.entry(server).or_default().extend(indexes)
                }
                _ => moved.extend(indexes),
            }
        }
        let requested: Vec<RemoteWrite> =
            remote.into_iter().map(|(server, indexes)| self.send_remote(server, planned, indexes)).collect();
        let mut written = Ok(());
        for (shard, indexes) in local {
            written =
                self.write_local(&handle, shard, planned, &indexes, reports).map(|rows| moved.extend(rows));
            if written.is_err() {
                break;
            }
        }
        // Even after a failure all requests are waited for: the error must say whether something was written.
        for remote in requested {
            let settled = self.settle_remote(&remote, reports).map(|rows| moved.extend(rows));
            written = written.and(settled);
        }
        moved.sort_unstable();
        written.map(|()| moved)
    }

    /// Writes rows of a local shard, entry by entry; returns the rows that do not belong to it any more.
    fn write_local(
        &mut self,
        handle: &TableHandle,
        shard: &Shard,
        planned: &PlannedWrites<'_>,
        indexes: &[usize],
        reports: &mut [Option<RowReport>],
    ) -> Result<Vec<usize>, EvalError> {
        let durability = self.options.durability.unwrap_or(handle.config.durability);
        let hook = handle.config.write_hook.as_ref().filter(|_| !self.options.ignore_hook);
        let env = self.cx.closed_env();
        let may_move = !self.cx.serves_remote && handle.shards().iter().any(ShardHandle::may_move);
        let mut moved = Vec::new();
        for indexes in indexes.chunks(ENTRY_ROWS_MAX) {
            let keys: Vec<PrimaryKey> = indexes.iter().map(|i| planned.keys[*i].clone()).collect();
            let decide = |at: usize, old: Option<&Object>| {
                let target = RowTarget { field: &self.field, key: &keys[at], hook };
                let report = (planned.edit)(indexes[at]).decide(target, old, &env);
                // A row that was still evaluated while the query was cancelled is not written.
                let report = match self.cx.check_stopped() {
                    Ok(()) => report,
                    Err(error) => RowReport::failed(error, report.old),
                };
                (decision(&report), report)
            };
            match shard.write_many(&keys, durability, decide) {
                Ok((answers, ticket)) => {
                    self.check_stopped_rows(&answers)?;
                    let is_change = answers.iter().any(RowReport::is_change);
                    indexes.iter().zip(answers).for_each(|(i, report)| reports[*i] = Some(report));
                    let retry = may_move.then(|| RetriedEntry {
                        edits: indexes.iter().map(|i| (planned.edit)(*i).clone()).collect(),
                        reports: indexes.iter().filter_map(|i| reports[*i].clone()).collect(),
                        keys,
                    });
                    let indexes = if self.cx.serves_remote { indexes.to_vec() } else { Vec::new() };
                    self.send(InFlight { ticket, is_change, indexes, retry })?;
                }
                Err(error) if has_moved(&error) => moved.extend(indexes),
                Err(error) => return Err(write_failed(&error)),
            }
        }
        Ok(moved)
    }

    /// Fails if a row failed because the query was cancelled: that is no error of the row.
    fn check_stopped_rows(&self, reports: &[RowReport]) -> Result<(), EvalError> {
        match self.cx.cancel.is_set()
            && reports.iter().any(|report| matches!(report.outcome, RowOutcome::Failed(_)))
        {
            true => self.cx.check_stopped(),
            false => Ok(()),
        }
    }

    fn send_remote(&self, server: ServerId, planned: &PlannedWrites<'_>, indexes: Vec<usize>) -> RemoteWrite {
        let edit = |i: &usize| (planned.edit)(*i);
        let first = indexes.first().map(edit);
        let same = indexes.iter().all(|i| first.is_some_and(|first| std::ptr::eq(first, edit(i))));
        let edits = match first {
            Some(first) if same => Edits::One(first.to_send()),
            _ => Edits::Each(indexes.iter().map(|i| edit(i).to_send()).collect()),
        };
        let keys = indexes.iter().map(|i| planned.keys[*i].clone()).collect();
        let table = match &self.table {
            TableRef::Stored(stored) => stored.handle.config.id,
            TableRef::System(system) => system_table_id(system.table.name()),
        };
        let settings = SettingsVersion::of_table(&self.cx.node().catalog_guard(), table);
        let to = WriteTarget { table, options: self.options, settings };
        RemoteWrite::send(self.cx, server, to, keys, edits, indexes)
    }

    /// Waits for a remote write; returns the rows that were not there. If the request could not be encoded, only its
    /// rows fail.
    fn settle_remote(
        &mut self,
        remote: &RemoteWrite,
        reports: &mut [Option<RowReport>],
    ) -> Result<Vec<usize>, EvalError> {
        match remote.wait(self.cx) {
            Ok(found) => {
                let mut moved = Vec::new();
                for (i, report) in remote.indexes.iter().zip(found) {
                    self.wrote |= report.as_ref().is_some_and(RowReport::is_change);
                    match report {
                        Some(report) => reports[*i] = Some(report),
                        None => moved.push(*i),
                    }
                }
                Ok(moved)
            }
            Err(RemoteError::NotHere(_) | RemoteError::NotConnected) => Ok(remote.indexes.clone()),
            Err(RemoteError::NotSent(error)) => {
                self.cx.check_stopped()?;
                let failed = || RowReport::failed(error.clone(), Datum::Null);
                remote.indexes.iter().for_each(|i| reports[*i] = Some(failed()));
                Ok(Vec::new())
            }
            Err(RemoteError::NoResponse) => {
                self.wrote = true;
                Err(lost_contact())
            }
            Err(RemoteError::Eval(error)) => {
                self.wrote |= error.class() != ErrorClass::OpFailed;
                Err(error)
            }
        }
    }

    fn send(&mut self, entry: InFlight) -> Result<(), EvalError> {
        self.in_flight.push_back(entry);
        match self.in_flight.len() > IN_FLIGHT_MAX {
            true => self.in_flight.pop_front().map_or(Ok(()), |oldest| self.settle(oldest)),
            false => Ok(()),
        }
    }
}

/// Whether two reports of a row look the same to the client. Another node only sends rows that are shown.
fn report_alike(then: &RowReport, now: &RowReport, show: ReturnChanges) -> bool {
    let same_fate = match (&then.outcome, &now.outcome) {
        (RowOutcome::Failed(then), RowOutcome::Failed(now)) => then.to_string() == now.to_string(),
        (then, now) => std::mem::discriminant(then) == std::mem::discriminant(now),
    };
    let same_rows = || then.old == now.old && then.new == now.new;
    same_fate && (!show.shows(then) || same_rows())
}

/// Whether the row belongs to another shard or leader now.
pub(crate) fn has_moved(error: &WriteError) -> bool {
    use WriteRefusal::{IndexesBehind, Log, Retired, WrongShard};
    let WriteError::Definite { cause } = error else { return false };
    match cause {
        WrongShard { .. } | Retired { .. } | IndexesBehind { .. } => true,
        Log(refusal) => matches!(refusal, Refusal::NotLeader { .. } | Refusal::NotOpen(_)),
        _ => false,
    }
}

/// Whether the log has refused a write definitely because another replica leads, which can be asked instead.
pub(crate) fn is_refused(error: &WriteError) -> bool {
    let refused = |cause: &WriteRefusal| {
        matches!(cause, WriteRefusal::Dependency | WriteRefusal::Log(Refusal::Replaced))
    };
    has_moved(error) || matches!(error, WriteError::Definite { cause } if refused(cause))
}

/// The decision for the shard that corresponds to a report.
pub(crate) fn decision(report: &RowReport) -> Decision {
    match &report.new {
        _ if !report.is_change() => Decision::Unchanged,
        Datum::Object(row) => Decision::Put(row.clone()),
        _ => Decision::Delete,
    }
}

/// The indexes of `waiting` by shard, in their order within each.
fn by_shard(handle: &TableHandle, keys: &[PrimaryKey], waiting: &[usize]) -> Vec<Vec<usize>> {
    let shards = handle.shards();
    if shards.len() == 1 {
        return vec![waiting.to_vec()];
    }
    let mut parts = vec![Vec::new(); shards.len()];
    for i in waiting {
        let shard = handle.shard(&keys[*i]);
        let part = shards.iter().position(|known| std::ptr::eq(known, shard));
        parts[part.unwrap_or(0)].push(*i);
    }
    parts.retain(|part: &Vec<usize>| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_alike_without_rows_that_are_not_shown() {
        let report = |outcome, old: f64, new: f64| RowReport { outcome, old: old.into(), new: new.into() };
        let remote = RowReport { outcome: RowOutcome::Replaced, old: Datum::Null, new: Datum::Null };
        let local = report(RowOutcome::Replaced, 1.0, 2.0);
        assert!(report_alike(&local, &remote, ReturnChanges::No));
        assert!(!report_alike(&local, &remote, ReturnChanges::Changed));
        assert!(report_alike(&local, &local.clone(), ReturnChanges::Always));
        assert!(!report_alike(&local, &report(RowOutcome::Unchanged, 2.0, 2.0), ReturnChanges::No));
        let unchanged = report(RowOutcome::Unchanged, 2.0, 2.0);
        assert!(report_alike(&unchanged, &report(RowOutcome::Unchanged, 3.0, 3.0), ReturnChanges::Changed));
        assert!(!report_alike(&unchanged, &report(RowOutcome::Unchanged, 3.0, 3.0), ReturnChanges::Always));
    }
}
