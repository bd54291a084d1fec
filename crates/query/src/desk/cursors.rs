//! Questions that open a cursor over the rows of a part, and read it batch by batch.

use std::sync::Arc;

use bytes::Bytes;
use cluster::{Responder, ServerId};
use datum::cancel;
use io::memory::{Account, Owner};
use reql::codec::Codec;
use reql::{Cancel, Env, EvalError, Flow, Transform};
use shard::IndexCursor;

use super::running::Entered;
use super::{Inner, unless_stopped};
use crate::context::{Cx, Surroundings};
use crate::cursors::Pull;
use crate::far::{BatchEnd, FarBatch, Outcome, Part, Position};
use crate::order::{Hand, IndexRead, KeyOrder, Placed, PlacedItems, Wanted, are_dealt};
use crate::stream::{Indexed, Rows};

/// Bytes of the first batch of a cursor; each later one may be four times as long.
const BATCH_BYTES_MIN: usize = 16 << 10;
/// Most bytes of a batch, roughly. What one row becomes stays together.
const BATCH_BYTES_MAX: usize = 512 << 10;
/// An item of so many bytes is not written out before there is memory for it.
const LARGE_ITEM_BYTES: usize = 1 << 20;
/// More bytes are not counted.
const ITEM_BYTES_MAX: usize = u32::MAX as usize;
/// What a row that no item is made of counts in a batch.
const ROW_BYTES: usize = 64;

impl Inner {
    pub(super) fn open(
        &self,
        entered: &Entered,
        part: &Part,
        around: Surroundings,
        steps: Vec<Transform>,
    ) -> Bytes {
        let account = Account::new(self.service.memory.clone());
        let _counting = account.enter();
        let cx = self.cx(around, entered.cancel.clone());
        let rows = match &part.index {
            Some(index) => self.by_index(&cx, part, index).and_then(|parts| {
                // Whoever asked knows other shards, and could not tell how far each was read.
                if are_dealt(part.order, Some(&**index)) && parts.len() > part.ranges.len() {
                    return Outcome::Moved(None);
                }
                let heads = parts.into_iter().map(|part| Box::new(part) as Box<dyn PlacedItems>);
                Outcome::Done(ServedRows::Index(Indexed::new(heads.collect(), part.order)))
            }),
            None => self.rows(part).and_then(|parts| {
                let rows = Rows::new(&cx, parts, part.order.direction());
                Outcome::Done(ServedRows::Primary(Box::new(rows)))
            }),
        };
        match rows {
            Outcome::Done(rows) => {
                let dealt = are_dealt(part.order, part.index.as_deref());
                let by_values = |index: &IndexRead| matches!(index.wanted, Wanted::Values(_));
                let cursor = ServedCursor {
                    cx,
                    rows,
                    placed: part.index.is_some() && part.order != KeyOrder::Any,
                    by_values: part.index.as_deref().is_some_and(by_values),
                    dealt,
                    steps,
                    batch_bytes: BATCH_BYTES_MIN,
                    ended: false,
                    account,
                };
                self.pull(entered, Box::new(cursor))
            }
            Outcome::Failed(error) => Outcome::<()>::Failed(error).to_bytes(|(), _| ()),
            Outcome::Moved(leader) => Outcome::<()>::Moved(leader).to_bytes(|(), _| ()),
        }
    }

    /// Reads on in a cursor that is kept here. It is taken at once, so that whoever closes it right behind this
    /// question finds it being read.
    pub(super) fn next(self: Arc<Self>, key: (ServerId, u64), reply: Responder) {
        let Some(cursor) = self.service.cursors.take(key) else {
            return reply(Ok(Outcome::<()>::Moved(None).to_bytes(|(), _| ())));
        };
        let entered = self.running.enter(key, cursor.cancel());
        let inner = self.clone();
        self.service.carriers.run(move || {
            let batch = inner.pull(&entered, cursor);
            // Before the next question of that number can come.
            drop(entered);
            reply(Ok(batch));
        });
    }

