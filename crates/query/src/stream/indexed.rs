//! Rows found by a secondary index: those of each shard in the order of the index, merged.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering as Memory;

use datum::{Datum, Text};
use reql::stream::Items;
use reql::{Env, EvalError, Order};
use shard::{Bounds, IndexDef, IndexError, IndexId, IndexQuery, IndexRow, IndexRows, RowOrder};

use super::rows::KeyOrder;
use crate::access::{self, Need, Place};
use crate::context::Cx;
use crate::failure::index_failed;
use crate::service::Service;
use crate::table::{StoredTable, TableRef};

/// What is read by an index. Plain data.
#[derive(Clone)]
pub(crate) struct IndexRead {
    /// The index.
    pub id: IndexId,
    /// Its name, for messages.
    pub name: Text,
    /// The values whose rows are wanted, and how many times each.
    pub wanted: Arc<[(Bounds, u32)]>,
    /// What is wanted of the rows.
    pub items: IndexItems,
}

/// What an item of a sequence by an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexItems {
    /// The row.
    Rows,
    /// The index value.
    Values,
    /// An array of the index value and the row.
    Pairs,
}

/// The rows of one shard.
pub(crate) struct IndexPart {
    service: Arc<Service>,
    table: StoredTable,
    name: Text,
    items: IndexItems,
    rows: IndexRows,
    current: Option<(Datum, u64)>,
}

impl IndexRead {
    /// The rows of each shard, as they are now.
    pub fn parts(&self, cx: &Cx, table: &StoredTable, order: KeyOrder) -> Result<Vec<IndexPart>, EvalError> {
        access::check(cx, Need::Read, Place::of_table(&TableRef::Stored(table.clone())))?;
        let order = match order {
            KeyOrder::Any => RowOrder::Any,
            ordered => RowOrder::By(ordered.direction()),
        };
        let query =
            IndexQuery { index: self.id, wanted: self.wanted.clone(), order, sorted_max: cx.array_limit };
        let part = |shard: &cluster::ShardHandle| {
            Ok(IndexPart {
                service: cx.service.clone(),
                table: table.clone(),
                name: self.name.clone(),
                items: self.items,
                rows: shard.read_index(&query)?,
                current: None,
            })
        };
        let parts: Result<Vec<_>, IndexError> = table.handle.shards().iter().map(part).collect();
        parts.map_err(|error| index_failed(table, &self.name, error))
    }

    /// Begins to read.
    pub fn open(&self, cx: &Cx, table: &StoredTable, order: KeyOrder) -> Result<Indexed, EvalError> {
        let parts = self.parts(cx, table, order)?;
        Ok(Indexed { heads: parts.into_iter().map(|part| (part, None)).collect(), order, current: None })
    }
}

impl IndexPart {
    /// The number of rows left.
    pub fn count(self) -> Result<u64, EvalError> {
        let (table, name) = (self.table, self.name);
        self.rows.count().map_err(|error| index_failed(&table, &name, error))
    }

    /// The next item.
    pub fn next(&mut self) -> Result<Option<Datum>, EvalError> {
        loop {
            if let Some(item) = again(&mut self.current) {
                return Ok(Some(item));
            }
            let Some(row) = self.row()? else { return Ok(None) };
            self.current = Some((self.item(&row), row.times));
        }
    }

    fn row(&mut self) -> Result<Option<IndexRow>, EvalError> {
        let row = self.rows.next().map_err(|error| index_failed(&self.table, &self.name, error))?;
        if row.is_some() {
            self.service.counters().rows_read.fetch_add(1, Memory::Relaxed);
        }
        Ok(row)
    }

    fn item(&self, row: &IndexRow) -> Datum {
        match self.items {
            IndexItems::Rows => Datum::Object(row.row.clone()),
            IndexItems::Values => row.value(self.rows.index()),
            IndexItems::Pairs => vec![row.value(self.rows.index()), Datum::Object(row.row.clone())].into(),
        }
    }
}

