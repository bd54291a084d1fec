//! Rows of a cursor on another node. The next batch is requested when half of the last one is consumed, so that the
//! reader sets the pace and seldom waits.

use std::collections::VecDeque;
use std::sync::Arc;

use cluster::{Catalog, ServerId};
use datum::{Datum, KeyBound, KeyRange, PrimaryKey};
use reql::codec::Codec;
use reql::stream::Items;
use reql::{Env, EvalError, Transform};
use shard::IndexRowPosition;

use super::request::Request;
use super::response::{BatchEnd, CursorBatch, ReadPosition, read};
use super::table_ranges::TableRanges;
use super::tally::unless_not_here;
use super::target::{RetryBudget, refreshed, unreadable};
use super::wait::{failover_for, shards_in, wait};
use crate::context::{Cx, EvalParams};
use crate::routing::{LONG_CALL_TIMEOUT, ResponseSlot};
use crate::table::{
    BucketPosition, BucketedItem, BucketedItems, IndexRead, KeyOrder, Placed, PlacedItems, StoredTable,
};

/// Opens a range of a table again, wherever it is now.
pub(crate) type Reopen = fn(&Cx, RemoteSource, RetryBudget) -> Result<ReopenedRows, EvalError>;

/// The rest of a sequence whose cursor was lost.
pub(crate) enum ReopenedRows {
    /// By the primary key.
    Bucketed(Box<dyn BucketedItems>),
    /// By a secondary index.
    Placed(Box<dyn PlacedItems>),
}

/// Describes rows to read.
#[derive(Clone)]
pub(crate) struct RemoteSource {
    pub table: StoredTable,
    /// The range of primary keys.
    pub range: KeyRange,
    pub order: KeyOrder,
    /// The secondary index that finds them.
    pub index: Option<Arc<IndexRead>>,
    /// The steps that the other node applies to the rows.
    pub steps: Vec<Transform>,
    /// Whether the rows are read to be written.
    pub is_to_write: bool,
}

/// Rows of another node after some steps.
pub(crate) struct RemoteRows {
    cx: Arc<Cx>,
    server: ServerId,
    source: RemoteSource,
    reopen: Reopen,
    cursor: u64,
    ready: VecDeque<Placed>,
    /// Half of the last batch's length.
    low_water: usize,
    /// The request for the next batch, while it is pending.
    waiting: Option<Arc<ResponseSlot>>,
    /// The last row that was read for the items so far.
    position: Option<ReadPosition>,
    end: Option<RowsEnd>,
    /// Whether any batch arrived.
    has_started: bool,
    /// Rows read after the last of the ready items.
    rows_after: usize,
    budget: RetryBudget,
}

/// How the sequence goes on after the ready items.
enum RowsEnd {
    Done,
    Failed(EvalError),
    /// The rest, opened again.
    Reopened(ReopenedRows),
}

impl RemoteRows {
    /// Requests the first rows from `server`. If the cursor is lost, `reopen` reads the rest, as long as `budget`
    /// lasts.
    pub fn open(
        cx: &Cx,
        server: ServerId,
        source: RemoteSource,
        reopen: Reopen,
        budget: RetryBudget,
    ) -> Result<RemoteRows, EvalError> {
        let cx = cx.shared()?;
        let cursor = cx.service.remote_calls().next_number();
        let part = TableRanges {
            table: source.table.handle.config.id,
            mode: source.table.read_mode,
            order: source.order,
            ranges: vec![source.range.clone()],
            index: source.index.clone(),
        };
        let (eval_params, steps) = (EvalParams::of(&cx), source.steps.clone());
        let request = Request::Open { cursor, part, eval_params, steps };
        let waiting = Some(cx.service.remote_calls().call(server, request.to_bytes(), LONG_CALL_TIMEOUT));
        let ready = VecDeque::new();
        Ok(RemoteRows {
            cx,
            server,
            source,
            reopen,
            cursor,
            ready,
            low_water: 0,
            waiting,
            position: None,
            end: None,
            has_started: false,
            rows_after: 0,
            budget,
        })
    }

    fn request_next(&mut self) {
        let request = Request::Next { cursor: self.cursor };
        self.waiting =
            Some(self.cx.service.remote_calls().call(self.server, request.to_bytes(), LONG_CALL_TIMEOUT));
    }

    /// Waits for the pending batch.
    fn take_batch(&mut self) -> Result<(), EvalError> {
        let Some(slot) = self.waiting.take() else {
            self.request_next();
            return Ok(());
        };
        let RemoteSource { table, range, .. } = &self.source;
        let (id, mode) = (table.handle.config.id, table.read_mode);
        let shards = |catalog: &Catalog| shards_in(catalog, id, std::slice::from_ref(range));
        let response = wait(&self.cx, &slot, self.server, failover_for(mode), shards);
        let batch = response.and_then(|bytes| read(bytes, CursorBatch::unpack));
        match unless_not_here(batch)? {
            Some(batch) => self.take(batch),
            None => self.end = Some(RowsEnd::Reopened(self.reopened()?)),
        }
        Ok(())
    }

