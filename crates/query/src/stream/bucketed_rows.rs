//! Rows and items after some steps, each with its bucket.

use std::collections::VecDeque;

use datum::Datum;
use reql::{Env, EvalError, Flow, Transform};

use super::indexed::Indexed;
use super::rows::Rows;
use crate::table::{BucketPosition, BucketedItem, BucketedItems, PlacedItems};

/// Rows with their buckets.
pub(crate) trait BucketedRows: Send {
    /// The next row, its bucket, and how many times it is in the sequence.
    fn next_row(&mut self, env: &Env<'_>) -> Result<Option<(BucketPosition, Datum, u64)>, EvalError>;
}

impl BucketedRows for Rows {
    fn next_row(&mut self, _env: &Env<'_>) -> Result<Option<(BucketPosition, Datum, u64)>, EvalError> {
        Ok(Rows::next_row(self)?.map(|row| (BucketPosition { number: self.bucket(), rows: 1 }, row, 1)))
    }
}

impl BucketedRows for Indexed {
    fn next_row(&mut self, env: &Env<'_>) -> Result<Option<(BucketPosition, Datum, u64)>, EvalError> {
        Ok(self.next_placed(env)?.map(|placed| (placed.bucket, placed.item, placed.times)))
    }
}

/// Rows after some steps.
pub(super) struct BucketedSteps<R> {
    rows: R,
    steps: Vec<Transform>,
    ready: VecDeque<(BucketPosition, Datum)>,
}

impl<R> BucketedSteps<R> {
    /// `rows` after `steps`.
    pub fn new(rows: R, steps: Vec<Transform>) -> BucketedSteps<R> {
        BucketedSteps { rows, steps, ready: VecDeque::new() }
    }
}

impl<R: BucketedRows> BucketedItems for BucketedSteps<R> {
    fn next_bucketed(&mut self, env: &Env<'_>) -> Result<BucketedItem, EvalError> {
        if let Some((bucket, item)) = self.ready.pop_front() {
            return Ok(BucketedItem::Item(bucket, item));
        }
        let Some((mut bucket, row, times)) = self.rows.next_row(env)? else { return Ok(BucketedItem::End) };
        let (rows, ready) = (bucket.rows, &mut self.ready);
        if self.steps.is_empty() && times == 1 {
            return Ok(BucketedItem::Item(bucket, row));
        }
        for _ in 0..times {
            reql::run(&self.steps, row.clone(), env, &mut |item| {
                ready.push_back((bucket, item));
                bucket.rows = 0;
                Ok(Flow::Continue)
            })?;
        }
        Ok(first_or_skipped(ready, rows))
    }
}

/// Items after some more steps.
pub(super) struct BucketedThen {
    items: Box<dyn BucketedItems>,
    steps: Vec<Transform>,
    ready: VecDeque<(BucketPosition, Datum)>,
}

/// `items` after `steps`.
pub(super) fn then(items: Box<dyn BucketedItems>, steps: Vec<Transform>) -> Box<dyn BucketedItems> {
    if steps.is_empty() {
        return items;
    }
    Box::new(BucketedThen { items, steps, ready: VecDeque::new() })
}

impl BucketedItems for BucketedThen {
    fn next_bucketed(&mut self, env: &Env<'_>) -> Result<BucketedItem, EvalError> {
        if let Some((bucket, item)) = self.ready.pop_front() {
            return Ok(BucketedItem::Item(bucket, item));
        }
        let (mut bucket, item) = match self.items.next_bucketed(env)? {
            BucketedItem::Item(bucket, item) => (bucket, item),
            other => return Ok(other),
        };
        let (rows, ready) = (bucket.rows, &mut self.ready);
        reql::run(&self.steps, item, env, &mut |item| {
            ready.push_back((bucket, item));
            bucket.rows = 0;
            Ok(Flow::Continue)
        })?;
        Ok(first_or_skipped(ready, rows))
    }
}

/// The first of the items made from `rows` rows.
fn first_or_skipped(ready: &mut VecDeque<(BucketPosition, Datum)>, rows: u32) -> BucketedItem {
    ready
        .pop_front()
        .map_or(BucketedItem::Skipped(rows as usize), |(bucket, item)| BucketedItem::Item(bucket, item))
}
