//! A feed of an aggregate, or of one for each group.

use std::collections::BTreeMap;

use datum::{Datum, Object};
use reql::{Env, EvalError, Flow, Pipeline};

use super::element::Element;
use super::steps::{calls_functions, unless_failed};
use super::total::{Item, Total};
use super::view::{Need, RowChange, View};

/// Aggregates of groups; a single one, with the key null, if the sequence is not grouped.
pub(super) struct AggregateView {
    pipeline: Pipeline,
    groups: BTreeMap<Datum, Total>,
    /// The values before the changes since the last elements; `None` for a group that did not exist.
    before: BTreeMap<Datum, Option<Datum>>,
    /// The most groups and items that may be held.
    size_max: usize,
    size: usize,
}

impl AggregateView {
    /// The aggregates of `pipeline` of no rows.
    pub fn new(pipeline: Pipeline, size_max: usize) -> AggregateView {
        let mut view =
            AggregateView { pipeline, groups: BTreeMap::new(), before: BTreeMap::new(), size_max, size: 0 };
        view.add_single();
        view
    }

    /// Without groups there is a value also if there are no rows.
    fn add_single(&mut self) {
        if self.pipeline.group.is_none()
            && let Some(empty) = Total::empty(&self.pipeline.terminal)
        {
            self.groups.insert(Datum::Null, empty);
        }
    }

    fn value(&mut self, group: &Datum) -> Result<Option<Datum>, EvalError> {
        let terminal = &self.pipeline.terminal;
        self.groups.get_mut(group).map_or(Ok(None), |total| total.value(terminal))
    }

    /// Notes the value of a group before a change.
    fn note(&mut self, group: &Datum) -> Result<(), EvalError> {
        if !self.before.contains_key(group) {
            let value = self.value(group)?;
            self.before.insert(group.clone(), value);
        }
        Ok(())
    }

    fn add(&mut self, group: Datum, item: Item, env: &Env<'_>) -> Result<(), EvalError> {
        self.note(&group)?;
        let terminal = &self.pipeline.terminal;
        let Some(empty) = Total::empty(terminal) else { return Ok(()) };
        let total = self.groups.entry(group.clone()).or_insert(empty);
        let before = total.size();
        total.add(terminal, item, env)?;
        self.size = (self.size + total.size()).saturating_sub(before);
        self.drop_if_empty(&group);
        match self.groups.len().max(self.size) > self.size_max {
            true => Err(EvalError::array_limit(self.size_max)),
            false => Ok(()),
        }
    }

    fn remove(&mut self, group: &Datum, item: Item, env: &Env<'_>) -> Result<(), EvalError> {
        self.note(group)?;
        if let Some(total) = self.groups.get_mut(group) {
            let before = total.size();
            total.remove(&self.pipeline.terminal, item, env)?;
            self.size = (self.size + total.size()).saturating_sub(before);
        }
        self.drop_if_empty(group);
        Ok(())
    }

    /// A group without an item that counts does not exist.
    fn drop_if_empty(&mut self, group: &Datum) {
        if self.groups.get(group).is_some_and(Total::is_empty) {
            self.groups.remove(group);
            self.add_single();
        }
    }

    /// The items of a row, each with its group. Fails for lack of memory.
    fn items(&self, change: &RowChange<'_>, row: Option<&Object>) -> Result<Vec<(Datum, Item)>, EvalError> {
        let env = change.cx.closed_env();
        let mut found: Vec<(Datum, Item)> = Vec::new();
        for value in change.plan.values(change.cx, change.key, row)? {
            let items = self.grouped_items(&value, &env)?;
            for group in self.groups_of(&value, &env)? {
                for value in items.clone() {
                    let item = Item { value, key: change.key.clone(), nth: found.len() as u32 };
                    found.push((group.clone(), item));
                }
            }
        }
        Ok(found)
    }

    /// The groups of an item. None if a function fails.
    fn groups_of(&self, item: &Datum, env: &Env<'_>) -> Result<Vec<Datum>, EvalError> {
        let Some(by) = &self.pipeline.group else { return Ok(vec![Datum::Null]) };
        let mut groups = Vec::new();
        let found = by.keys(item, env, &mut |group| {
            groups.push(group);
            Ok(())
        });
        Ok(unless_failed(found)?.map_or_else(Vec::new, |()| groups))
    }

    /// An item after the steps between the grouping and the aggregate. A step that fails leaves nothing.
    fn grouped_items(&self, value: &Datum, env: &Env<'_>) -> Result<Vec<Datum>, EvalError> {
        let mut items = Vec::new();
        let run = reql::run(&self.pipeline.grouped_steps, value.clone(), env, &mut |item| {
            items.push(item);
            Ok(Flow::Continue)
        });
        Ok(unless_failed(run)?.map_or_else(Vec::new, |_| items))
    }

    /// The group in an element.
    fn shown(&self, group: Datum) -> Option<Datum> {
        self.pipeline.group.as_ref().map(|_| group)
    }
}

impl View for AggregateView {
    fn calls_functions(&self) -> bool {
        calls_functions(&self.pipeline)
    }

    fn change(&mut self, change: &RowChange<'_>) -> Result<(), EvalError> {
        let env = change.cx.closed_env();
        for (group, item) in self.items(change, change.old)? {
            self.remove(&group, item, &env)?;
        }
        for (group, item) in self.items(change, change.new)? {
            self.add(group, item, &env)?;
        }
        Ok(())
    }

    fn begin_refill(&mut self) {
        let groups: Vec<Datum> = self.groups.keys().cloned().collect();
        for group in groups {
            // A value that cannot be computed was not delivered either.
            if self.note(&group).is_err() {
                self.before.insert(group, None);
            }
        }
        self.groups.clear();
        self.size = 0;
        self.add_single();
    }

    fn needs(&self) -> Need {
        match self.before.keys().any(|group| self.groups.get(group).is_some_and(Total::needs_more)) {
            true => Need::AllRows,
            false => Need::Nothing,
        }
    }

    fn initial(&mut self) -> Result<Vec<Element>, EvalError> {
        self.before.clear();
        let terminal = &self.pipeline.terminal;
        let values: Result<Vec<_>, EvalError> = self
            .groups
            .iter_mut()
            .map(|(group, total)| Ok((group.clone(), total.value(terminal)?)))
            .collect();
        let element =
            |(group, value)| Element::Initial { group: self.shown(group), new: value, offset: None };
        Ok(values?.into_iter().map(element).collect())
    }

    fn elements(&mut self) -> Result<Vec<Element>, EvalError> {
        let mut elements = Vec::new();
        for (group, old) in std::mem::take(&mut self.before) {
            let new = self.value(&group)?;
            if old != new {
                elements.push(Element::Change { group: self.shown(group), old, new, offsets: None });
            }
        }
        Ok(elements)
    }
}
