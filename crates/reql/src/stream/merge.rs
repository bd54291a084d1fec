//! `union`: concatenates streams, or merges sorted ones.

use std::cmp::Ordering;
use std::collections::VecDeque;

use datum::Datum;

use super::{Endless, Items};
use crate::env::Env;
use crate::error::EvalError;
use crate::order::{Order, SortKey, compare, sort_key};

/// Concatenates streams.
pub struct Chained {
    inputs: VecDeque<Box<dyn Items>>,
}

impl Chained {
    /// The items of all inputs, one input after the other.
    #[must_use]
    pub fn new(inputs: Vec<Box<dyn Items>>) -> Self {
        Chained { inputs: inputs.into() }
    }
}

impl Items for Chained {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        let mut waiting = 0;
        while let Some(input) = self.inputs.front_mut() {
            match input.next(env) {
                Ok(Some(item)) => return Ok(Some(item)),
                Ok(None) => drop(self.inputs.pop_front()),
                // Changefeeds have no end: the others follow while one has nothing.
                Err(error) if error.is_not_ready() && waiting + 1 < self.inputs.len() => {
                    waiting += 1;
                    self.inputs.rotate_left(1);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn endless(&self) -> Option<Endless> {
        self.inputs.iter().find_map(Items::endless)
    }

    fn is_immediate(&self) -> bool {
        self.inputs.iter().all(Items::is_immediate)
    }
}

/// Merges sorted streams into one.
pub struct Merged {
    inputs: Vec<Input>,
    orders: Vec<Order>,
    started: bool,
}

struct Input {
    items: Box<dyn Items>,
    /// The next item of the input, with its sort key.
    head: Option<(SortKey, Datum)>,
}

impl Merged {
    /// Merges `inputs` by `orders`. Reading fails if an input is not sorted.
    #[must_use]
    pub fn new(inputs: Vec<Box<dyn Items>>, orders: Vec<Order>) -> Self {
        let inputs = inputs.into_iter().map(|items| Input { items, head: None }).collect();
        Merged { inputs, orders, started: false }
    }

    /// Reads the next item of an input as its head. Returns the previous head.
    fn advance(&mut self, position: usize, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        let input = &mut self.inputs[position];
        let before = input.head.take();
        if let Some(item) = input.items.next(env)? {
            let key = sort_key(&self.orders, &item, env)?;
            let sinks =
                |(known, _): &(SortKey, Datum)| compare(&self.orders, known, &key) == Ordering::Greater;
            if before.as_ref().is_some_and(sinks) {
                return Err(EvalError::logic(
                    "The streams given as arguments are not ordered by given ordering.",
                ));
            }
            input.head = Some((key, item));
        }
        Ok(before.map(|(_, item)| item))
    }
}

impl Items for Merged {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        env.check_cancel()?;
        let is_feed = |input: &Input| input.items.endless() == Some(Endless::Changes);
        if self.inputs.iter().any(is_feed) {
            // Source: `ordered_union_datum_stream_t` of RethinkDB 2.4.
            return Err(EvalError::logic("Cannot use an infinite stream with an ordered `union`."));
        }
        if !std::mem::replace(&mut self.started, true) {
            for position in 0..self.inputs.len() {
                self.advance(position, env)?;
            }
        }
        let mut first: Option<(usize, &SortKey)> = None;
        for (position, input) in self.inputs.iter().enumerate() {
            let Some((key, _)) = &input.head else { continue };
            let earlier = |(_, known): (usize, &SortKey)| compare(&self.orders, key, known) == Ordering::Less;
            if first.is_none_or(earlier) {
                first = Some((position, key));
            }
        }
        match first.map(|(position, _)| position) {
            Some(position) => self.advance(position, env),
            None => Ok(None),
        }
    }

    fn endless(&self) -> Option<Endless> {
        self.inputs.iter().find_map(|input| input.items.endless())
    }
}
