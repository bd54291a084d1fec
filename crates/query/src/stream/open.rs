//! Finding the parts of a range, on this node and others, and beginning to read them.

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

/// A part of a range, and who has it.
pub(crate) enum FoundRange<T> {
    /// This node: its rows, as of this moment.
    Local(T),
    /// Another one.
    Remote {
        /// Which.
        server: ServerId,
        /// The part of the range.
        range: KeyRange,
    },
}

impl RowSource {
    /// The parts of the range in the order of the primary keys.
    pub fn find(&self, cx: &Cx, budget: &mut RetryBudget) -> Result<Vec<FoundRange<ShardRange>>, EvalError> {
        let mut parts = self.find_with(cx, budget, |_, shard, range| {
            ShardRange::of(shard, range).map_err(|error| read_failed(&error))
        })?;
        if self.order == KeyOrder::Descending {
            parts.reverse();
        }
        Ok(parts)
    }

    /// The parts of the range where rows are found by the table's index.
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

    /// The parts of the range, those that are near as `near` makes them. Looks again for as long as
    /// `budget` lasts while a part has no replica that may be read.
    fn find_with<T>(
        &self,
        cx: &Cx,
        budget: &mut RetryBudget,
        near: impl Fn(&StoredTable, &Shard, KeyRange) -> Result<T, EvalError>,
    ) -> Result<Vec<FoundRange<T>>, EvalError> {
        access::check_stream_read(cx, &TableRef::Stored(self.table.clone()))?;
        let mut table = self.table.clone();
        loop {
            match self.look(cx, &table, &near)? {
                Ok(parts) => return Ok(parts),
                Err(lost) if budget.wait(cx, &table, &lost)? => table = refreshed(cx, &table, budget)?,
                Err(lost) => return Err(unreadable(&lost, table.read_mode)),
            }
        }
    }

    /// The parts as they are now, or one that nobody is known to have.
    fn look<T>(
        &self,
        cx: &Cx,
        table: &StoredTable,
        near: &impl Fn(&StoredTable, &Shard, KeyRange) -> Result<T, EvalError>,
    ) -> Result<Result<Vec<FoundRange<T>>, KeyRange>, EvalError> {
        let mut parts = Vec::new();
        let mut confirmations = LeaderConfirmations::new(table.read_mode);
        for (shard, range) in table.handle.covering(&self.range) {
            match cx.service.reader(shard, table.read_mode) {
                Some(Target::Local(shard)) if !confirmations.may_read(shard) => return Ok(Err(range)),
                Some(Target::Local(shard)) => {
                    let generation = shard.rows_generation();
                    let part = near(table, shard, range.clone())?;
                    // Looked at afterwards: rows that are taken away meanwhile are not missing.
                    if !shard.is_current(generation) && table.read_mode != ReadMode::DebugDirect {
                        return Ok(Err(range));
                    }
                    parts.push(FoundRange::Local(part));
                }
                // Rows without an order come shard after shard: how far an index was read is known of one at a time.
                Some(Target::Remote(server))
                    if self.index.is_some() && are_interleaved(self.order, self.index.as_deref()) =>
                {
                    parts.push(FoundRange::Remote { server, range });
                }
                Some(Target::Remote(server)) => push_far(&mut parts, server, range),
                None => return Ok(Err(range)),
            }
        }
        Ok(Ok(parts))
    }

    /// Begins to read.
    pub fn open(&self, cx: &Cx) -> Result<Box<dyn Items>, EvalError> {
        self.open_stepped(cx, Vec::new(), Vec::new())
    }

