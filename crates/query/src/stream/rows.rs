//! Rows of a table as a sequence: a range in the order of its keys, or the rows under some keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::{IndexConfig, ShardHandle};
use datum::{Datum, KeyRange, PrimaryKey};
use reql::stream::Items;
use reql::{Env, EvalError};
use shard::{Bounds, ReadError};
use storage::{Direction, RowBatch, RowScan, TableSnapshot};

use super::indexed::{IndexItems, IndexRead};
use crate::access::{self, Need, Place};
use crate::context::Cx;
use crate::failure::read_failed;
use crate::service::Service;
use crate::table::{StoredTable, TableRef};

/// The order rows come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// None was asked for.
    Any,
    /// By key.
    Ascending,
    /// By key, the largest first.
    Descending,
}

impl KeyOrder {
    /// The word used by `info`.
    pub fn name(self) -> &'static str {
        match self {
            KeyOrder::Any => "UNORDERED",
            KeyOrder::Ascending => "ASCENDING",
            KeyOrder::Descending => "DESCENDING",
        }
    }

    /// The way a scan goes.
    pub fn direction(self) -> Direction {
        match self {
            KeyOrder::Any | KeyOrder::Ascending => Direction::Ascending,
            KeyOrder::Descending => Direction::Descending,
        }
    }
}

/// A range of a table's rows that nobody reads yet.
#[derive(Clone)]
pub(crate) struct RowSource {
    /// The table.
    pub table: StoredTable,
    /// The range of primary keys.
    pub range: KeyRange,
    /// The order the rows must come in.
    pub order: KeyOrder,
    /// The secondary index they are found by, and ordered by, if it is not the primary key.
    pub index: Option<Arc<IndexRead>>,
}

/// A part of a range as one shard holds it, at one moment.
pub(crate) struct RowPart {
    /// The rows of the shard.
    pub snapshot: TableSnapshot,
    /// The part of the range.
    pub range: KeyRange,
}

impl RowSource {
    /// The rows of `table` under some values of a secondary index, each so many times.
    pub fn of_values(
        table: &TableRef,
        index: &IndexConfig,
        values: Vec<(Datum, u32)>,
    ) -> Result<RowSource, EvalError> {
        let TableRef::Stored(table) = table else { return Err(table.index_missing(&index.name)) };
        let wanted = values.into_iter().map(|(value, times)| (Bounds::one(value), times)).collect();
        let read = IndexRead { id: index.id, name: index.name.clone(), wanted, items: IndexItems::Rows };
        let (range, order) = (KeyRange::all(), KeyOrder::Any);
        Ok(RowSource { table: table.clone(), range, order, index: Some(Arc::new(read)) })
    }

    /// The parts of the range in the order of the rows, all seen at this moment.
    pub fn parts(&self, cx: &Cx) -> Result<Vec<RowPart>, EvalError> {
        access::check(cx, Need::Read, Place::of_table(&TableRef::Stored(self.table.clone())))?;
        let part =
            |(shard, range): (&ShardHandle, KeyRange)| Ok(RowPart { snapshot: shard.snapshot()?, range });
        let parts: Result<Vec<_>, ReadError> = self.table.handle.covering(&self.range).map(part).collect();
        let mut parts = parts.map_err(|error| read_failed(&error))?;
        if self.order == KeyOrder::Descending {
            parts.reverse();
        }
        Ok(parts)
    }

    /// Begins to read.
    pub fn open(&self, cx: &Cx) -> Result<Box<dyn Items>, EvalError> {
        match &self.index {
            Some(index) => Ok(Box::new(index.open(cx, &self.table, self.order)?)),
            None => Ok(Box::new(self.open_primary(cx)?)),
        }
    }

    fn open_primary(&self, cx: &Cx) -> Result<Rows, EvalError> {
        let mut waiting = self.parts(cx)?;
        // Parts are taken from the end.
        waiting.reverse();
        let direction = self.order.direction();
        Ok(Rows { service: cx.service.clone(), waiting, direction, scan: None, batch: None, given: 0 })
    }
}

/// Rows being read.
pub(crate) struct Rows {
    service: Arc<Service>,
    waiting: Vec<RowPart>,
    direction: Direction,
    scan: Option<RowScan>,
    batch: Option<RowBatch>,
    given: usize,
}

impl Rows {
    /// Makes sure there is a row in hand; false at the end.
    fn fill(&mut self) -> Result<bool, ReadError> {
        loop {
            if self.batch.as_ref().is_some_and(|batch| self.given < batch.len()) {
                return Ok(true);
            }
            let used = self.batch.take();
            self.given = 0;
            if let Some(scan) = &mut self.scan {
                self.batch = match used {
                    Some(used) => scan.next_batch_after(used)?,
                    None => scan.next_batch()?,
                };
                if let Some(batch) = &self.batch {
                    self.service.counters().rows_read.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    continue;
                }
            }
            let Some(part) = self.waiting.pop() else { return Ok(false) };
            self.scan = Some(part.snapshot.scan(&part.range, self.direction));
        }
    }

    fn row(&mut self) -> Result<Option<Datum>, ReadError> {
        if !self.fill()? {
            return Ok(None);
        }
        let Some(batch) = &self.batch else { return Ok(None) };
        self.given += 1;
        Ok(Some(Datum::Object(batch.object(self.given - 1)?)))
    }
}

impl Items for Rows {
    fn next(&mut self, _env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        self.row().map_err(|error| read_failed(&error))
    }
}

/// The rows under some keys, each as many times as its key was named.
pub(crate) struct KeySource {
    service: Arc<Service>,
    table: StoredTable,
    waiting: std::vec::IntoIter<(PrimaryKey, usize)>,
    current: Option<(Datum, usize)>,
}

impl KeySource {
    /// The rows of `table` under `keys`, in their order.
    pub fn new(cx: &Cx, table: StoredTable, keys: Vec<(PrimaryKey, usize)>) -> KeySource {
        KeySource { service: cx.service.clone(), table, waiting: keys.into_iter(), current: None }
    }
}

impl Items for KeySource {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            if let Some((row, times)) = &mut self.current
                && *times > 0
            {
                *times -= 1;
                return Ok(Some(row.clone()));
            }
            env.check_cancel()?;
            let Some((key, times)) = self.waiting.next() else { return Ok(None) };
            let row = self.table.handle.shard(&key).get(&key).map_err(|error| read_failed(&error))?;
            self.service.counters().rows_read.fetch_add(1, Ordering::Relaxed);
            self.current = row.map(|row| (Datum::Object(row), times));
        }
    }
}
