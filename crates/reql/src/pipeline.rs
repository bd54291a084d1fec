//! Pipelines, which run where the rows are: steps, optional groups, and a terminal.
//!
//! Each range of rows has a separate [`Tally`] of partial results. Tallies are merged in the order of the ranges
//! and finished once. The groups of the result are in the order of their keys.

use std::collections::HashMap;

use datum::Datum;

use crate::env::Env;
use crate::error::EvalError;
use crate::group::GroupBy;
use crate::sorting;
use crate::terminal::{Counted, Partial, Terminal};
use crate::transform::{self, Flow, Transform};
use crate::value::{Grouped, GroupedKind, Value};

/// Steps before grouping, the grouping, steps after it, and the terminal.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Steps for every item.
    pub steps: Vec<Transform>,
    /// The grouping of items, if any.
    pub group: Option<GroupBy>,
    /// Steps for the items of each group.
    pub grouped_steps: Vec<Transform>,
    /// The aggregate of all items, or of each group.
    pub terminal: Terminal,
}

/// The partial result after some of the items.
#[derive(Debug)]
pub enum Tally {
    /// The result without groups.
    Whole(Partial),
    /// The results by group key.
    Groups {
        /// The partial result of each group.
        groups: HashMap<Datum, Partial>,
        /// The number of items in all groups, if the terminal only collects them.
        collected: usize,
    },
}

impl Pipeline {
    /// The partial result before the first item.
    #[must_use]
    pub fn start(&self) -> Tally {
        match self.group {
            None => Tally::Whole(self.terminal.start()),
            Some(_) => Tally::Groups { groups: HashMap::new(), collected: 0 },
        }
    }

    /// Runs one item of the source through all steps and adds it to `tally`.
    pub fn push(&self, tally: &mut Tally, item: Datum, env: &Env<'_>) -> Result<(), EvalError> {
        self.push_from(0, tally, item, env)
    }

    /// Like [`Pipeline::push`], for an item that went through the steps before `first` already.
    pub fn push_from(
        &self,
        first: usize,
        tally: &mut Tally,
        item: Datum,
        env: &Env<'_>,
    ) -> Result<(), EvalError> {
        let steps = self.steps.get(first..).unwrap_or_default();
        transform::run(steps, item, env, &mut |item| {
            match tally {
                Tally::Whole(partial) => {
                    self.terminal.add(partial, item, env)?;
                }
                Tally::Groups { groups, collected } => self.push_grouped(groups, collected, item, env)?,
            }
            Ok(Flow::Continue)
        })?;
        Ok(())
    }

    fn push_grouped(
        &self,
        groups: &mut HashMap<Datum, Partial>,
        collected: &mut usize,
        item: Datum,
        env: &Env<'_>,
    ) -> Result<(), EvalError> {
        let Some(group) = &self.group else { return Ok(()) };
        group.keys(&item, env, &mut |key| {
            transform::run(&self.grouped_steps, item.clone(), env, &mut |item| {
                self.add_to_group(groups, collected, &key, item, env)?;
                Ok(Flow::Continue)
            })?;
            Ok(())
        })
    }

    fn add_to_group(
        &self,
        groups: &mut HashMap<Datum, Partial>,
        collected: &mut usize,
        key: &Datum,
        item: Datum,
        env: &Env<'_>,
    ) -> Result<(), EvalError> {
        if matches!(self.terminal, Terminal::Collect) {
            *collected += 1;
            check_collected(*collected, env)?;
        }
        if let Some(partial) = groups.get_mut(key) {
            self.terminal.add(partial, item, env)?;
        } else {
            let mut partial = self.terminal.start();
            if self.terminal.add(&mut partial, item, env)? == Counted::Yes {
                groups.insert(key.clone(), partial);
                check_groups(groups.len(), env)?;
            }
        }
        Ok(())
    }

    /// Appends the partial result of later items to that of earlier ones.
    pub fn merge(&self, earlier: &mut Tally, later: Tally, env: &Env<'_>) -> Result<(), EvalError> {
        match (earlier, later) {
            (Tally::Whole(partial), Tally::Whole(more)) => self.terminal.merge(partial, more, env),
            (Tally::Groups { groups, collected }, Tally::Groups { groups: more, collected: of_more }) => {
                *collected += of_more;
                check_collected(*collected, env)?;
                for (key, partial) in more {
                    match groups.get_mut(&key) {
                        Some(known) => self.terminal.merge(known, partial, env)?,
                        None => {
                            groups.insert(key, partial);
                        }
                    }
                }
                check_groups(groups.len(), env)
            }
            _ => Err(EvalError::internal("grouped and whole results were mixed up")),
        }
    }

    /// The final value of all terms.
    pub fn finish(&self, tally: Tally) -> Result<Value, EvalError> {
        match tally {
            Tally::Whole(partial) => self.terminal.finish(partial).map(Value::Datum),
            Tally::Groups { groups, .. } => {
                let finished =
                    groups.into_iter().map(|(key, partial)| Ok((key, self.terminal.finish(partial)?)));
                let groups = finished.collect::<Result<Vec<_>, EvalError>>()?;
                let groups =
                    sorting::sorted_by(groups, |(key, _)| sorting::is_short(key), |(a, _), (b, _)| a.cmp(b));
                let kind = match self.terminal {
                    Terminal::Collect => GroupedKind::Stream,
                    _ => GroupedKind::Data,
                };
                Ok(Value::Grouped(Box::new(Grouped { kind, groups })))
            }
        }
    }

    /// Names of the steps, in order, for people.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let names = self.steps.iter().map(Transform::name);
        let group = self.group.iter().map(|_| "group");
        let later = self.grouped_steps.iter().map(Transform::name);
        names.chain(group).chain(later).chain([self.terminal.name()]).map(str::to_owned).collect()
    }

    /// Whether all its functions can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.steps.iter().chain(&self.grouped_steps).all(Transform::is_closed)
            && self.group.as_ref().is_none_or(GroupBy::is_closed)
            && self.terminal.is_closed()
    }
}

/// Fails if there may not be `count` groups.
pub(crate) fn check_groups(count: usize, env: &Env<'_>) -> Result<(), EvalError> {
    if count > env.array_limit {
        let limit = env.array_limit;
        return Err(EvalError::resource(format!("Too many groups (> {limit}).")));
    }
    Ok(())
}

fn check_collected(count: usize, env: &Env<'_>) -> Result<(), EvalError> {
    if count > env.array_limit {
        let limit = env.array_limit;
        return Err(EvalError::resource(format!(
            "Grouped data over size limit `{limit}`.  Try putting a reduction (like `.reduce` or \
             `.count`) on the end."
        )));
    }
    Ok(())
}
