//! Finding the parts of a range, on this node and others, and beginning to read them.

use std::collections::VecDeque;

use cluster::ServerId;
use datum::{Datum, KeyRange};
use reql::stream::Items;
use reql::{Env, EvalError, Transform};
use shard::Shard;

use super::deal::Dealt;
use super::handed::{HandedSteps, then};
use super::indexed::{IndexPart, Indexed};
use super::rows::{RowPart, RowSource, Rows};
use super::steps::stepped;
use crate::access;
use crate::context::Cx;
use crate::failure::read_failed;
use crate::far::{FarRows, FarSource, Fitness, Patience, Rest, Site, fresh, joined, unreadable};
use crate::order::{Handed, HandedItems, KeyOrder, PlacedItems, are_dealt};
use crate::read_mode::ReadMode;
use crate::table::{StoredTable, TableRef};

/// A part of a range, and who has it.
pub(crate) enum Found<T> {
    /// This node: its rows, as of this moment.
    Near(T),
    /// Another one.
    Far {
        /// Which.
        server: ServerId,
        /// The part of the range.
        range: KeyRange,
    },
}

impl RowSource {
    /// The parts of the range in the order of the primary keys.
    pub fn find(&self, cx: &Cx, patience: &mut Patience) -> Result<Vec<Found<RowPart>>, EvalError> {
        let mut parts = self.find_with(cx, patience, |_, shard, range| {
            RowPart::of(shard, range).map_err(|error| read_failed(&error))
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
        patience: &mut Patience,
    ) -> Result<Vec<Found<IndexPart>>, EvalError> {
        let Some(index) = &self.index else { return Err(EvalError::internal("no index")) };
        self.find_with(cx, patience, |table, shard, range| {
            IndexPart::of(cx, table, shard, range, index, self.order)
        })
    }

    /// The parts of the range, those that are near as `near` makes them. Looks again for as long as
    /// `patience` lasts while a part has no replica that may be read.
    fn find_with<T>(
        &self,
        cx: &Cx,
        patience: &mut Patience,
        near: impl Fn(&StoredTable, &Shard, KeyRange) -> Result<T, EvalError>,
    ) -> Result<Vec<Found<T>>, EvalError> {
        access::check_streamed(cx, &TableRef::Stored(self.table.clone()))?;
        let mut table = self.table.clone();
        loop {
            match self.look(cx, &table, &near)? {
                Ok(parts) => return Ok(parts),
                Err(lost) if patience.wait(cx, &table, &lost)? => table = fresh(cx, &table, patience)?,
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
    ) -> Result<Result<Vec<Found<T>>, KeyRange>, EvalError> {
        let mut parts = Vec::new();
        let mut fitness = Fitness::new(table.read_mode);
        for (shard, range) in table.handle.covering(&self.range) {
            match cx.service.reader(shard, table.read_mode) {
                Some(Site::Near(shard)) if !fitness.allows(shard) => return Ok(Err(range)),
                Some(Site::Near(shard)) => {
                    let generation = shard.rows_generation();
                    let part = near(table, shard, range.clone())?;
                    // Looked at afterwards: rows that are taken away meanwhile are not missing.
                    if !shard.is_current(generation) && table.read_mode != ReadMode::DebugDirect {
                        return Ok(Err(range));
                    }
                    parts.push(Found::Near(part));
                }
                // Rows without an order come shard after shard: how far an index was read is known of one at a time.
                Some(Site::Far(server))
                    if self.index.is_some() && are_dealt(self.order, self.index.as_deref()) =>
                {
                    parts.push(Found::Far { server, range });
                }
                Some(Site::Far(server)) => push_far(&mut parts, server, range),
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
        let patience = Patience::new();
        let dealt = are_dealt(self.order, self.index.as_deref());
        Ok(match (&self.index, dealt) {
            (Some(_), true) => {
                let rows = self.open_indexed(cx)?;
                let rows = Box::new(HandedSteps::new(rows, steps));
                Box::new(Dealt::new(then(rows, later)))
            }
            (Some(_), false) => stepped(stepped(Box::new(self.open_indexed(cx)?), steps), later),
            (None, true) => {
                let rows = Box::new(self.open_handed(cx, steps, patience)?);
                Box::new(Dealt::new(then(rows, later)))
            }
            (None, false) => stepped(self.open_ordered(cx, steps, patience)?, later),
        })
    }

    fn open_indexed(&self, cx: &Cx) -> Result<Indexed, EvalError> {
        self.by_present_index(cx, |rows| rows.open_index(cx, Patience::new()))
    }

    /// By this very index. All shards have it, or have failed, before any row is given out.
    fn open_index(&self, cx: &Cx, mut patience: Patience) -> Result<Indexed, EvalError> {
        let mut heads: Vec<Box<dyn PlacedItems>> = Vec::new();
        for found in self.find_by_index(cx, &mut patience)? {
            heads.push(match found {
                Found::Near(part) => Box::new(part),
                Found::Far { server, range } => {
                    Box::new(self.open_far(cx, server, range, Vec::new(), patience.rest())?)
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
        patience: Patience,
    ) -> Result<Box<dyn Items>, EvalError> {
        let near = |rows: Rows, steps| stepped(Box::new(rows.at_most(self.most)), steps);
        let far = |rows| Box::new(rows) as Box<dyn Items>;
        let mut stages = self.stages(cx, &steps, patience, near, far)?;
        match (stages.len(), stages.pop_front()) {
            (1, Some(only)) => Ok(only),
            (_, first) => Ok(Box::new(Chain(first.into_iter().chain(stages).collect()))),
        }
    }

    /// By the primary key, with the hand of each row, which counts where there is no order.
    fn open_handed(
        &self,
        cx: &Cx,
        steps: Vec<Transform>,
        patience: Patience,
    ) -> Result<Chain<dyn HandedItems>, EvalError> {
        let near = |rows: Rows, steps| Box::new(HandedSteps::new(rows, steps)) as Box<dyn HandedItems>;
        let far = |rows| Box::new(rows) as Box<dyn HandedItems>;
        self.stages(cx, &steps, patience, near, far).map(Chain)
    }

    /// The parts in the order of their keys, those that are near and neighbours as one.
    fn stages<T: ?Sized>(
        &self,
        cx: &Cx,
        steps: &[Transform],
        mut patience: Patience,
        near: impl Fn(Rows, Vec<Transform>) -> Box<T>,
        far: impl Fn(FarRows) -> Box<T>,
    ) -> Result<VecDeque<Box<T>>, EvalError> {
        let mut stages = VecDeque::new();
        let mut parts = Vec::new();
        let end_near = |parts: &mut Vec<RowPart>, stages: &mut VecDeque<Box<T>>| {
            if !parts.is_empty() {
                let rows = Rows::new(cx, std::mem::take(parts), self.order.direction());
                stages.push_back(near(rows, steps.to_vec()));
            }
        };
        for found in self.find(cx, &mut patience)? {
            match found {
                Found::Near(part) => parts.push(part),
                Found::Far { server, range } => {
                    end_near(&mut parts, &mut stages);
                    stages.push_back(far(self.open_far(
                        cx,
                        server,
                        range,
                        steps.to_vec(),
                        patience.rest(),
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
        patience: Patience,
    ) -> Result<FarRows, EvalError> {
        let (table, order, index) = (self.table.clone(), self.order, self.index.clone());
        let source = FarSource { table, range, order, index, steps, is_to_write: self.is_to_write };
        FarRows::open(cx, server, source, reopen, patience)
    }
}

/// Adds a far part, to the last one where they are neighbours of one server.
fn push_far<T>(parts: &mut Vec<Found<T>>, server: ServerId, range: KeyRange) {
    if let Some(Found::Far { server: known, range: last }) = parts.last_mut()
        && *known == server
        && let Some(both) = joined(last, &range)
    {
        *last = both;
        return;
    }
    parts.push(Found::Far { server, range });
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

impl HandedItems for Chain<dyn HandedItems> {
    fn next_handed(&mut self, env: &Env<'_>) -> Result<Handed, EvalError> {
        while let Some(first) = self.0.front_mut() {
            match first.next_handed(env)? {
                Handed::End => drop(self.0.pop_front()),
                other => return Ok(other),
            }
        }
        Ok(Handed::End)
    }
}

/// Begins to read what another node was asked for and does not have any more.
fn reopen(cx: &Cx, source: FarSource, patience: Patience) -> Result<Rest, EvalError> {
    let FarSource { table, range, order, index, steps, is_to_write } = source;
    let rows = RowSource { table, range, order, index, most: None, is_to_write };
    match rows.index {
        Some(_) => Ok(Rest::Placed(Box::new(rows.open_index(cx, patience)?))),
        None => Ok(Rest::Handed(Box::new(rows.open_handed(cx, steps, patience)?))),
    }
}
