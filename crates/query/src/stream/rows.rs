//! Rows of a range of a table, in the order of their keys.

use std::sync::Arc;

use cluster::IndexConfig;
use datum::key::bucket_of;
use datum::{Datum, KeyRange, PrimaryKey};
use reql::stream::Items;
use reql::{Env, EvalError};
use shard::{Activity, Bounds, ReadError, Shard};
use storage::{Direction, RowBatch, RowScan, TableSnapshot};

use crate::context::{Cx, ReadNote, RowCounter, trace};
use crate::remote::{TableRanges, Target};
use crate::table::{IndexItems, IndexRead, IndexSearch, KeyOrder, StoredTable, TableRef, read_failed};

/// Rows of a table that are not read yet.
#[derive(Clone)]
pub(crate) struct RowSource {
    pub table: StoredTable,
    /// The range of primary keys.
    pub range: KeyRange,
    pub order: KeyOrder,
    /// The secondary index that finds and orders them; `None` for the primary key.
    pub index: Option<Arc<IndexRead>>,
    /// The query takes no more than this many rows, if that is known. Where there is no order more rows may be read.
    pub most: Option<usize>,
    /// Whether they are read to be written. A read by an index is not continued at a later moment then, since a row
    /// that was written meanwhile may have moved in the index and appear again.
    pub is_to_write: bool,
}

/// The part of a range in one local shard, at one moment.
#[derive(Clone)]
pub(crate) struct ShardRange {
    pub snapshot: TableSnapshot,
    pub range: KeyRange,
    /// Whether the range covers the whole shard.
    pub whole: bool,
    /// Counts the rows that are read.
    pub activity: Arc<Activity>,
}

impl ShardRange {
    /// The present rows of `shard` in `range`.
    pub fn of(shard: &Shard, range: KeyRange) -> Result<ShardRange, ReadError> {
        let whole = range == *shard.range();
        Ok(ShardRange { snapshot: shard.snapshot()?, range, whole, activity: shard.activity().clone() })
    }
}

impl RowSource {
    /// Rows of a range of primary keys.
    pub fn by_key(table: StoredTable, range: KeyRange, order: KeyOrder) -> RowSource {
        RowSource { table, range, order, index: None, most: None, is_to_write: false }
    }

    /// The rows of `table` under some values of a secondary index, each the given number of times.
    pub fn of_values(
        table: &TableRef,
        index: &IndexConfig,
        values: Vec<(Datum, u32)>,
    ) -> Result<RowSource, EvalError> {
        let TableRef::Stored(table) = table else { return Err(table.index_missing(&index.name)) };
        let bounds = values.into_iter().map(|(value, times)| (Bounds::one(value), times)).collect();
        Ok(RowSource::of_index(table, index, IndexSearch::Values(bounds), IndexItems::Rows))
    }

    /// Whether the index is asked for no value.
    pub fn names_nothing(&self) -> bool {
        let search = self.index.as_ref().map(|index| &index.search);
        matches!(search, Some(IndexSearch::Values(values)) if values.is_empty())
    }

    /// Rows that an index finds in `table`, in no particular order.
    pub fn of_index(
        table: &StoredTable,
        index: &IndexConfig,
        search: IndexSearch,
        items: IndexItems,
    ) -> RowSource {
        let (id, name) = (index.id, index.name.clone());
        let read = IndexRead { id, name, search, items, after: None, relied_on: None };
        let index = Some(Arc::new(read));
        RowSource { index, ..RowSource::by_key(table.clone(), KeyRange::all(), KeyOrder::Any) }
    }

    /// The record of this read; `on_the_rows` are the steps that run where the rows are.
    pub fn note(&self, cx: &Cx, on_the_rows: Vec<String>) -> ReadNote {
        let (db, name) = (&self.table.handle.db.name, &self.table.handle.config.name);
        let by = match &self.index {
            Some(index) => {
                let search = match &index.search {
                    IndexSearch::Values(bounds) => trace::show_values(bounds),
                    IndexSearch::Intersecting(_) => "shapes that intersect the given one".to_owned(),
                    IndexSearch::Nearest(_) => "shapes nearest to a point".to_owned(),
                };
                format!("index `{}`: {search}", index.name)
            }
            None if self.range == KeyRange::all() => "all rows".to_owned(),
            None => "a range of the primary key".to_owned(),
        };
        let targets = self.table.handle.covering(&self.range);
        let targets: Vec<_> =
            targets.map(|(shard, _)| cx.service.reader(shard, self.table.read_mode)).collect();
        let order = match self.order {
            KeyOrder::Any => "any",
            KeyOrder::Ascending => "ascending",
            KeyOrder::Descending => "descending",
        };
        let remote_shards = targets.iter().filter(|target| matches!(target, Some(Target::Remote(_)))).count();
        let (table, shards, scan_ranges) = (format!("{db}.{name}"), targets.len(), Vec::new());
        ReadNote { table, by, order, shards, remote_shards, on_the_rows, took: None, scan_ranges, times: 1 }
    }

    /// Some ranges of it, for a request to another node.
    pub fn table_ranges(&self, ranges: Vec<KeyRange>) -> TableRanges {
        let table = self.table.handle.config.id;
        let (mode, order, index) = (self.table.read_mode, self.order, self.index.clone());
        TableRanges { table, mode, order, ranges, index }
    }
}

/// An open scan of rows.
pub(crate) struct Rows {
    seen: RowCounter,
    waiting: Vec<ShardRange>,
    /// The activity counter of the present part.
    activity: Option<Arc<Activity>>,
    direction: Direction,
    scan: Option<RowScan>,
    batch: Option<RowBatch>,
    given: usize,
    most: Option<usize>,
}

impl Rows {
    /// The rows of `parts`, one part after the other.
    pub fn new(cx: &Cx, mut parts: Vec<ShardRange>, direction: Direction) -> Rows {
        // Parts are taken from the end.
        parts.reverse();
        let (scan, batch, activity, most) = (None, None, None, None);
        Rows { seen: RowCounter::of(cx), waiting: parts, activity, direction, scan, batch, given: 0, most }
    }

    /// The same rows; the caller takes no more than `most` of them.
    pub fn at_most(self, most: Option<usize>) -> Rows {
        Rows { most, ..self }
    }

    /// The next row; `None` at the end.
    pub fn next_row(&mut self) -> Result<Option<Datum>, EvalError> {
        self.row().map_err(|error| read_failed(&error))
    }

    /// The bucket of the last row.
    pub fn bucket(&self) -> u8 {
        let last = self.given.checked_sub(1);
        self.batch.as_ref().zip(last).map_or(0, |(batch, last)| bucket_of(batch.key_bytes(last)))
    }

    /// The key of the last row, while it is in memory.
    pub fn position(&self) -> Option<PrimaryKey> {
        let batch = self.batch.as_ref()?;
        Some(batch.key(self.given.checked_sub(1)?))
    }

    /// Makes sure that there is a row in memory; false at the end.
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
                    self.seen.rows(batch.len());
                    self.activity.iter().for_each(|activity| activity.add_read(batch.len()));
                    self.most = self.most.map(|most| most.saturating_sub(batch.len()));
                    continue;
                }
            }
            let Some(part) = self.waiting.pop() else { return Ok(false) };
            let scan = part.snapshot.scan(&part.range, self.direction);
            self.activity = Some(part.activity);
            self.scan = Some(match self.most {
                Some(most) => scan.at_most(most),
                None => scan,
            });
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
        self.next_row()
    }
}
