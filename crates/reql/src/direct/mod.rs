//! Pipelines that look into rows where they lie: what simple filters, maps, groups and sums ask of a
//! row is found in its stored bytes, without a datum, a copy or a count of references.
//!
//! A [`Direct`] knows only the plain cases. Of a row that is not one of them (a nested
//! value, anything that would be an error) it says so before it has changed anything, and the
//! row takes the way of all items, which decides what is right.

mod expr;
mod fold;
mod groups;
mod stage;

use datum::row::RowView;

use crate::env::Env;
use crate::error::EvalError;
use crate::pipeline::{Pipeline, Tally};

use expr::Item;
use fold::Fold;
use groups::Groups;
use stage::{NotPlain, Stage, stages, through};

/// What a pipeline does that can be done to a row where it lies. Belongs to one thread.
pub struct Direct {
    stages: Vec<Stage>,
    end: End,
}

/// What becomes of the items that are left.
enum End {
    /// All of them make one value.
    Whole(Fold),
    /// Each group makes one.
    Groups { groups: Groups, stages: Vec<Stage>, fold: Fold },
    /// They take the other steps, from this one on, as all items do.
    Rest(usize),
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is counted, or left out.
    Done,
    /// Nothing was done: it must be pushed as an item, to the steps from this one on.
    Remains(usize),
}

impl Direct {
    /// What of `pipeline` can be done to rows where they lie, if that is worth anything.
    #[must_use]
    pub fn of(pipeline: &Pipeline, env: &Env<'_>) -> Option<Direct> {
        let stages = stages(&pipeline.steps, env);
        if stages.len() == pipeline.steps.len()
            && let Some(end) = End::of(pipeline, &stages, env)
        {
            return Some(Direct { stages, end });
        }
        // Filters at least may leave few rows for the other steps.
        let filters = stages.iter().take_while(|stage| matches!(stage, Stage::Filter { .. })).count();
        let stages: Vec<Stage> = stages.into_iter().take(filters).collect();
        (filters > 0).then_some(Direct { stages, end: End::Rest(filters) })
    }

    /// Bytes from the beginning of a row to what is looked at first in it, as it was in the last row: in the
    /// next one it is probably there, too. `None` when no field is looked at.
    #[must_use]
    pub fn looks_at(&self) -> Option<usize> {
        let first = self.stages.iter().find_map(Stage::first_field);
        let first = first.or_else(|| match &self.end {
            End::Whole(fold) => fold.first_field(),
            End::Groups { groups, .. } => groups.first_field(),
            End::Rest(_) => None,
        });
        first.map(|place| place.offset())
    }

    /// Takes `row` into `tally`, unless it is not one of the plain cases.
    pub fn push(&mut self, tally: &mut Tally, row: &RowView<'_>, env: &Env<'_>) -> Result<Pushed, EvalError> {
        let item = match through(&mut self.stages, Item::Row(row)) {
            Ok(Some(item)) => item,
            Ok(None) => return Ok(Pushed::Done),
            Err(NotPlain) => return Ok(Pushed::Remains(0)),
        };
        let done = match (&mut self.end, tally) {
            (End::Rest(step), _) => return Ok(Pushed::Remains(*step)),
            (End::Whole(fold), Tally::Whole(partial)) => fold.add(item, |add| {
                add(partial);
                Ok(())
            }),
            (End::Groups { groups, stages, fold }, Tally::Groups { .. }) => {
                groups.push(item, stages, fold, env)
            }
            _ => Ok(Err(NotPlain)),
        };
        Ok(done?.map_or(Pushed::Remains(0), |()| Pushed::Done))
    }

    /// Puts what is only known here into `tally`. To be called after the last row.
    pub fn finish(self, pipeline: &Pipeline, tally: &mut Tally, env: &Env<'_>) -> Result<(), EvalError> {
        match self.end {
            End::Groups { groups, .. } => pipeline.merge(tally, groups.into_tally(), env),
            End::Whole(_) | End::Rest(_) => Ok(()),
        }
    }
}

impl End {
    fn of(pipeline: &Pipeline, stages: &[Stage], env: &Env<'_>) -> Option<End> {
        let maps = |stages: &[Stage]| stages.iter().any(|stage| matches!(stage, Stage::Map(_)));
        let Some(by) = &pipeline.group else {
            return Fold::of(&pipeline.terminal, maps(stages), env).map(End::Whole);
        };
        if maps(stages) {
            return None;
        }
        let groups = Groups::of(by, &pipeline.terminal)?;
        let stages = stage::stages(&pipeline.grouped_steps, env);
        if stages.len() < pipeline.grouped_steps.len() {
            return None;
        }
        let fold = Fold::of(&pipeline.terminal, maps(&stages), env)?;
        Some(End::Groups { groups, stages, fold })
    }
}
