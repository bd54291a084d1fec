//! Sources without tables: arrays and ranges.

use datum::{Array, Datum};

use super::{Endless, Items};
use crate::env::Env;
use crate::error::EvalError;

/// Yields the items of an array, in order.
pub struct ArrayItems {
    items: Array,
    at: usize,
}

impl ArrayItems {
    /// From the first item on.
    #[must_use]
    pub fn new(items: Array) -> Self {
        ArrayItems { items, at: 0 }
    }
}

impl Items for ArrayItems {
    fn next(&mut self, _env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        let item = self.items.get(self.at).cloned();
        self.at += 1;
        Ok(item)
    }

    fn is_exhausted(&self) -> bool {
        self.at >= self.items.len()
    }
}

/// `range`: consecutive integers.
#[derive(Debug)]
pub struct RangeItems {
    next: i64,
    end: Option<i64>,
}

impl RangeItems {
    /// From `start` up to, but not including, `end`; infinite without `end`.
    #[must_use]
    pub fn new(start: i64, end: Option<i64>) -> Self {
        RangeItems { next: start, end }
    }
}

impl Items for RangeItems {
    fn next(&mut self, _env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        const SAFE_INTEGER_MAX: i64 = 1 << 53;
        if self.end.is_some_and(|end| self.next >= end) {
            return Ok(None);
        }
        if self.next > SAFE_INTEGER_MAX {
            return Err(EvalError::logic("`range` out of safe double bounds."));
        }
        let item = Datum::Number(self.next as f64);
        self.next += 1;
        Ok(Some(item))
    }

    fn endless(&self) -> Option<Endless> {
        self.end.is_none().then_some(Endless::Numbers)
    }

    fn is_exhausted(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }
}