/// An item that is to be given some times more.
fn again(current: &mut Option<(Datum, u64)>) -> Option<Datum> {
    let (item, times) = current.as_mut().filter(|(_, times)| *times > 0)?;
    *times -= 1;
    Some(item.clone())
}

/// Rows of all shards, being read.
pub(crate) struct Indexed {
    // Each shard, and in order its next row.
    heads: Vec<(IndexPart, Option<IndexRow>)>,
    order: KeyOrder,
    current: Option<(Datum, u64)>,
}

impl Indexed {
    /// The next row and the shard it is of.
    fn row(&mut self) -> Result<Option<(usize, IndexRow)>, EvalError> {
        if self.order == KeyOrder::Any || self.heads.len() == 1 {
            while let Some((part, _)) = self.heads.last_mut() {
                if let Some(row) = part.row()? {
                    return Ok(Some((self.heads.len() - 1, row)));
                }
                if self.heads.len() == 1 {
                    return Ok(None);
                }
                self.heads.pop();
            }
            return Ok(None);
        }
        let mut at = 0;
        while at < self.heads.len() {
            let (part, head) = &mut self.heads[at];
            if head.is_none() {
                *head = part.row()?;
            }
            if head.is_none() {
                self.heads.swap_remove(at);
            } else {
                at += 1;
            }
        }
        let descending = self.order == KeyOrder::Descending;
        let place = |head: &(IndexPart, Option<IndexRow>)| head.1.as_ref().map(|row| row.place.clone());
        let first = (0..self.heads.len()).min_by(|a, b| {
            let order = place(&self.heads[*a]).cmp(&place(&self.heads[*b]));
            if descending { order.reverse() } else { order }
        });
        Ok(first.and_then(|at| Some((at, self.heads[at].1.take()?))))
    }
}

impl Items for Indexed {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            if let Some(item) = again(&mut self.current) {
                return Ok(Some(item));
            }
            env.check_cancel()?;
            let Some((shard, row)) = self.row()? else { return Ok(None) };
            self.current = Some((self.heads[shard].0.item(&row), row.times));
        }
    }
}

/// Sorted items, equal ones once.
pub(crate) struct Distinct {
    items: Box<dyn Items>,
    last: Option<Datum>,
}

impl Distinct {
    /// Each of `items`, which are sorted, once.
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

/// The values an index has for rows that were not found by it.
pub(crate) struct ValuesOf {
    rows: Box<dyn Items>,
    index: IndexDef,
    ready: VecDeque<Datum>,
}

impl ValuesOf {
    /// The values that `index` has for `rows`.
    pub fn new(rows: Box<dyn Items>, index: IndexDef) -> ValuesOf {
        ValuesOf { rows, index, ready: VecDeque::new() }
    }
}

impl Items for ValuesOf {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            if let Some(value) = self.ready.pop_front() {
                return Ok(Some(value));
            }
            env.check_cancel()?;
            let Some(row) = self.rows.next(env)? else { return Ok(None) };
            if let Datum::Object(row) = row {
                self.ready.extend(self.index.values(&row).into_iter().map(|(_, value)| value));
            }
        }
    }
}

/// Rows that come as pairs with their index values, in the order of those, those of one value
/// in an order of their own.
pub(crate) struct Ties {
    pairs: Box<dyn Items>,
    orders: Vec<Order>,
    next: Option<(Datum, Datum)>,
    ready: VecDeque<Datum>,
}

impl Ties {
    /// The rows of `pairs`, ordered among those of one index value by `orders`.
    pub fn new(pairs: Box<dyn Items>, orders: Vec<Order>) -> Ties {
        Ties { pairs, orders, next: None, ready: VecDeque::new() }
    }

    fn pair(&mut self, env: &Env<'_>) -> Result<Option<(Datum, Datum)>, EvalError> {
        match self.pairs.next(env)? {
            Some(Datum::Array(pair)) => match &*pair {
                [value, row] => Ok(Some((value.clone(), row.clone()))),
                _ => Err(EvalError::internal("a pair is not one")),
            },
            Some(_) => Err(EvalError::internal("a pair is not one")),
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
