//! A feed of `eq_join`: the pairs of left items and right rows, kept up to date as rows of either side change.
//!
//! All left items are held, and the right rows that they need: with the primary key these are read once a left item names them;
//! with a secondary index all rows of the right table are held.

use std::collections::{BTreeMap, BTreeSet};

use datum::{Bytes, Datum, Object, PrimaryKey, Text};
use reql::stream::pair;
use reql::{EvalError, Selector};
use shard::IndexDef;

use super::element::Element;
use super::steps::{RowSteps, is_function, unless_failed};
use super::view::{Need, RowChange, View};
use crate::context::Cx;

/// The place of the left side among the sources of the feed; the right one follows.
const LEFT: usize = 0;

/// How the rows of the right side are found.
pub(crate) enum RightKey {
    /// By the primary key, which is this field.
    Primary(Text),
    Secondary(IndexDef),
}

/// A pair: the left row and which of its items it is, the right row and which of its index entries.
type PairId = (PrimaryKey, u32, PrimaryKey, u32);

/// The pairs of a join.
pub(super) struct JoinView {
    by: Selector,
    right_key: RightKey,
    /// The steps after the join.
    steps: RowSteps,
    /// The items of each left row, each with the value by which it is joined.
    left: BTreeMap<PrimaryKey, Vec<(Datum, Option<Datum>)>>,
    left_by_value: BTreeMap<Datum, BTreeSet<PrimaryKey>>,
    right: BTreeMap<PrimaryKey, Object>,
    /// The right rows by the values under which they are found, each as often as it has the value.
    right_by_value: BTreeMap<Datum, BTreeMap<PrimaryKey, u32>>,
    /// Right keys that are named by a left item and were not read yet.
    wanted: BTreeSet<PrimaryKey>,
    /// The pairs after the steps.
    pairs: BTreeMap<PairId, Datum>,
    /// Pairs before the changes since the last elements; `None` for one that did not exist.
    before: BTreeMap<PairId, Option<Datum>>,
    size_max: usize,
}

impl JoinView {
    /// The join of no rows. There may be up to `size_max` rows of each side, and pairs.
    pub fn new(by: Selector, right_key: RightKey, steps: RowSteps, size_max: usize) -> JoinView {
        JoinView {
            by,
            right_key,
            steps,
            left: BTreeMap::new(),
            left_by_value: BTreeMap::new(),
            right: BTreeMap::new(),
            right_by_value: BTreeMap::new(),
            wanted: BTreeSet::new(),
            pairs: BTreeMap::new(),
            before: BTreeMap::new(),
            size_max,
        }
    }

    fn change_left(&mut self, change: &RowChange<'_>) -> Result<(), EvalError> {
        let RowChange { cx, plan, key, new, .. } = *change;
        let env = cx.closed_env();
        let mut items = Vec::new();
        for item in plan.values(cx, key, new)? {
            let value = unless_failed(self.by.present(&item, &env))?.flatten();
            items.push((item, value.filter(|value| *value != Datum::Null)));
        }
        let values: BTreeSet<Datum> = items.iter().filter_map(|(_, value)| value.clone()).collect();
        let gone = match items.is_empty() {
            true => self.left.remove(key),
            false => self.left.insert(key.clone(), items),
        };
        values.iter().for_each(|value| self.add_left(value, key));
        let gone: BTreeSet<Datum> = gone.into_iter().flatten().filter_map(|(_, value)| value).collect();
        gone.difference(&values).for_each(|value| self.forget_left(value, key));
        self.refresh(cx, key)
    }

    fn add_left(&mut self, value: &Datum, key: &PrimaryKey) {
        let lefts = self.left_by_value.entry(value.clone()).or_default();
        if let (true, RightKey::Primary(_), Ok(right)) =
            (lefts.is_empty(), &self.right_key, PrimaryKey::encode(value))
        {
            self.wanted.insert(right);
        }
        lefts.insert(key.clone());
    }

    fn forget_left(&mut self, value: &Datum, key: &PrimaryKey) {
        let Some(lefts) = self.left_by_value.get_mut(value) else { return };
        lefts.remove(key);
        if !lefts.is_empty() {
            return;
        }
        self.left_by_value.remove(value);
        if let (RightKey::Primary(_), Ok(right)) = (&self.right_key, PrimaryKey::encode(value)) {
            self.wanted.remove(&right);
            self.right.remove(&right);
            self.right_by_value.remove(value);
        }
    }

