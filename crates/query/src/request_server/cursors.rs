//! Requests that open a cursor over rows, read its batches, or close it.

use std::sync::Arc;

use bytes::Bytes;
use cluster::Responder;
use datum::cancel;
use io::memory::{Account, Owner};
use reql::codec::Codec;
use reql::{Cancel, Env, EvalError, Flow, Transform};
use shard::IndexCursor;

use super::local_shards::LocalShards;
use super::running::{RequestKey, RunningRequest, RunningRequests};
use super::unless_cancelled;
use crate::context::{Cx, EvalParams};
use crate::remote::{BatchEnd, CursorBatch, ReadPosition, Response, TableRanges};
use crate::service::ServedCursor;
use crate::stream::{Indexed, Rows};
use crate::table::{BucketPosition, IndexRead, IndexSearch, KeyOrder, Placed, PlacedItems, are_interleaved};

/// Bytes of the first batch of a cursor; each later one may be four times as large.
const BATCH_BYTES_MIN: usize = 16 << 10;
/// Most bytes of a batch, roughly. The items of one row stay together.
const BATCH_BYTES_MAX: usize = 512 << 10;
/// From this size on an item is only encoded if there is memory for it.
const LARGE_ITEM_BYTES: usize = 1 << 20;
/// Sizes are not counted beyond this.
const ITEM_BYTES_MAX: usize = u32::MAX as usize;
/// The size that is counted for a row in a batch, in addition to its items.
const ROW_BYTES: usize = 64;

pub(super) fn open(
    shards: &LocalShards,
    running: &RunningRequest,
    part: &TableRanges,
    eval_params: EvalParams,
    steps: Vec<Transform>,
) -> Bytes {
    let account = Account::new(shards.service.memory.clone());
    let _counting = account.enter();
    let cx = shards.cx(eval_params, running.cancel.clone());
    let rows = match &part.index {
        Some(index) => shards.by_index(&cx, part, index).and_then(|parts| {
            // The sender knows other shards, and could not tell how far each was read.
            if are_interleaved(part.order, Some(&**index)) && parts.len() > part.ranges.len() {
                return Response::NotHere(None);
            }
            let heads = parts.into_iter().map(|part| Box::new(part) as Box<dyn PlacedItems>);
            Response::Done(ServedRows::Index(Indexed::new(heads.collect(), part.order)))
        }),
        None => shards.rows(part).and_then(|parts| {
            let rows = Rows::new(&cx, parts, part.order.direction());
            Response::Done(ServedRows::Primary(Box::new(rows)))
        }),
    };
    match rows {
        Response::Done(rows) => {
            let interleaved = are_interleaved(part.order, part.index.as_deref());
            let by_values = |index: &IndexRead| matches!(index.search, IndexSearch::Values(_));
            let cursor = RowCursor {
                cx,
                rows,
                placed: part.index.is_some() && part.order != KeyOrder::Any,
                by_values: part.index.as_deref().is_some_and(by_values),
                interleaved,
                steps,
                batch_bytes: BATCH_BYTES_MIN,
                ended: false,
                account,
            };
            read_batch(shards, running, Box::new(cursor))
        }
        Response::Failed(error) => Response::<()>::Failed(error).to_bytes(|(), _| ()),
        Response::NotHere(leader) => Response::<()>::NotHere(leader).to_bytes(|(), _| ()),
    }
}

/// Reads the next batch of a cursor. The cursor is taken out at once, so that a close that follows this request
/// finds it running.
pub(super) fn next(shards: &LocalShards, requests: &Arc<RunningRequests>, key: RequestKey, reply: Responder) {
    let Some(cursor) = shards.service.cursors.take(key) else {
        return reply(Ok(Response::<()>::NotHere(None).to_bytes(|(), _| ())));
    };
    let running = requests.register(key, cursor.cancel());
    let (service, shards) = (shards.service.clone(), shards.clone());
    service.request_threads.run(move || {
        let batch = read_batch(&shards, &running, cursor);
        // Before the next request with this number can arrive.
        drop(running);
        reply(Ok(batch));
    });
}

