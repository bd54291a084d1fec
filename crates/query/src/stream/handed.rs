//! Rows and items after some steps, each item with its hand.

use std::collections::VecDeque;

use datum::Datum;
use reql::{Env, EvalError, Flow, Transform};

use super::indexed::Indexed;
use super::rows::Rows;
use crate::order::{Hand, Handed, HandedItems, PlacedItems};

/// Rows that know out of which hand they are given.
pub(crate) trait HandedRows: Send {
    /// The next row, its hand, and how many times it is wanted.
    fn next_row(&mut self, env: &Env<'_>) -> Result<Option<(Hand, Datum, u64)>, EvalError>;
}

impl HandedRows for Rows {
    fn next_row(&mut self, _env: &Env<'_>) -> Result<Option<(Hand, Datum, u64)>, EvalError> {
        Ok(Rows::next_row(self)?.map(|row| (Hand { number: self.hand(), rows: 1 }, row, 1)))
    }
}

impl HandedRows for Indexed {
    fn next_row(&mut self, env: &Env<'_>) -> Result<Option<(Hand, Datum, u64)>, EvalError> {
        Ok(self.next_placed(env)?.map(|placed| (placed.hand, placed.item, placed.times)))
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
        let Some((mut hand, row, times)) = self.rows.next_row(env)? else { return Ok(Handed::End) };
        let (rows, ready) = (hand.rows, &mut self.ready);
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
        Ok(first_or_nothing(ready, rows))
    }
}

/// What some more steps make of items.
pub(super) struct HandedThen {
    items: Box<dyn HandedItems>,
    steps: Vec<Transform>,
    ready: VecDeque<(Hand, Datum)>,
}

/// `items` after `steps`.
pub(super) fn then(items: Box<dyn HandedItems>, steps: Vec<Transform>) -> Box<dyn HandedItems> {
    if steps.is_empty() {
        return items;
    }
    Box::new(HandedThen { items, steps, ready: VecDeque::new() })
}

impl HandedItems for HandedThen {
    fn next_handed(&mut self, env: &Env<'_>) -> Result<Handed, EvalError> {
        if let Some((hand, item)) = self.ready.pop_front() {
            return Ok(Handed::Item(hand, item));
        }
        let (mut hand, item) = match self.items.next_handed(env)? {
            Handed::Item(hand, item) => (hand, item),
            other => return Ok(other),
        };
        let (rows, ready) = (hand.rows, &mut self.ready);
        reql::run(&self.steps, item, env, &mut |item| {
            ready.push_back((hand, item));
            hand.rows = 0;
            Ok(Flow::Continue)
        })?;
        Ok(first_or_nothing(ready, rows))
    }
}

/// The first of the items that were made of what `rows` were looked at for.
fn first_or_nothing(ready: &mut VecDeque<(Hand, Datum)>, rows: u32) -> Handed {
    ready.pop_front().map_or(Handed::Nothing(rows as usize), |(hand, item)| Handed::Item(hand, item))
}
