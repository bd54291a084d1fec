//! Locates the parts of a range on this node and others, and starts reading them.

use std::collections::VecDeque;

use cluster::ServerId;
use datum::{Datum, KeyRange};
use reql::stream::Items;
use reql::{Env, EvalError, Transform};
use shard::Shard;

use super::bucketed_rows::{BucketedSteps, then};
use super::indexed::{Indexed, ShardIndexRange};
use super::interleave::Interleaved;
use super::rows::{RowSource, Rows, ShardRange};
use super::steps::stepped;
use crate::context::Cx;
use crate::remote::{
    LeaderConfirmations, RemoteRows, RemoteSource, ReopenedRows, RetryBudget, Target, joined, refreshed,
    unreadable,
};
use crate::routing::ReadMode;
use crate::table::{
    BucketedItem, BucketedItems, KeyOrder, PlacedItems, StoredTable, TableRef, access, are_interleaved,
    read_failed,
};

/// A part of a range, and where it is.
pub(crate) enum FoundRange<T> {
    /// On this node: its rows, as of now.
    Local(T),
    /// On another node.
    Remote { server: ServerId, range: KeyRange },
}

impl RowSource {
    /// The parts of the range, in its order.
    pub fn find(&self, cx: &Cx, budget: &mut RetryBudget) -> Result<Vec<FoundRange<ShardRange>>, EvalError> {
        let mut parts = self.find_with(cx, budget, |_, shard, range| {
            ShardRange::of(shard, range).map_err(|error| read_failed(&error))
        })?;
        if self.order == KeyOrder::Descending {
            parts.reverse();
        }
        Ok(parts)
    }

    /// The parts of the range, with rows found by the index.
    pub fn find_by_index(
        &self,
        cx: &Cx,
        budget: &mut RetryBudget,
    ) -> Result<Vec<FoundRange<ShardIndexRange>>, EvalError> {
        let Some(index) = &self.index else { return Err(EvalError::internal("no index")) };
        self.find_with(cx, budget, |table, shard, range| {
            ShardIndexRange::of(cx, table, shard, range, index, self.order)
        })
    }

    /// The parts of the range; `local` opens the parts on this node. While a part has no replica that may be read, it
    /// tries again as long as `budget` lasts.
    fn find_with<T>(
        &self,
        cx: &Cx,
        budget: &mut RetryBudget,
        local: impl Fn(&StoredTable, &Shard, KeyRange) -> Result<T, EvalError>,
    ) -> Result<Vec<FoundRange<T>>, EvalError> {
        access::check_stream_read(cx, &TableRef::Stored(self.table.clone()))?;
        let mut table = self.table.clone();
        loop {
            match self.locate(cx, &table, &local)? {
                Ok(parts) => return Ok(parts),
                Err(unavailable) if budget.wait(cx, &table, &unavailable)? => {
                    table = refreshed(cx, &table, budget)?
                }
                Err(unavailable) => return Err(unreadable(&unavailable, table.read_mode)),
            }
        }
    }

    /// The present parts, or a range without a replica that may be read.
    fn locate<T>(
        &self,
        cx: &Cx,
        table: &StoredTable,
        local: &impl Fn(&StoredTable, &Shard, KeyRange) -> Result<T, EvalError>,
    ) -> Result<Result<Vec<FoundRange<T>>, KeyRange>, EvalError> {
        let mut parts = Vec::new();
        let mut confirmations = LeaderConfirmations::new(table.read_mode);
        for (shard, range) in table.handle.covering(&self.range) {
            match cx.service.reader(shard, table.read_mode) {
                Some(Target::Local(shard)) if !confirmations.may_read(shard) => return Ok(Err(range)),
                Some(Target::Local(shard)) => {
                    let generation = shard.rows_generation();
                    let part = local(table, shard, range.clone())?;
                    // The parts of the range; `local` opens the local ones. While a part has no replica that may be
                    // read, it tries again as long as `budget` lasts.
                    if !shard.is_current(generation) && table.read_mode != ReadMode::DebugDirect {
                        return Ok(Err(range));
                    }
                    parts.push(FoundRange::Local(part));
                }
                // Each shard is separate where rows are interleaved: the position in an index is only known for one
                // shard at a time.
                Some(Target::Remote(server))
                    if self.index.is_some() && are_interleaved(self.order, self.index.as_deref()) =>
                {
                    parts.push(FoundRange::Remote { server, range });
                }
                Some(Target::Remote(server)) => push_remote(&mut parts, server, range),
                None => return Ok(Err(range)),
            }
        }
        Ok(Ok(parts))
    }