    /// Begins to read; items are what `steps`, which are closed, make of the rows where they are, and `later` of
    /// that here.
    pub fn open_stepped(
        &self,
        cx: &Cx,
        steps: Vec<Transform>,
        later: Vec<Transform>,
    ) -> Result<Box<dyn Items>, EvalError> {
        let budget = RetryBudget::new();
        let dealt = are_interleaved(self.order, self.index.as_deref());
        Ok(match (&self.index, dealt) {
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
        self.by_present_index(cx, |rows| rows.open_index(cx, RetryBudget::new()))
    }

    /// By this very index. All shards have it, or have failed, before any row is given out.
    fn open_index(&self, cx: &Cx, mut budget: RetryBudget) -> Result<Indexed, EvalError> {
        let mut heads: Vec<Box<dyn PlacedItems>> = Vec::new();
        for found in self.find_by_index(cx, &mut budget)? {
            heads.push(match found {
                FoundRange::Local(part) => Box::new(part),
                FoundRange::Remote { server, range } => {
                    Box::new(self.open_far(cx, server, range, Vec::new(), budget.remaining())?)
                }
            });
        }
        heads.iter_mut().try_for_each(|head| head.begin())?;
        Ok(Indexed::new(heads, self.order))
    }

    /// By the primary key, in the order that was asked for.
    fn open_ordered(
        &self,
        cx: &Cx,
        steps: Vec<Transform>,
        budget: RetryBudget,
    ) -> Result<Box<dyn Items>, EvalError> {
        let near = |rows: Rows, steps| stepped(Box::new(rows.at_most(self.most)), steps);
        let far = |rows| Box::new(rows) as Box<dyn Items>;
        let mut stages = self.stages(cx, &steps, budget, near, far)?;
        match (stages.len(), stages.pop_front()) {
            (1, Some(only)) => Ok(only),
            (_, first) => Ok(Box::new(Chain(first.into_iter().chain(stages).collect()))),
        }
    }

    /// By the primary key, with the hand of each row, which counts where there is no order.
    fn open_bucketed(
        &self,
        cx: &Cx,
        steps: Vec<Transform>,
        budget: RetryBudget,
    ) -> Result<Chain<dyn BucketedItems>, EvalError> {
        let near = |rows: Rows, steps| Box::new(BucketedSteps::new(rows, steps)) as Box<dyn BucketedItems>;
        let far = |rows| Box::new(rows) as Box<dyn BucketedItems>;
        self.stages(cx, &steps, budget, near, far).map(Chain)
    }

    /// The parts in the order of their keys, those that are near and neighbours as one.
    fn stages<T: ?Sized>(
        &self,
        cx: &Cx,
        steps: &[Transform],
        mut budget: RetryBudget,
        near: impl Fn(Rows, Vec<Transform>) -> Box<T>,
        far: impl Fn(RemoteRows) -> Box<T>,
    ) -> Result<VecDeque<Box<T>>, EvalError> {
        let mut stages = VecDeque::new();
        let mut parts = Vec::new();
        let end_near = |parts: &mut Vec<ShardRange>, stages: &mut VecDeque<Box<T>>| {
            if !parts.is_empty() {
                let rows = Rows::new(cx, std::mem::take(parts), self.order.direction());
                stages.push_back(near(rows, steps.to_vec()));
            }
        };
        for found in self.find(cx, &mut budget)? {
            match found {
                FoundRange::Local(part) => parts.push(part),
                FoundRange::Remote { server, range } => {
                    end_near(&mut parts, &mut stages);
                    stages.push_back(far(self.open_far(
                        cx,
                        server,
                        range,
                        steps.to_vec(),
                        budget.remaining(),
                    )?));
                }
            }
        }
        end_near(&mut parts, &mut stages);
        Ok(stages)
    }

    fn open_far(
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

/// Adds a far part, to the last one where they are neighbours of one server.
fn push_far<T>(parts: &mut Vec<FoundRange<T>>, server: ServerId, range: KeyRange) {
    if let Some(FoundRange::Remote { server: known, range: last }) = parts.last_mut()
        && *known == server
        && let Some(both) = joined(last, &range)
    {
        *last = both;
        return;
    }
    parts.push(FoundRange::Remote { server, range });
}

/// One sequence after the other.
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

/// Begins to read what another node was asked for and does not have any more.
fn reopen(cx: &Cx, source: RemoteSource, budget: RetryBudget) -> Result<ReopenedRows, EvalError> {
    let RemoteSource { table, range, order, index, steps, is_to_write } = source;
    let rows = RowSource { table, range, order, index, most: None, is_to_write };
    match rows.index {
        Some(_) => Ok(ReopenedRows::Placed(Box::new(rows.open_index(cx, budget)?))),
        None => Ok(ReopenedRows::Bucketed(Box::new(rows.open_bucketed(cx, steps, budget)?))),
    }
}
