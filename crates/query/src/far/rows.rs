//! Rows of another node, batch by batch: the next is asked for when half of the last is used up, so
//! that whoever reads sets the pace and seldom waits.

use std::collections::VecDeque;
use std::sync::Arc;

use cluster::{Catalog, ServerId};
use datum::{Datum, KeyBound, KeyRange, PrimaryKey};
use reql::codec::Codec;
use reql::stream::Items;
use reql::{Env, EvalError, Transform};
use shard::IndexRowPosition;

use super::answer::{BatchEnd, FarBatch, Position, read};
use super::gather::unless_lost;
use super::part::Part;
use super::question::Question;
use super::site::{Patience, fresh, unreadable};
use super::waiting::{shards_in, wait, wanted_by};
use crate::context::{Cx, Surroundings};
use crate::links::{LONG, Slot};
use crate::order::{Hand, Handed, HandedItems, IndexRead, KeyOrder, Placed, PlacedItems};
use crate::table::StoredTable;

/// Begins to read a part of a table anew, wherever it is now.
pub(crate) type Reopen = fn(&Cx, FarSource, Patience) -> Result<Rest, EvalError>;

/// Items that were lost on their way, looked for anew.
pub(crate) enum Rest {
    /// By the primary key.
    Handed(Box<dyn HandedItems>),
    /// By a secondary index.
    Placed(Box<dyn PlacedItems>),
}

/// Rows that are asked for.
#[derive(Clone)]
pub(crate) struct FarSource {
    /// The table.
    pub table: StoredTable,
    /// The part of it.
    pub range: KeyRange,
    /// In which order.
    pub order: KeyOrder,
    /// The secondary index they are found by.
    pub index: Option<Arc<IndexRead>>,
    /// What happens to the rows where they are.
    pub steps: Vec<Transform>,
    /// Whether they are read to be written.
    pub is_to_write: bool,
}

/// Rows of another node after some steps.
pub(crate) struct FarRows {
    cx: Arc<Cx>,
    server: ServerId,
    source: FarSource,
    reopen: Reopen,
    cursor: u64,
    ready: VecDeque<Placed>,
    /// Half of what the last batch held.
    low: usize,
    /// The answer that is on its way.
    waiting: Option<Arc<Slot>>,
    /// The last row the items so far were made of.
    position: Option<Position>,
    end: Option<End>,
    /// Whether any batch came.
    begun: bool,
    /// Rows that were looked at after the last of the items in hand.
    rows_after: usize,
    patience: Patience,
}

/// What follows the items in hand.
enum End {
    Done,
    Failed(EvalError),
    /// The rest, looked for anew.
    Elsewhere(Rest),
}

impl FarRows {
    /// Asks `server` for the first rows. What is lost on the way is read by `reopen`, for as long as
    /// `patience` lasts.
    pub fn open(
        cx: &Cx,
        server: ServerId,
        source: FarSource,
        reopen: Reopen,
        patience: Patience,
    ) -> Result<FarRows, EvalError> {
        let cx = cx.shared()?;
        let cursor = cx.service.links().number();
        let part = Part {
            table: source.table.handle.config.id,
            mode: source.table.read_mode,
            order: source.order,
            ranges: vec![source.range.clone()],
            index: source.index.clone(),
        };
        let (around, steps) = (Surroundings::of(&cx), source.steps.clone());
        let question = Question::Open { cursor, part, around, steps };
        let waiting = Some(cx.service.links().ask(server, question.to_bytes(), LONG));
        let ready = VecDeque::new();
        Ok(FarRows {
            cx,
            server,
            source,
            reopen,
            cursor,
            ready,
            low: 0,
            waiting,
            position: None,
            end: None,
            begun: false,
            rows_after: 0,
            patience,
        })
    }

    fn ask_next(&mut self) {
        let question = Question::Next { cursor: self.cursor };
        self.waiting = Some(self.cx.service.links().ask(self.server, question.to_bytes(), LONG));
    }

    /// Waits for the batch that is on its way.
    fn take_batch(&mut self) -> Result<(), EvalError> {
        let Some(slot) = self.waiting.take() else {
            self.ask_next();
            return Ok(());
        };
        let FarSource { table, range, .. } = &self.source;
        let (id, mode) = (table.handle.config.id, table.read_mode);
        let shards = |catalog: &Catalog| shards_in(catalog, id, std::slice::from_ref(range));
        let answer = wait(&self.cx, &slot, self.server, wanted_by(mode), shards);
        let batch = answer.and_then(|bytes| read(bytes, FarBatch::unpack));
        match unless_lost(batch)? {
            Some(batch) => self.take(batch),
            None => self.end = Some(End::Elsewhere(self.look_again()?)),
        }
        Ok(())
    }

