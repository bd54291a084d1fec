//! Carries out the writes of one term: keys go to their shards, many rows share an entry, and
//! nobody waits for the disk before everything is on its way.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use cluster::TableHandle;
use datum::{Datum, Object, PrimaryKey, Text};
use log::Durability;
use reql::EvalError;
use shard::{Decision, WriteError, WriteRefusal, WriteTicket};

use super::edit::{Edit, RowReport, Target};
use crate::access::{self, Need, Place};
use crate::context::Cx;
use crate::failure::write_failed;
use crate::table::{ReadMode, RowEdit, StoredTable, SystemRef, TableRef};

/// Entries on their way at once; beyond that the oldest is waited for.
const IN_FLIGHT_MAX: usize = 32;
/// How often a write follows its rows to shards that were made meanwhile.
const MOVES_MAX: usize = 100;

/// Most rows of one entry: their latches are held together.
const ENTRY_ROWS_MAX: usize = 128;
/// Most bytes of one entry, roughly.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Tells when enough rows have come together for one entry.
#[derive(Default)]
pub(crate) struct EntryFill {
    rows: usize,
    bytes: usize,
}

impl EntryFill {
    /// Counts one more row; true when the entry is full, and counting begins anew.
    pub fn add(&mut self, row: &Datum) -> bool {
        self.rows += 1;
        self.bytes += row.json_size();
        let is_full = self.rows >= ENTRY_ROWS_MAX || self.bytes >= ENTRY_BYTES_MAX;
        if is_full {
            *self = EntryFill::default();
        }
        is_full
    }
}

/// Fails if the table was asked for as this node happens to have it: nobody can write to that.
fn check_read_mode(table: &TableRef) -> Result<(), EvalError> {
    match table {
        TableRef::Stored(StoredTable { read_mode: ReadMode::DebugDirect, .. }) => Err(EvalError::logic(
            "DEBUG_DIRECT is not a legal read mode for this operation (an up-to-date read mode is required).",
        )),
        _ => Ok(()),
    }
}

/// Rows to be written, each with its key and what is to become of it.
pub(crate) struct Planned<'a> {
    /// The keys, in the order of the reports.
    pub keys: &'a [PrimaryKey],
    /// What is to become of the row at an index.
    pub edit: &'a dyn Fn(usize) -> &'a Edit,
    /// Whether the key at an index was made up.
    pub generated: &'a dyn Fn(usize) -> bool,
}

/// Writes rows of one table.
pub(crate) struct Driver<'a> {
    cx: &'a Cx,
    table: TableRef,
    field: Text,
    durability: Option<Durability>,
    in_flight: VecDeque<WriteTicket>,
}

impl<'a> Driver<'a> {
    /// A driver for `table`.
    pub fn new(cx: &'a Cx, table: TableRef, durability: Option<Durability>) -> Result<Self, EvalError> {
        access::check(cx, Need::Write, Place::of_table(&table))?;
        check_read_mode(&table)?;
        let field = table.primary_key();
        Ok(Driver { cx, table, field, durability, in_flight: VecDeque::new() })
    }

    /// Decides and proposes `planned`; the reports are in its order. They are true once
    /// [`Driver::finish`] returns.
    pub fn write(&mut self, planned: &Planned<'_>) -> Result<Vec<RowReport>, EvalError> {
        self.cx.check_cancel()?;
        self.cx.service.counters().rows_written.fetch_add(planned.keys.len() as u64, Ordering::Relaxed);
        match &self.table {
            TableRef::Stored(_) => self.write_stored(planned),
            TableRef::System(system) => write_system(self.cx, system, &self.field, planned),
        }
    }

    /// Waits until everything is as durable as it must be.
    pub fn finish(mut self) -> Result<(), EvalError> {
        self.in_flight.drain(..).try_for_each(settled)
    }

    fn write_stored(&mut self, planned: &Planned<'_>) -> Result<Vec<RowReport>, EvalError> {
        let mut reports: Vec<Option<RowReport>> = vec![None; planned.keys.len()];
        let mut waiting: Vec<usize> = (0..planned.keys.len()).collect();
        for _ in 0..MOVES_MAX {
            waiting = self.try_write(planned, &waiting, &mut reports)?;
            if waiting.is_empty() {
                let reports: Option<Vec<RowReport>> = reports.into_iter().collect();
                return reports.ok_or_else(|| EvalError::internal("a row was not written"));
            }
            self.follow()?;
        }
        Err(EvalError::op_failed("Cannot perform write: the table is being divided anew"))
    }