/// Reads a batch, and keeps the cursor unless it has ended or was closed meanwhile.
fn read_batch(shards: &LocalShards, running: &RunningRequest, mut cursor: Box<dyn ServedCursor>) -> Bytes {
    let _cancel_scope = cancel::scope(Some(running.cancel.clone()));
    unless_cancelled(&running.cancel, || {
        let account = cursor.account().clone();
        account.move_to(Owner::Queries);
        let counting = account.enter();
        let batch = cursor.next_batch();
        drop(counting);
        account.disown(batch.len() as u64);
        if !cursor.is_over() {
            account.move_to(Owner::Cursors);
            shards.service.cursors.keep(running.key(), cursor, shards.service.node().clock().now());
            // A close from now on finds it among the kept cursors.
            if running.cancel.is_set() {
                shards.service.cursors.take(running.key());
            }
        }
        batch
    })
}

/// A cursor over rows for another node.
struct RowCursor {
    cx: Arc<Cx>,
    rows: ServedRows,
    /// Whether items need their position in the index.
    placed: bool,
    /// Whether rows are found by values of an index.
    by_values: bool,
    /// Whether the sender interleaves the items, which need their buckets for that.
    interleaved: bool,
    steps: Vec<Transform>,
    batch_bytes: usize,
    ended: bool,
    account: Arc<Account>,
}

enum ServedRows {
    Primary(Box<Rows>),
    Index(Indexed),
}

impl ServedRows {
    fn next(&mut self, interleaved: bool, env: &Env<'_>) -> Result<Option<Placed>, EvalError> {
        let rows = match self {
            ServedRows::Primary(rows) => rows,
            ServedRows::Index(rows) => return rows.next_placed(env),
        };
        let Some(item) = rows.next_row()? else { return Ok(None) };
        let bucket = BucketPosition { number: if interleaved { rows.bucket() } else { 0 }, rows: 1 };
        Ok(Some(Placed { bucket, ..Placed::unordered(item) }))
    }
}

impl RowCursor {
    fn fill(&mut self, batch: &mut CursorBatch) -> Result<BatchEnd, EvalError> {
        let env = self.cx.closed_env();
        let mut bytes = 0;
        let rows_after = &mut batch.rows_after;
        while bytes < self.batch_bytes {
            env.check_cancel()?;
            let Some(row) = self.rows.next(self.interleaved, &env)? else { return Ok(BatchEnd::Done) };
            bytes += ROW_BYTES;
            *rows_after += u64::from(self.interleaved);
            for _ in 0..row.times {
                reql::run(&self.steps, row.item.clone(), &env, &mut |item| {
                    let size = item.json_size_to(ITEM_BYTES_MAX);
                    if size >= LARGE_ITEM_BYTES {
                        self.account.check_room(size as u64).map_err(EvalError::memory)?;
                    }
                    bytes += size;
                    batch.items.push(item);
                    batch.positions.extend(self.placed.then(|| row.place.clone()));
                    let rows = std::mem::take(rows_after).try_into().unwrap_or(u32::MAX);
                    batch.buckets.extend(self.interleaved.then_some(BucketPosition { rows, ..row.bucket }));
                    Ok(Flow::Continue)
                })?;
            }
            if self.by_values {
                let Placed { place, wanted, .. } = row;
                batch.position = Some(ReadPosition::Index(IndexCursor { wanted, position: place }));
            }
        }
        Ok(BatchEnd::More)
    }
}

impl ServedCursor for RowCursor {
    fn next_batch(&mut self) -> Bytes {
        let mut batch = CursorBatch::new();
        batch.end = self.fill(&mut batch).unwrap_or_else(BatchEnd::Failed);
        self.batch_bytes = (self.batch_bytes * 4).min(BATCH_BYTES_MAX);
        self.ended = !matches!(batch.end, BatchEnd::More);
        if let ServedRows::Primary(rows) = &self.rows {
            batch.position = rows.position().map(ReadPosition::Key);
        }
        batch.rows_read = self.cx.take_rows_read();
        Response::Done(batch).to_bytes(Codec::pack)
    }

    fn is_over(&self) -> bool {
        self.ended
    }

    fn cancel(&self) -> Arc<Cancel> {
        self.cx.cancel.clone()
    }

    fn account(&self) -> &Arc<Account> {
        &self.account
    }
}
