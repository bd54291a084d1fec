//! Rows that nobody ordered, each with its hand, after some steps.

use std::collections::VecDeque;

use datum::Datum;
use reql::{Env, EvalError, Flow, Transform};

use super::indexed::Indexed;
use super::rows::Rows;
use crate::order::{Handed, HandedItems, PlacedItems};

/// Rows that know out of which hand they are given.
pub(super) trait HandedRows: Send {
    /// The next row, its hand, and how many times it is wanted.
    fn next_row(&mut self, env: &Env<'_>) -> Result<Option<(u8, Datum, u64)>, EvalError>;
}

impl HandedRows for Rows {
    fn next_row(&mut self, _env: &Env<'_>) -> Result<Option<(u8, Datum, u64)>, EvalError> {
        Ok(Rows::next_row(self)?.map(|row| (self.hand(), row, 1)))
    }
}

impl HandedRows for Indexed {
    fn next_row(&mut self, env: &Env<'_>) -> Result<Option<(u8, Datum, u64)>, EvalError> {
        Ok(self.next_placed(env)?.map(|placed| (placed.hand, placed.item, placed.times)))
    }
}

/// What some steps make of rows.
pub(super) struct HandedSteps<R> {
    rows: R,
    steps: Vec<Transform>,
    ready: VecDeque<(u8, Datum)>,
}

impl<R> HandedSteps<R> {
    /// `rows` after `steps`.
    pub fn new(rows: R, steps: Vec<Transform>) -> HandedSteps<R> {
        HandedSteps { rows, steps, ready: VecDeque::new() }
    }
}

impl<R: HandedRows> HandedItems for HandedSteps<R> {
    fn next_handed(&mut self, env: &Env<'_>) -> Result<Handed, EvalError> {
        if let Some((hand, item)) = self.ready.pop_front() {
            return Ok(Handed::Item(hand, item));
        }
        let Some((hand, row, times)) = self.rows.next_row(env)? else { return Ok(Handed::End) };
        if self.steps.is_empty() && times == 1 {
            return Ok(Handed::Item(hand, row));
        }
        let ready = &mut self.ready;
        for _ in 0..times {
            reql::run(&self.steps, row.clone(), env, &mut |item| {
                ready.push_back((hand, item));
                Ok(Flow::Continue)
            })?;
        }
        Ok(self.ready.pop_front().map_or(Handed::Nothing(1), |(hand, item)| Handed::Item(hand, item)))
    }
}