    fn take(&mut self, batch: FarBatch) {
        self.cx.looked_at_elsewhere(batch.looked_at);
        self.rows_after = usize::try_from(batch.rows_after).unwrap_or(usize::MAX);
        self.low = batch.items.len() / 2;
        self.begun = true;
        let places = batch.places.into_iter().chain(std::iter::repeat_with(IndexRowPosition::none));
        let hands = batch.hands.into_iter().chain(std::iter::repeat(Hand::default()));
        let placed = batch.items.into_iter().zip(places).zip(hands);
        self.ready.extend(placed.map(|((item, place), hand)| Placed {
            place,
            hand,
            ..Placed::nowhere(item)
        }));
        self.position = batch.position.or(self.position.take());
        match batch.end {
            BatchEnd::More => {}
            BatchEnd::Done => self.end = Some(End::Done),
            BatchEnd::Failed(error) => self.end = Some(End::Failed(error)),
        }
    }

    /// The rows after those that came, wherever they are now. They are seen as of a later moment.
    fn look_again(&mut self) -> Result<Rest, EvalError> {
        let mut source = self.source.clone();
        match (&self.position, &source.index) {
            (Some(Position::Key(key)), _) => source.range = after(&source.range, key, source.order),
            (Some(Position::Index(position)), Some(index)) if !source.is_to_write => {
                let after = Some(position.clone());
                source.index = Some(Arc::new(IndexRead { after, ..(**index).clone() }));
            }
            // Of shapes it is not known which rows came, and what was written since may come again.
            (_, Some(_)) if self.begun => {
                return Err(EvalError::op_failed("Cannot perform read: lost contact with primary replica"));
            }
            _ => {}
        }
        if !self.patience.wait(&self.cx, &source.table, &source.range)? {
            return Err(unreadable(&source.range, source.table.read_mode));
        }
        source.table = fresh(&self.cx, &source.table, &mut self.patience)?;
        (self.reopen)(&self.cx, source, self.patience.rest())
    }
}

impl PlacedItems for FarRows {
    fn begin(&mut self) -> Result<(), EvalError> {
        if self.begun || self.end.is_some() { Ok(()) } else { self.take_batch() }
    }

    fn next_placed(&mut self, env: &Env<'_>) -> Result<Option<Placed>, EvalError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                if self.ready.len() <= self.low && self.waiting.is_none() && self.end.is_none() {
                    self.ask_next();
                }
                return Ok(Some(item));
            }
            env.check_cancel()?;
            match &mut self.end {
                None => self.take_batch()?,
                Some(End::Done) => return Ok(None),
                Some(End::Failed(error)) => return Err(error.clone()),
                Some(End::Elsewhere(Rest::Placed(rest))) => return rest.next_placed(env),
                Some(End::Elsewhere(Rest::Handed(rest))) => match rest.next_handed(env)? {
                    Handed::Item(hand, item) => {
                        return Ok(Some(Placed { hand, ..Placed::nowhere(item) }));
                    }
                    Handed::Nothing(_) => {}
                    Handed::End => return Ok(None),
                },
            }
        }
    }
}

impl HandedItems for FarRows {
    fn next_handed(&mut self, env: &Env<'_>) -> Result<Handed, EvalError> {
        loop {
            match self.ready.front_mut().map(|next| &mut next.hand.rows) {
                // Told before the item, or a stretch would end elsewhere than where the rows are.
                Some(rows) if *rows > 1 => {
                    let before = std::mem::replace(rows, 1) - 1;
                    return Ok(Handed::Nothing(before as usize));
                }
                None if self.rows_after > 0 => {
                    return Ok(Handed::Nothing(std::mem::take(&mut self.rows_after)));
                }
                _ => {}
            }
            match &mut self.end {
                None if self.ready.is_empty() => {
                    env.check_cancel()?;
                    self.take_batch()?;
                }
                Some(End::Elsewhere(Rest::Handed(rest))) if self.ready.is_empty() => {
                    return rest.next_handed(env);
                }
                _ => {
                    let item = self.next_placed(env)?;
                    return Ok(item.map_or(Handed::End, |placed| Handed::Item(placed.hand, placed.item)));
                }
            }
        }
    }
}

impl Items for FarRows {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        Ok(self.next_placed(env)?.map(|placed| placed.item))
    }
}

impl Drop for FarRows {
    fn drop(&mut self) {
        if self.end.is_none() {
            let question = Question::Close { cursor: self.cursor };
            self.cx.service.links().tell(self.server, question.to_bytes());
        }
    }
}

/// What of `range` comes after `position` in this order.
fn after(range: &KeyRange, position: &PrimaryKey, order: KeyOrder) -> KeyRange {
    let bound = KeyBound::Excluded(position.clone());
    match order {
        KeyOrder::Descending => KeyRange { start: range.start.clone(), end: bound },
        KeyOrder::Any | KeyOrder::Ascending => KeyRange { start: bound, end: range.end.clone() },
    }
}
