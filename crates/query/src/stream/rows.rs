//! Rows of a table as a sequence: a range in the order of its keys.

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
use crate::table::{IndexItems, IndexRead, KeyOrder, StoredTable, TableRef, Wanted, read_failed};

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
    /// No more rows than these will be wanted, if that is known; where there is no order more may be read.
    pub most: Option<usize>,
    /// Whether they are read to be written: what was read by an index is not gone on with at a later moment then, for a
    /// row that was written meanwhile may stand elsewhere and come again.
    pub is_to_write: bool,
}

/// A part of a range as one shard holds it, at one moment.
#[derive(Clone)]
pub(crate) struct ShardRange {
    /// The rows of the shard.
    pub snapshot: TableSnapshot,
    /// The part of the range.
    pub range: KeyRange,
    /// Whether that is all the shard has.
    pub whole: bool,
    /// What is read of it is counted there.
    pub activity: Arc<Activity>,
}

impl ShardRange {
    /// What `shard` has of `range`, at this moment.
    pub fn of(shard: &Shard, range: KeyRange) -> Result<ShardRange, ReadError> {
        let whole = range == *shard.range();
        Ok(ShardRange { snapshot: shard.snapshot()?, range, whole, activity: shard.activity().clone() })
    }
}

impl RowSource {
    /// The rows of a range of primary keys.
    pub fn by_key(table: StoredTable, range: KeyRange, order: KeyOrder) -> RowSource {
        RowSource { table, range, order, index: None, most: None, is_to_write: false }
    }

    /// The rows of `table` under some values of a secondary index, each so many times.
    pub fn of_values(
        table: &TableRef,
        index: &IndexConfig,
        values: Vec<(Datum, u32)>,
    ) -> Result<RowSource, EvalError> {
        let TableRef::Stored(table) = table else { return Err(table.index_missing(&index.name)) };
        let wanted = values.into_iter().map(|(value, times)| (Bounds::one(value), times)).collect();
        Ok(RowSource::of_index(table, index, Wanted::Values(wanted), IndexItems::Rows))
    }

    /// Whether no value is named under which rows are looked for.
    pub fn names_nothing(&self) -> bool {
        let wanted = self.index.as_ref().map(|index| &index.wanted);
        matches!(wanted, Some(Wanted::Values(values)) if values.is_empty())
    }

    /// What an index finds in `table`, in no particular order.
    pub fn of_index(
        table: &StoredTable,
        index: &IndexConfig,
        wanted: Wanted,
        items: IndexItems,
    ) -> RowSource {
        let (id, name) = (index.id, index.name.clone());
        let read = IndexRead { id, name, wanted, items, after: None, relied_on: None };
        let index = Some(Arc::new(read));
        RowSource { index, ..RowSource::by_key(table.clone(), KeyRange::all(), KeyOrder::Any) }
    }

    /// How these rows are read, for who wants to know; `on_the_rows` is what is done where they are.
    pub fn note(&self, cx: &Cx, on_the_rows: Vec<String>) -> ReadNote {
        let (db, name) = (&self.table.handle.db.name, &self.table.handle.config.name);
        let by = match &self.index {
            Some(index) => {
                let wanted = match &index.wanted {
                    Wanted::Values(wanted) => trace::show_values(wanted),
                    Wanted::Intersecting(_) => "what meets a shape".to_owned(),
                    Wanted::Nearest(_) => "what is nearest to a place".to_owned(),
                };
                format!("index `{}`: {wanted}", index.name)
            }
            None if self.range == KeyRange::all() => "all rows".to_owned(),
            None => "a range of the primary key".to_owned(),
        };
        let sites = self.table.handle.covering(&self.range);
        let sites: Vec<_> = sites.map(|(shard, _)| cx.service.reader(shard, self.table.read_mode)).collect();
        let order = match self.order {
            KeyOrder::Any => "any",
            KeyOrder::Ascending => "ascending",
            KeyOrder::Descending => "descending",
        };
        let elsewhere = sites.iter().filter(|site| matches!(site, Some(Target::Remote(_)))).count();
        let (table, shards, scan_ranges) = (format!("{db}.{name}"), sites.len(), Vec::new());
        ReadNote { table, by, order, shards, elsewhere, on_the_rows, took: None, scan_ranges, times: 1 }
    }

    /// Some ranges of it, as another node is asked for them.
    pub fn part(&self, ranges: Vec<KeyRange>) -> TableRanges {
        let table = self.table.handle.config.id;
        let (mode, order, index) = (self.table.read_mode, self.order, self.index.clone());
        TableRanges { table, mode, order, ranges, index }
    }
}

/// Rows being read.
pub(crate) struct Rows {
    seen: RowCounter,
    waiting: Vec<ShardRange>,
    /// Of the part that is being read.
    activity: Option<Arc<Activity>>,
    direction: Direction,
    scan: Option<RowScan>,
    batch: Option<RowBatch>,
    given: usize,
    most: Option<usize>,
}

impl Rows {
    /// The rows of `parts`, one after the other.
    pub fn new(cx: &Cx, mut parts: Vec<ShardRange>, direction: Direction) -> Rows {
        // Parts are taken from the end.
        parts.reverse();
        let (scan, batch, activity, most) = (None, None, None, None);
        Rows { seen: RowCounter::of(cx), waiting: parts, activity, direction, scan, batch, given: 0, most }
    }

    /// The same, of which no more than `most` will be asked for.
    pub fn at_most(self, most: Option<usize>) -> Rows {
        Rows { most, ..self }
    }

    /// The next row.
    pub fn next_row(&mut self) -> Result<Option<Datum>, EvalError> {
        self.row().map_err(|error| read_failed(&error))
    }

    /// Out of which hand the last row is given where there is no order.
    pub fn bucket(&self) -> u8 {
        let last = self.given.checked_sub(1);
        self.batch.as_ref().zip(last).map_or(0, |(batch, last)| bucket_of(batch.key_bytes(last)))
    }

    /// The key of the last row, unless there is none at hand.
    pub fn position(&self) -> Option<PrimaryKey> {
        let batch = self.batch.as_ref()?;
        Some(batch.key(self.given.checked_sub(1)?))
    }

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
