//! A feed of the distinct items of a sequence.

use std::collections::BTreeMap;

use datum::Datum;
use reql::EvalError;

use super::element::Element;
use super::total::take_one;
use super::view::{Need, RowChange, View};

/// The distinct items: an element says that one has come, or that it is gone.
pub(super) struct DistinctView {
    /// How often each item is there.
    counts: BTreeMap<Datum, u64>,
    /// Whether items were there before the changes since the last elements.
    before: BTreeMap<Datum, bool>,
    size_max: usize,
}

impl DistinctView {
    /// No items; at most `size_max` may come.
    pub fn new(size_max: usize) -> DistinctView {
        DistinctView { counts: BTreeMap::new(), before: BTreeMap::new(), size_max }
    }

    fn note(&mut self, value: &Datum) {
        if !self.before.contains_key(value) {
            self.before.insert(value.clone(), self.counts.contains_key(value));
        }
    }
}

impl View for DistinctView {
    fn change(&mut self, change: &RowChange<'_>) -> Result<(), EvalError> {
        let RowChange { cx, plan, key, old, new, .. } = *change;
        for value in plan.values(cx, key, old)? {
            self.note(&value);
            take_one(&mut self.counts, &value);
        }
        for value in plan.values(cx, key, new)? {
            self.note(&value);
            *self.counts.entry(value).or_insert(0) += 1;
        }
        match self.counts.len() > self.size_max {
            true => Err(EvalError::array_limit(self.size_max)),
            false => Ok(()),
        }
    }

    fn begin_refill(&mut self) {
        let values: Vec<Datum> = self.counts.keys().cloned().collect();
        values.iter().for_each(|value| self.note(value));
        self.counts.clear();
    }

    fn needs(&self) -> Need {
        Need::Nothing
    }

    fn initial(&mut self) -> Result<Vec<Element>, EvalError> {
        self.before.clear();
        Ok(self.counts.keys().map(|value| Element::initial(Some(value.clone()))).collect())
    }

    fn elements(&mut self) -> Result<Vec<Element>, EvalError> {
        let mut elements = Vec::new();
        for (value, was_there) in std::mem::take(&mut self.before) {
            match (was_there, self.counts.contains_key(&value)) {
                (false, true) => elements.push(Element::change(None, Some(value))),
                (true, false) => elements.push(Element::change(Some(value), None)),
                _ => {}
            }
        }
        Ok(elements)
    }
}
