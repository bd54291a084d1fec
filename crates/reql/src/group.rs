//! `group`: computes the group keys of an item.

use datum::Datum;

use crate::env::Env;
use crate::error::EvalError;
use crate::select::Selector;

/// How items are grouped.
#[derive(Clone, Debug)]
pub struct GroupBy {
    /// Each gives one part of the key.
    pub selectors: Vec<Selector>,
    /// Whether an array in the key stands for each of its items.
    pub multi: bool,
}

impl GroupBy {
    /// Calls `take` with every key of `item`: one, unless `multi` expands an array.
    ///
    /// A missing part is null.
    pub fn keys(
        &self,
        item: &Datum,
        env: &Env<'_>,
        take: &mut dyn FnMut(Datum) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        let mut parts = Vec::with_capacity(self.selectors.len());
        for (i, selector) in self.selectors.iter().enumerate() {
            let part = selector.present(item, env).map_err(|error| error.at(i + 1))?;
            parts.push(part.unwrap_or(Datum::Null));
        }
        if !self.multi {
            return take(one_key(parts));
        }
        self.multiply(&parts, &mut Vec::with_capacity(parts.len()), take)
    }

    /// Calls `take` with every combination of the items of array parts.
    fn multiply(
        &self,
        parts: &[Datum],
        chosen: &mut Vec<Datum>,
        take: &mut dyn FnMut(Datum) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        let Some((part, later)) = parts.split_first() else {
            return take(one_key(chosen.clone()));
        };
        let choices = match part {
            Datum::Array(items) if items.is_empty() => &[Datum::Null][..],
            Datum::Array(items) => items,
            other => std::slice::from_ref(other),
        };
        for choice in choices {
            chosen.push(choice.clone());
            self.multiply(later, chosen, take)?;
            chosen.pop();
        }
        Ok(())
    }

    /// Whether all its functions can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.selectors.iter().all(Selector::is_closed)
    }
}

/// A single part is the key itself; several form an array.
fn one_key(mut parts: Vec<Datum>) -> Datum {
    match parts.len() {
        1 => parts.pop().unwrap_or(Datum::Null),
        _ => Datum::from(parts),
    }
}