    /// Starts reading.
    pub fn open(&self, cx: &Cx) -> Result<Box<dyn Items>, EvalError> {
        self.open_stepped(cx, Vec::new(), Vec::new())
    }

    /// Starts reading. `steps`, which must be closed, are run where the rows are, and `later` on this thread.
    pub fn open_stepped(
        &self,
        cx: &Cx,
        steps: Vec<Transform>,
        later: Vec<Transform>,
    ) -> Result<Box<dyn Items>, EvalError> {
        let budget = RetryBudget::new();
        let interleaved = are_interleaved(self.order, self.index.as_deref());
        Ok(match (&self.index, interleaved) {
            (Some(_), true) => {
                let rows = self.open_indexed(cx)?;
                let rows = Box::new(BucketedSteps::new(rows, steps));
                Box::new(Interleaved::new(then(rows, later)))
            }
            (Some(_), false) => stepped(stepped(Box::new(self.open_indexed(cx)?), steps), later),
            (None, true) => {
                let rows = Box::new(self.open_bucketed(cx, steps, budget)?);
                Box::new(Interleaved::new(then(rows, later)))
            }
            (None, false) => stepped(self.open_ordered(cx, steps, budget)?, later),
        })
    }

    fn open_indexed(&self, cx: &Cx) -> Result<Indexed, EvalError> {
        self.with_present_index(cx, |rows| rows.open_index(cx, RetryBudget::new()))
    }

    /// Opens the index; all shards have opened it, or the read has failed, before the first row is returned.
    fn open_index(&self, cx: &Cx, mut budget: RetryBudget) -> Result<Indexed, EvalError> {
        let mut heads: Vec<Box<dyn PlacedItems>> = Vec::new();
        for found in self.find_by_index(cx, &mut budget)? {
            heads.push(match found {
                FoundRange::Local(part) => Box::new(part),
                FoundRange::Remote { server, range } => {
                    Box::new(self.open_remote(cx, server, range, Vec::new(), budget.remaining())?)
                }
            });
        }
        heads.iter_mut().try_for_each(|head| head.begin())?;
        Ok(Indexed::new(heads, self.order))
    }

    /// By the primary key, in the order of the query.
    fn open_ordered(
        &self,
        cx: &Cx,
        steps: Vec<Transform>,
        budget: RetryBudget,
    ) -> Result<Box<dyn Items>, EvalError> {
        let local = |rows: Rows, steps| stepped(Box::new(rows.at_most(self.most)), steps);
        let remote = |rows| Box::new(rows) as Box<dyn Items>;
        let mut parts_opened = self.parts_opened(cx, &steps, budget, local, remote)?;
        match (parts_opened.len(), parts_opened.pop_front()) {
            (1, Some(only)) => Ok(only),
            (_, first) => Ok(Box::new(Chain(first.into_iter().chain(parts_opened).collect()))),
        }
    }

    /// Opens a stream of the rows in the order of their primary keys, each with its bucket.
    fn open_bucketed(
        &self,
        cx: &Cx,
        steps: Vec<Transform>,
        budget: RetryBudget,
    ) -> Result<Chain<dyn BucketedItems>, EvalError> {
        let local = |rows: Rows, steps| Box::new(BucketedSteps::new(rows, steps)) as Box<dyn BucketedItems>;
        let remote = |rows| Box::new(rows) as Box<dyn BucketedItems>;
        self.parts_opened(cx, &steps, budget, local, remote).map(Chain)
    }