    fn take(&mut self, batch: CursorBatch) {
        self.cx.add_remote_rows_read(batch.rows_read);
        self.rows_after = usize::try_from(batch.rows_after).unwrap_or(usize::MAX);
        self.low_water = batch.items.len() / 2;
        self.has_started = true;
        let positions = batch.positions.into_iter().chain(std::iter::repeat_with(IndexRowPosition::none));
        let buckets = batch.buckets.into_iter().chain(std::iter::repeat(BucketPosition::default()));
        let placed = batch.items.into_iter().zip(positions).zip(buckets);
        self.ready.extend(placed.map(|((item, place), bucket)| Placed {
            place,
            bucket,
            ..Placed::unordered(item)
        }));
        self.position = batch.position.or(self.position.take());
        match batch.end {
            BatchEnd::More => {}
            BatchEnd::Done => self.end = Some(RowsEnd::Done),
            BatchEnd::Failed(error) => self.end = Some(RowsEnd::Failed(error)),
        }
    }

    /// Opens the rest of the rows, wherever they are now. They are read as of a later moment.
    fn reopened(&mut self) -> Result<ReopenedRows, EvalError> {
        let mut source = self.source.clone();
        match (&self.position, &source.index) {
            (Some(ReadPosition::Key(key)), _) => source.range = after(&source.range, key, source.order),
            (Some(ReadPosition::Index(position)), Some(index)) if !source.is_to_write => {
                let after = Some(position.clone());
                source.index = Some(Arc::new(IndexRead { after, ..(**index).clone() }));
            }
            // Of an index of shapes the position is not known, and a row that was written since may appear again.
            (_, Some(_)) if self.has_started => {
                return Err(EvalError::op_failed("Cannot perform read: lost contact with primary replica"));
            }
            _ => {}
        }
        if !self.budget.wait(&self.cx, &source.table, &source.range)? {
            return Err(unreadable(&source.range, source.table.read_mode));
        }
        source.table = refreshed(&self.cx, &source.table, &mut self.budget)?;
        (self.reopen)(&self.cx, source, self.budget.remaining())
    }
}

impl PlacedItems for RemoteRows {
    fn begin(&mut self) -> Result<(), EvalError> {
        if self.has_started || self.end.is_some() { Ok(()) } else { self.take_batch() }
    }

    fn next_placed(&mut self, env: &Env<'_>) -> Result<Option<Placed>, EvalError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                if self.ready.len() <= self.low_water && self.waiting.is_none() && self.end.is_none() {
                    self.request_next();
                }
                return Ok(Some(item));
            }
            env.check_cancel()?;
            match &mut self.end {
                None => self.take_batch()?,
                Some(RowsEnd::Done) => return Ok(None),
                Some(RowsEnd::Failed(error)) => return Err(error.clone()),
                Some(RowsEnd::Reopened(ReopenedRows::Placed(rest))) => return rest.next_placed(env),
                Some(RowsEnd::Reopened(ReopenedRows::Bucketed(rest))) => match rest.next_bucketed(env)? {
                    BucketedItem::Item(bucket, item) => {
                        return Ok(Some(Placed { bucket, ..Placed::unordered(item) }));
                    }
                    BucketedItem::Skipped(_) => {}
                    BucketedItem::End => return Ok(None),
                },
            }
        }
    }
}

impl BucketedItems for RemoteRows {
    fn next_bucketed(&mut self, env: &Env<'_>) -> Result<BucketedItem, EvalError> {
        loop {
            match self.ready.front_mut().map(|next| &mut next.bucket.rows) {
                // Reported before the item, so that a round ends at the same row as on the other node.
                Some(rows) if *rows > 1 => {
                    let before = std::mem::replace(rows, 1) - 1;
                    return Ok(BucketedItem::Skipped(before as usize));
                }
                None if self.rows_after > 0 => {
                    return Ok(BucketedItem::Skipped(std::mem::take(&mut self.rows_after)));
                }
                _ => {}
            }
            match &mut self.end {
                None if self.ready.is_empty() => {
                    env.check_cancel()?;
                    self.take_batch()?;
                }
                Some(RowsEnd::Reopened(ReopenedRows::Bucketed(rest))) if self.ready.is_empty() => {
                    return rest.next_bucketed(env);
                }
                _ => {
                    let item = self.next_placed(env)?;
                    return Ok(item
                        .map_or(BucketedItem::End, |placed| BucketedItem::Item(placed.bucket, placed.item)));
                }
            }
        }
    }
}

impl Items for RemoteRows {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        Ok(self.next_placed(env)?.map(|placed| placed.item))
    }
}

impl Drop for RemoteRows {
    fn drop(&mut self) {
        if self.end.is_none() {
            let request = Request::Close { cursor: self.cursor };
            self.cx.service.remote_calls().notify(self.server, request.to_bytes());
        }
    }
}

/// The part of `range` after `position` in this order.
fn after(range: &KeyRange, position: &PrimaryKey, order: KeyOrder) -> KeyRange {
    let bound = KeyBound::Excluded(position.clone());
    match order {
        KeyOrder::Descending => KeyRange { start: range.start.clone(), end: bound },
        KeyOrder::Any | KeyOrder::Ascending => KeyRange { start: bound, end: range.end.clone() },
    }
}
