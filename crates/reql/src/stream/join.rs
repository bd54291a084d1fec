//! `inner_join` and `outer_join` with a right side that is at hand, and the rows joins are made of.

use datum::{Array, Datum, ObjectBuilder, Text};

use super::Items;
use crate::closure::Closure;
use crate::env::Env;
use crate::error::EvalError;

/// Which pairs a join makes.
#[derive(Clone)]
pub struct Join {
    /// The items of the right side.
    pub right: Array,
    /// Whether a left and a right item belong together.
    pub predicate: Closure,
    /// Whether a left item without a partner stands alone.
    pub outer: bool,
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let right = self.right.len();
        f.debug_struct("Join").field("right", &right).field("outer", &self.outer).finish_non_exhaustive()
    }
}

/// A row of a join: `{left, right}`, or `{left}` when there is no partner.
#[must_use]
pub fn pair(left: Datum, right: Option<Datum>) -> Datum {
    let mut row = ObjectBuilder::new();
    row.insert(Text::from_static("left"), left);
    if let Some(right) = right {
        row.insert(Text::from_static("right"), right);
    }
    Datum::Object(row.build())
}

/// The pairs of a stream's items with the right side.
pub struct Joined<I> {
    items: I,
    join: Join,
    /// The left item that is being paired, and the position it has reached on the right.
    current: Option<(Datum, usize)>,
    /// Whether the left item found a partner.
    matched: bool,
}

impl<I: Items> Joined<I> {
    /// The join of `items` with the right side.
    pub fn new(items: I, join: Join) -> Self {
        Joined { items, join, current: None, matched: false }
    }
}

impl<I: Items> Items for Joined<I> {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            env.check_cancel()?;
            let Some((left, at)) = &mut self.current else {
                let Some(left) = self.items.next(env)? else { return Ok(None) };
                self.current = Some((left, 0));
                self.matched = false;
                continue;
            };
            if let Some(right) = self.join.right.get(*at) {
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
            if let Some((left, _)) = alone {
                return Ok(Some(pair(left, None)));
            }
        }
    }

    fn is_infinite(&self) -> bool {
        self.items.is_infinite()
    }
}