    /// Writes the rows at `waiting`; returns those whose shard has gone.
    fn try_write(
        &mut self,
        planned: &Planned<'_>,
        waiting: &[usize],
        reports: &mut [Option<RowReport>],
    ) -> Result<Vec<usize>, EvalError> {
        let TableRef::Stored(StoredTable { handle, .. }) = &self.table else {
            return Err(EvalError::internal("not a stored table"));
        };
        let handle = handle.clone();
        let durability = self.durability.unwrap_or(handle.config.durability);
        let mut moved = Vec::new();
        for indexes in by_shard(&handle, planned.keys, waiting) {
            let keys: Vec<PrimaryKey> = indexes.iter().map(|i| planned.keys[*i].clone()).collect();
            let Some(first) = keys.first() else { continue };
            let env = self.cx.closed_env();
            let decide = |at: usize, old: Option<&Object>| {
                let target = Target { field: &self.field, key: &keys[at] };
                let report = (planned.edit)(indexes[at]).decide(target, old, &env);
                (decision(&report), report)
            };
            match handle.shard(first).write_many(&keys, durability, decide) {
                Ok((answers, ticket)) => {
                    indexes.iter().zip(answers).for_each(|(i, report)| reports[*i] = Some(report));
                    self.send(ticket)?;
                }
                Err(error) if has_moved(&error) => moved.extend(indexes),
                Err(error) => return Err(write_failed(&error)),
            }
        }
        Ok(moved)
    }

    fn send(&mut self, ticket: WriteTicket) -> Result<(), EvalError> {
        self.in_flight.push_back(ticket);
        match self.in_flight.len() > IN_FLIGHT_MAX {
            true => self.in_flight.pop_front().map_or(Ok(()), settled),
            false => Ok(()),
        }
    }

    /// Asks the catalog where the table's rows are now.
    fn follow(&mut self) -> Result<(), EvalError> {
        let TableRef::Stored(stored) = &self.table else { return Ok(()) };
        let (db, name) = (stored.handle.db.name.clone(), stored.handle.config.name.clone());
        self.cx.node().await_change();
        let catalog = self.cx.catalog();
        let Some(handle) = catalog.table_by_id(stored.handle.config.id).cloned() else {
            return Err(EvalError::op_failed(format!("Table `{db}.{name}` does not exist.")));
        };
        self.table = TableRef::Stored(StoredTable { handle, read_mode: stored.read_mode });
        self.cx.check_cancel()
    }
}

fn settled(ticket: WriteTicket) -> Result<(), EvalError> {
    ticket.wait().map(drop).map_err(|error| write_failed(&error))
}

/// Whether the row belongs to another shard now.
fn has_moved(error: &WriteError) -> bool {
    use WriteRefusal::{Elsewhere, IndexesBehind, Retired};
    matches!(error, WriteError::Definite { cause: Elsewhere { .. } | Retired { .. } | IndexesBehind { .. } })
}

/// What the shard is to do so that a report comes true.
pub(crate) fn decision(report: &RowReport) -> Decision {
    match &report.new {
        _ if !report.is_change() => Decision::Unchanged,
        Datum::Object(row) => Decision::Put(row.clone()),
        _ => Decision::Delete,
    }
}

/// The indexes of `waiting`, shard by shard, in their order within each.
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

fn write_system(
    cx: &Cx,
    system: &SystemRef,
    field: &Text,
    planned: &Planned<'_>,
) -> Result<Vec<RowReport>, EvalError> {
    let env = cx.env();
    let mut reports = Vec::with_capacity(planned.keys.len());
    for (i, key) in planned.keys.iter().enumerate() {
        let rows = system.table.rows(cx, system.identifiers)?;
        let is_it = |row: &Object| {
            row.get(field).is_some_and(|id| PrimaryKey::encode(&id).is_ok_and(|id| id == *key))
        };
        let old = rows.into_iter().find(is_it);
        let mut report = (planned.edit)(i).decide(Target { field, key }, old.as_ref(), &env);
        if report.is_change() {
            let new = match &report.new {
                Datum::Object(row) => Some(row),
                _ => None,
            };
            let generated_key = (planned.generated)(i);
            let edit = RowEdit { old: old.as_ref(), new, generated_key, identifiers: system.identifiers };
            if let Err(error) = system.table.write(cx, edit) {
                report = RowReport::failed(error, report.old);
            }
        }
        reports.push(report);
    }
    Ok(reports)
}