    /// Opens the parts in the order of their keys; adjacent local parts become one.
    fn parts_opened<T: ?Sized>(
        &self,
        cx: &Cx,
        steps: &[Transform],
        mut budget: RetryBudget,
        local: impl Fn(Rows, Vec<Transform>) -> Box<T>,
        remote: impl Fn(RemoteRows) -> Box<T>,
    ) -> Result<VecDeque<Box<T>>, EvalError> {
        let mut parts_opened = VecDeque::new();
        let mut parts = Vec::new();
        let end_local = |parts: &mut Vec<ShardRange>, parts_opened: &mut VecDeque<Box<T>>| {
            if !parts.is_empty() {
                let rows = Rows::new(cx, std::mem::take(parts), self.order.direction());
                parts_opened.push_back(local(rows, steps.to_vec()));
            }
        };
        for found in self.find(cx, &mut budget)? {
            match found {
                FoundRange::Local(part) => parts.push(part),
                FoundRange::Remote { server, range } => {
                    end_local(&mut parts, &mut parts_opened);
                    parts_opened.push_back(remote(self.open_remote(
                        cx,
                        server,
                        range,
                        steps.to_vec(),
                        budget.remaining(),
                    )?));
                }
            }
        }
        end_local(&mut parts, &mut parts_opened);
        Ok(parts_opened)
    }

    fn open_remote(
        &self,
        cx: &Cx,
        server: ServerId,
        range: KeyRange,
        steps: Vec<Transform>,
        budget: RetryBudget,
    ) -> Result<RemoteRows, EvalError> {
        let (table, order, index) = (self.table.clone(), self.order, self.index.clone());
        let source = RemoteSource { table, range, order, index, steps, is_to_write: self.is_to_write };
        RemoteRows::open(cx, server, source, reopen, budget)
    }
}

/// Adds a remote part, merged with the last one if they are adjacent and on the same server.
fn push_remote<T>(parts: &mut Vec<FoundRange<T>>, server: ServerId, range: KeyRange) {
    if let Some(FoundRange::Remote { server: known, range: last }) = parts.last_mut()
        && *known == server
        && let Some(both) = joined(last, &range)
    {
        *last = both;
        return;
    }
    parts.push(FoundRange::Remote { server, range });
}

/// Sequences one after the other.
struct Chain<T: ?Sized>(VecDeque<Box<T>>);

impl Items for Chain<dyn Items> {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        while let Some(first) = self.0.front_mut() {
            if let Some(item) = first.next(env)? {
                return Ok(Some(item));
            }
            self.0.pop_front();
        }
        Ok(None)
    }
}

impl BucketedItems for Chain<dyn BucketedItems> {
    fn next_bucketed(&mut self, env: &Env<'_>) -> Result<BucketedItem, EvalError> {
        while let Some(first) = self.0.front_mut() {
            match first.next_bucketed(env)? {
                BucketedItem::End => drop(self.0.pop_front()),
                other => return Ok(other),
            }
        }
        Ok(BucketedItem::End)
    }
}

/// Opens a range that another node had when it was located, and does not have any more.
fn reopen(cx: &Cx, source: RemoteSource, budget: RetryBudget) -> Result<ReopenedRows, EvalError> {
    let RemoteSource { table, range, order, index, steps, is_to_write } = source;
    let rows = RowSource { table, range, order, index, most: None, is_to_write };
    match rows.index {
        Some(_) => Ok(ReopenedRows::Placed(Box::new(rows.open_index(cx, budget)?))),
        None => Ok(ReopenedRows::Bucketed(Box::new(rows.open_bucketed(cx, steps, budget)?))),
    }
}