    fn change_right(&mut self, change: &RowChange<'_>) -> Result<(), EvalError> {
        let RowChange { cx, key, new, .. } = *change;
        if self.wanted.contains(key) {
            // It will be read as it is after this change.
            return Ok(());
        }
        let old_values = self.right.remove(key).map_or_else(Vec::new, |row| self.values(&row));
        for value in &old_values {
            if let Some(rights) = self.right_by_value.get_mut(value) {
                rights.remove(key);
            }
            if self.right_by_value.get(value).is_some_and(BTreeMap::is_empty) {
                self.right_by_value.remove(value);
            }
        }
        let mut new_values = new.map_or_else(Vec::new, |row| self.values(row));
        if let RightKey::Primary(_) = self.right_key {
            new_values.retain(|value| self.left_by_value.contains_key(value));
        }
        for value in &new_values {
            *self.right_by_value.entry(value.clone()).or_default().entry(key.clone()).or_insert(0) += 1;
        }
        if let (Some(row), false) = (new, new_values.is_empty()) {
            self.right.insert(key.clone(), row.clone());
        }
        let named = old_values.iter().chain(&new_values).filter_map(|value| self.left_by_value.get(value));
        let lefts: BTreeSet<PrimaryKey> = named.flatten().cloned().collect();
        lefts.iter().try_for_each(|left| self.refresh(cx, left))
    }

    /// The values under which a right row is found.
    fn values(&self, row: &Object) -> Vec<Datum> {
        match &self.right_key {
            RightKey::Primary(field) => row.get(field).into_iter().collect(),
            RightKey::Secondary(index) => index.values(row).into_iter().map(|(_, value)| value).collect(),
        }
    }

    /// Computes the pairs of a left row anew.
    fn refresh(&mut self, cx: &Cx, left: &PrimaryKey) -> Result<(), EvalError> {
        let mut pairs = self.pairs_of(cx, left)?;
        let first = (left.clone(), 0, PrimaryKey(Bytes::new()), 0);
        let known: Vec<PairId> =
            self.pairs.range(first..).map(|(id, _)| id).take_while(|id| id.0 == *left).cloned().collect();
        for id in known {
            let new = pairs.remove(&id);
            self.set(id, new);
        }
        pairs.into_iter().for_each(|(id, new)| self.set(id, Some(new)));
        Ok(())
    }

    fn set(&mut self, id: PairId, new: Option<Datum>) {
        if self.pairs.get(&id) == new.as_ref() {
            return;
        }
        let old = match new {
            Some(new) => self.pairs.insert(id.clone(), new),
            None => self.pairs.remove(&id),
        };
        self.before.entry(id).or_insert(old);
    }

    fn pairs_of(&self, cx: &Cx, left: &PrimaryKey) -> Result<BTreeMap<PairId, Datum>, EvalError> {
        let mut pairs = BTreeMap::new();
        let items = self.left.get(left).into_iter().flatten();
        for (nth, (item, value)) in (0..).zip(items) {
            let rights = value.as_ref().and_then(|value| self.right_by_value.get(value));
            for (right, times) in rights.into_iter().flatten() {
                let Some(row) = self.right.get(right) else { continue };
                let joined = pair(item.clone(), Some(Datum::Object(row.clone())));
                let Some(joined) = self.steps.value(cx, Some(joined))? else { continue };
                for time in 0..*times {
                    pairs.insert((left.clone(), nth, right.clone(), time), joined.clone());
                }
            }
        }
        Ok(pairs)
    }
}

impl View for JoinView {
    fn calls_functions(&self) -> bool {
        is_function(&self.by) || !self.steps.are_brief()
    }

    fn change(&mut self, change: &RowChange<'_>) -> Result<(), EvalError> {
        match change.source {
            LEFT => self.change_left(change)?,
            _ => self.change_right(change)?,
        }
        match self.left.len().max(self.right.len()).max(self.pairs.len()) > self.size_max {
            true => Err(EvalError::array_limit(self.size_max)),
            false => Ok(()),
        }
    }

    fn begin_refill(&mut self) {
        for (id, pair) in std::mem::take(&mut self.pairs) {
            self.before.entry(id).or_insert(Some(pair));
        }
        self.left.clear();
        self.left_by_value.clear();
        self.right.clear();
        self.right_by_value.clear();
        self.wanted.clear();
    }

    fn needs(&self) -> Need {
        if self.wanted.is_empty() { Need::Nothing } else { Need::Keys }
    }

    fn take_wanted(&mut self) -> Vec<PrimaryKey> {
        std::mem::take(&mut self.wanted).into_iter().collect()
    }

    fn reads_all_of(&self, source: usize) -> bool {
        source == LEFT || matches!(self.right_key, RightKey::Secondary(_))
    }

    fn initial(&mut self) -> Result<Vec<Element>, EvalError> {
        self.before.clear();
        Ok(self.pairs.values().map(|pair| Element::initial(Some(pair.clone()))).collect())
    }

    fn elements(&mut self) -> Result<Vec<Element>, EvalError> {
        let changed = std::mem::take(&mut self.before).into_iter();
        let change = |(id, old): (PairId, Option<Datum>)| (old, self.pairs.get(&id).cloned());
        let changes = changed.map(change).filter(|(old, new)| old != new);
        Ok(changes.map(|(old, new)| Element::change(old, new)).collect())
    }
}