    /// Reads a batch, and keeps the cursor unless it is over or was closed meanwhile.
    fn pull(&self, entered: &Entered, mut cursor: Box<dyn Pull>) -> Bytes {
        let _cancel_scope = cancel::scope(Some(entered.cancel.clone()));
        unless_stopped(&entered.cancel, || {
            let account = cursor.account().clone();
            account.move_to(Owner::Queries);
            let counting = account.enter();
            let batch = cursor.next_batch();
            drop(counting);
            account.disown(batch.len() as u64);
            if !cursor.is_over() {
                account.move_to(Owner::Cursors);
                self.service.cursors.keep(entered.key(), cursor, self.service.node().clock().now());
                // Whoever closes it from now on finds it there.
                if entered.cancel.is_set() {
                    self.service.cursors.take(entered.key());
                }
            }
            batch
        })
    }
}

/// Rows being read for another node.
struct ServedCursor {
    cx: Arc<Cx>,
    rows: ServedRows,
    /// Whether it matters where an item stands in the order of its index.
    placed: bool,
    /// Whether rows are found by their values in an index.
    by_values: bool,
    /// Whether items are dealt where the query runs, so that each goes with its hand.
    dealt: bool,
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
    fn next(&mut self, dealt: bool, env: &Env<'_>) -> Result<Option<Placed>, EvalError> {
        let rows = match self {
            ServedRows::Primary(rows) => rows,
            ServedRows::Index(rows) => return rows.next_placed(env),
        };
        let Some(item) = rows.next_row()? else { return Ok(None) };
        let hand = Hand { number: if dealt { rows.hand() } else { 0 }, rows: 1 };
        Ok(Some(Placed { hand, ..Placed::nowhere(item) }))
    }
}

impl ServedCursor {
    fn fill(&mut self, batch: &mut FarBatch) -> Result<BatchEnd, EvalError> {
        let env = self.cx.closed_env();
        let mut bytes = 0;
        let rows_after = &mut batch.rows_after;
        while bytes < self.batch_bytes {
            env.check_cancel()?;
            let Some(row) = self.rows.next(self.dealt, &env)? else { return Ok(BatchEnd::Done) };
            bytes += ROW_BYTES;
            *rows_after += u64::from(self.dealt);
            for _ in 0..row.times {
                reql::run(&self.steps, row.item.clone(), &env, &mut |item| {
                    let size = item.json_size_to(ITEM_BYTES_MAX);
                    if size >= LARGE_ITEM_BYTES {
                        self.account.check_room(size as u64).map_err(EvalError::memory)?;
                    }
                    bytes += size;
                    batch.items.push(item);
                    batch.places.extend(self.placed.then(|| row.place.clone()));
                    let rows = std::mem::take(rows_after).try_into().unwrap_or(u32::MAX);
                    batch.hands.extend(self.dealt.then_some(Hand { rows, ..row.hand }));
                    Ok(Flow::Continue)
                })?;
            }
            if self.by_values {
                let Placed { place, wanted, .. } = row;
                batch.position = Some(Position::Index(IndexCursor { wanted, place }));
            }
        }
        Ok(BatchEnd::More)
    }
}

impl Pull for ServedCursor {
    fn next_batch(&mut self) -> Bytes {
        let mut batch = FarBatch::new();
        batch.end = self.fill(&mut batch).unwrap_or_else(BatchEnd::Failed);
        self.batch_bytes = (self.batch_bytes * 4).min(BATCH_BYTES_MAX);
        self.ended = !matches!(batch.end, BatchEnd::More);
        if let ServedRows::Primary(rows) = &self.rows {
            batch.position = rows.position().map(Position::Key);
        }
        batch.looked_at = self.cx.take_looked_at();
        Outcome::Done(batch).to_bytes(Codec::pack)
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
