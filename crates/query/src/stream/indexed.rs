//! Rows found by a secondary index; the rows of several shards are merged in its order.

use std::cmp::Ordering;
use std::collections::VecDeque;

use datum::key::bucket_of;
use datum::{Datum, KeyRange, Object, Text};
use reql::stream::Items;
use reql::{Env, EvalError, Order};
use shard::{IndexQuery, IndexRows, RowOrder, Shard};

use super::shapes::{IntersectingRows, NearestRows};
use crate::context::{Cx, RowCounter};
use crate::table::{
    BucketPosition, IndexItems, IndexRead, IndexSearch, KeyOrder, Placed, PlacedItems, StoredTable,
    are_interleaved, index_failed,
};

/// The rows of one shard.
pub(crate) struct ShardIndexRange {
    seen: RowCounter,
    table: StoredTable,
    name: Text,
    items: IndexItems,
    rows: PartRows,
    current: Option<(Datum, u64)>,
    /// Whether the rows are interleaved by bucket.
    interleaved: bool,
}

/// The rows, by the kind of read.
enum PartRows {
    Values(Box<IndexRows>),
    Intersecting(IntersectingRows),
    Nearest(NearestRows),
}

impl ShardIndexRange {
    /// The present rows of `shard` whose keys are in `range`.
    pub fn of(
        cx: &Cx,
        table: &StoredTable,
        shard: &Shard,
        range: KeyRange,
        read: &IndexRead,
        order: KeyOrder,
    ) -> Result<ShardIndexRange, EvalError> {
        let interleaved = are_interleaved(order, Some(read));
        let order = match order {
            KeyOrder::Any => RowOrder::Any,
            ordered => RowOrder::By(ordered.direction()),
        };
        let failed = |error| index_failed(table, &read.name, error);
        let shapes = |rows| shard.read_shapes(read.id, rows).map_err(failed);
        let rows = match &read.search {
            IndexSearch::Values(wanted) => {
                let (wanted, after, sorted_max) = (wanted.clone(), read.after.clone(), cx.array_limit);
                let query = IndexQuery { index: read.id, wanted, rows: range, after, order, sorted_max };
                PartRows::Values(Box::new(shard.read_index(&query).map_err(failed)?))
            }
            IndexSearch::Intersecting(shape) => {
                PartRows::Intersecting(IntersectingRows::new(shapes(range)?, shape.clone(), &cx.cancel)?)
            }
            IndexSearch::Nearest(bounds) => PartRows::Nearest(NearestRows::new(shapes(range)?, *bounds)),
        };
        let (seen, name, items) = (RowCounter::of_shard(cx, shard.activity()), read.name.clone(), read.items);
        Ok(ShardIndexRange { seen, table: table.clone(), name, items, rows, current: None, interleaved })
    }

    /// The number of rows left.
    pub fn count(mut self, env: &Env<'_>) -> Result<u64, EvalError> {
        if let PartRows::Values(rows) = self.rows {
            return rows.count().map_err(|error| index_failed(&self.table, &self.name, error));
        }
        let mut count = 0;
        while let Some(row) = self.row(env)? {
            count += row.times;
        }
        Ok(count)
    }

    /// The next item; a row occurs as often as it is wanted.
    pub fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            if let Some(item) = again(&mut self.current) {
                return Ok(Some(item));
            }
            let Some(row) = self.row(env)? else { return Ok(None) };
            self.current = Some((row.item, row.times));
        }
    }

    fn row(&mut self, env: &Env<'_>) -> Result<Option<Placed>, EvalError> {
        match &mut self.rows {
            PartRows::Values(rows) => {
                let row = rows.next().map_err(|error| index_failed(&self.table, &self.name, error))?;
                let Some(row) = row else { return Ok(None) };
                self.seen.rows(1);
                let item = of_items(self.items, || row.value(rows.index()), &row.row);
                let number = if self.interleaved { bucket_of(row.position.primary.as_bytes()) } else { 0 };
                let bucket = BucketPosition { number, rows: 1 };
                let (place, wanted, times) = (row.position, row.wanted, row.times);
                Ok(Some(Placed { item, place, wanted, times, bucket }))
            }
            PartRows::Intersecting(rows) => {
                let row = rows.next(env, &self.seen)?;
                Ok(row.map(|(row, times)| {
                    let item = of_items(self.items, || Datum::Null, &row);
                    Placed { times, ..Placed::unordered(item) }
                }))
            }
            PartRows::Nearest(rows) => {
                let found = rows.next(env, &self.seen)?;
                Ok(found.map(|found| {
                    let item = of_items(self.items, || Datum::Number(found.dist_m), &found.value);
                    Placed::unordered(item)
                }))
            }
        }
    }
}

fn of_items(items: IndexItems, value: impl FnOnce() -> Datum, row: &Object) -> Datum {
    match items {
        IndexItems::Rows => Datum::Object(row.clone()),
        IndexItems::Values => value(),
        IndexItems::Pairs => vec![value(), Datum::Object(row.clone())].into(),
    }
}

