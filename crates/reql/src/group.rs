//! `group`: the keys of an item.

use datum::Datum;

use crate::env::Env;
use crate::error::EvalError;
use crate::select::Selector;

/// How items are grouped.
#[derive(Clone, Debug)]
pub struct GroupBy {
    /// One part of the key each.
    pub selectors: Vec<Selector>,
    /// Whether an array in the key stands for each of its items.
    pub multi: bool,
}

impl GroupBy {
    /// Hands every key of `item` to `take`: one, unless `multi` makes more of an array.
    ///
    /// A part that is missing is null.
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

    /// Every combination of the items of array parts.
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

    /// Whether every function of it can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.selectors.iter().all(Selector::is_closed)
    }
}

/// One part is the key itself, several are an array.
fn one_key(mut parts: Vec<Datum>) -> Datum {
    match parts.len() {
        1 => parts.pop().unwrap_or(Datum::Null),
        _ => Datum::from(parts),
    }
}
