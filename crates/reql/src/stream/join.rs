//! `inner_join` and `outer_join`, and the result rows of joins.

use datum::{Array, Datum, ObjectBuilder, Text};

use super::{Endless, Items, collect_unlimited};
use crate::closure::{CallResult, Closure};
use crate::env::Env;
use crate::error::EvalError;

/// The definition of a join.
#[derive(Clone)]
pub struct Join {
    pub right: Right,
    /// Whether a left and a right item form a pair.
    pub predicate: Closure,
    /// Whether a left item without a partner is emitted alone.
    pub outer: bool,
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let right = match &self.right {
            Right::Kept(items) => Some(items.len()),
            Right::Anew(_) => None,
        };
        f.debug_struct("Join").field("right", &right).field("outer", &self.outer).finish_non_exhaustive()
    }
}

impl Join {
    /// Whether all its functions can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let is_closed = |closure: &Closure| closure.func.closed;
        let right = match &self.right {
            Right::Kept(_) => true,
            Right::Anew(closure) => is_closed(closure),
        };
        right && is_closed(&self.predicate)
    }
}

/// The right side of a join. RethinkDB evaluates it for each left item, which makes a difference if it is random or
/// fails.
#[derive(Clone)]
pub enum Right {
    /// Items in memory.
    Kept(Array),
    /// A function without parameters, called for each left item.
    Anew(Closure),
}

impl Right {
    fn items(&self, env: &Env<'_>) -> Result<Array, EvalError> {
        match self {
            Right::Kept(items) => Ok(items.clone()),
            Right::Anew(closure) => match closure.call_for_items(&[], env)? {
                CallResult::Datum(Datum::Array(items)) => Ok(items),
                CallResult::Datum(other) => Err(EvalError::not_a_sequence(&other)),
                CallResult::Items(mut items) => collect_unlimited(&mut *items, env),
            },
        }
    }
}

/// A result row of a join: `{left, right}`, or `{left}` without a partner.
#[must_use]
pub fn pair(left: Datum, right: Option<Datum>) -> Datum {
    let mut row = ObjectBuilder::new();
    row.insert(Text::from_static("left"), left);
    if let Some(right) = right {
        row.insert(Text::from_static("right"), right);
    }
    Datum::Object(row.build())
}

/// The stream of pairs of a stream's items with the right side.
pub struct Joined<I> {
    items: I,
    join: Join,
    /// The current left item, the right side, and the position in it.
    current: Option<(Datum, Array, usize)>,
    /// Whether the current left item had a partner.
    matched: bool,
}

impl<I: Items> Joined<I> {
    /// Joins `items` with the right side.
    pub fn new(items: I, join: Join) -> Self {
        Joined { items, join, current: None, matched: false }
    }
}

impl<I: Items> Items for Joined<I> {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            env.check_cancel()?;
            let Some((left, rights, at)) = &mut self.current else {
                let Some(left) = self.items.next(env)? else { return Ok(None) };
                self.current = Some((left, self.join.right.items(env)?, 0));
                self.matched = false;
                continue;
            };
            if let Some(right) = rights.get(*at) {
                *at += 1;
                let values = [left.clone(), right.clone()];
                if self.join.predicate.test(&values, env).map_err(|error| error.at(2))? {
                    self.matched = true;
                    let [left, right] = values;
                    return Ok(Some(pair(left, Some(right))));
                }
                continue;
            }
            let alone = self.current.take().filter(|_| self.join.outer && !self.matched);
            if let Some((left, ..)) = alone {
                return Ok(Some(pair(left, None)));
            }
        }
    }

    fn endless(&self) -> Option<Endless> {
        self.items.endless()
    }

    fn is_exhausted(&self) -> bool {
        self.current.is_none() && self.items.is_exhausted()
    }
}