/// An item that occurs several times.
fn again(current: &mut Option<(Datum, u64)>) -> Option<Datum> {
    let (item, times) = current.as_mut().filter(|(_, times)| *times > 0)?;
    *times -= 1;
    Some(item.clone())
}

impl PlacedItems for ShardIndexRange {
    fn next_placed(&mut self, env: &Env<'_>) -> Result<Option<Placed>, EvalError> {
        self.row(env)
    }
}

/// The merged rows of several shards.
pub(crate) struct Indexed {
    // For each local shard, and for each other node, its rows and the next one of them.
    heads: Vec<(Box<dyn PlacedItems>, Option<Placed>)>,
    order: KeyOrder,
    current: Option<(Datum, u64)>,
}

impl Indexed {
    /// Merges `heads`, each of which is in this order.
    pub fn new(mut heads: Vec<Box<dyn PlacedItems>>, order: KeyOrder) -> Indexed {
        // Without order one head follows the other. Heads are taken from the end.
        if order == KeyOrder::Any {
            heads.reverse();
        }
        Indexed { heads: heads.into_iter().map(|head| (head, None)).collect(), order, current: None }
    }

    fn next_in_any_order(&mut self, env: &Env<'_>) -> Result<Option<Placed>, EvalError> {
        while let Some((head, _)) = self.heads.last_mut() {
            if let Some(row) = head.next_placed(env)? {
                return Ok(Some(row));
            }
            self.heads.pop();
        }
        Ok(None)
    }
}

impl PlacedItems for Indexed {
    fn next_placed(&mut self, env: &Env<'_>) -> Result<Option<Placed>, EvalError> {
        if self.order == KeyOrder::Any || self.heads.len() == 1 {
            return self.next_in_any_order(env);
        }
        let mut at = 0;
        while at < self.heads.len() {
            let (head, next) = &mut self.heads[at];
            if next.is_none() {
                *next = head.next_placed(env)?;
            }
            if next.is_none() {
                self.heads.swap_remove(at);
            } else {
                at += 1;
            }
        }
        let descending = self.order == KeyOrder::Descending;
        let place = |head: usize| self.heads[head].1.as_ref().map(|row| &row.place);
        let first = (0..self.heads.len()).min_by(|a, b| {
            let order = place(*a).cmp(&place(*b));
            if descending { order.reverse() } else { order }
        });
        Ok(first.and_then(|at| self.heads[at].1.take()))
    }
}

impl Items for Indexed {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            if let Some(item) = again(&mut self.current) {
                return Ok(Some(item));
            }
            env.check_cancel()?;
            let Some(row) = self.next_placed(env)? else { return Ok(None) };
            self.current = Some((row.item, row.times));
        }
    }
}

/// Sorted items without duplicates.
pub(crate) struct Distinct {
    items: Box<dyn Items>,
    last: Option<Datum>,
}

impl Distinct {
    /// `items` must be sorted.
    pub fn new(items: Box<dyn Items>) -> Distinct {
        Distinct { items, last: None }
    }
}

impl Items for Distinct {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            env.check_cancel()?;
            let Some(item) = self.items.next(env)? else { return Ok(None) };
            if self.last.as_ref() != Some(&item) {
                self.last = Some(item.clone());
                return Ok(Some(item));
            }
        }
    }
}

/// Rows in the order of their index values, and rows with equal values in another order.
pub(crate) struct Ties {
    pairs: Box<dyn Items>,
    orders: Vec<Order>,
    next: Option<(Datum, Datum)>,
    ready: VecDeque<Datum>,
}

impl Ties {
    /// The rows of `pairs` of index value and row; `orders` orders those with equal values.
    pub fn new(pairs: Box<dyn Items>, orders: Vec<Order>) -> Ties {
        Ties { pairs, orders, next: None, ready: VecDeque::new() }
    }

    fn pair(&mut self, env: &Env<'_>) -> Result<Option<(Datum, Datum)>, EvalError> {
        match self.pairs.next(env)? {
            Some(Datum::Array(pair)) => match &*pair {
                [value, row] => Ok(Some((value.clone(), row.clone()))),
                _ => Err(EvalError::internal("expected a pair of index value and row")),
            },
            Some(_) => Err(EvalError::internal("expected a pair of index value and row")),
            None => Ok(None),
        }
    }
}

impl Items for Ties {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        if let Some(row) = self.ready.pop_front() {
            return Ok(Some(row));
        }
        let first = match self.next.take() {
            Some(first) => Some(first),
            None => self.pair(env)?,
        };
        let Some((value, row)) = first else { return Ok(None) };
        let mut rows = vec![row];
        while let Some((next_value, row)) = self.pair(env)? {
            if next_value.cmp(&value) != Ordering::Equal {
                self.next = Some((next_value, row));
                break;
            }
            env.check_array(rows.len() + 1)?;
            rows.push(row);
        }
        let sorted = reql::sort(&rows.into(), &self.orders, env)?;
        self.ready.extend(sorted.into_vec());
        Ok(self.ready.pop_front())
    }
}
