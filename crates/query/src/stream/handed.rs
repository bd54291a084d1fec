//! Rows after some steps, each item with its hand.

use std::collections::VecDeque;

use datum::Datum;
use reql::{Env, EvalError, Flow, Transform};

use super::indexed::Indexed;
use super::rows::Rows;
use crate::order::{Hand, Handed, HandedItems, PlacedItems};

/// Rows that know out of which hand they are given.
pub(crate) trait HandedRows: Send {
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
        Ok(self.next_placed(env)?.map(|placed| (placed.hand.number, placed.item, placed.times)))
    }
}

/// What some steps make of rows.
pub(super) struct HandedSteps<R> {
    rows: R,
    steps: Vec<Transform>,
    ready: VecDeque<(Hand, Datum)>,
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
        let Some((number, row, times)) = self.rows.next_row(env)? else { return Ok(Handed::End) };
        let (mut hand, ready) = (Hand { number, rows: 1 }, &mut self.ready);
        if self.steps.is_empty() && times == 1 {
            return Ok(Handed::Item(hand, row));
        }
        for _ in 0..times {
            reql::run(&self.steps, row.clone(), env, &mut |item| {
                ready.push_back((hand, item));
                hand.rows = 0;
                Ok(Flow::Continue)
            })?;
        }
        Ok(self.ready.pop_front().map_or(Handed::Nothing(1), |(hand, item)| Handed::Item(hand, item)))
    }
}
