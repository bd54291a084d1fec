//! Runs simple pipelines directly on stored rows: filters, maps, groups and sums of plain fields read the stored
//! bytes, without making a datum, copying, or counting references.
//!
//! A [`Direct`] handles only plain cases. It rejects a row that is not one (with a nested value, or anything that
//! would be an error) before it changes anything. The caller then pushes the row as an item through the general
//! pipeline, which gives the right result or error.

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
use stage::{DirectStage, NotPlain, stages, through};

/// The part of a pipeline that can run on stored rows. Belongs to one thread.
pub struct Direct {
    stages: Vec<DirectStage>,
    end: End,
}

/// How the remaining items are processed.
enum End {
    /// All items contribute to one aggregate.
    Whole(Fold),
    /// Each group has an aggregate.
    Groups { groups: Groups, stages: Vec<DirectStage>, fold: Fold },
    /// They go through the general pipeline, from this step on.
    Rest(usize),
}

/// The result of pushing a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The row was counted or filtered out.
    Done,
    /// Nothing was done: the caller must push the row as an item, starting at this step.
    Remains(usize),
}

impl Direct {
    /// The part of `pipeline` that can run on stored rows, or `None` if it gains nothing.
    #[must_use]
    pub fn of(pipeline: &Pipeline, env: &Env<'_>) -> Option<Direct> {
        let stages = stages(&pipeline.steps, env);
        if stages.len() == pipeline.steps.len()
            && let Some(end) = End::of(pipeline, &stages, env)
        {
            return Some(Direct { stages, end });
        }
        // Filters alone are worth it: they may leave few rows for the other steps.
        let filters = stages.iter().take_while(|stage| matches!(stage, DirectStage::Filter { .. })).count();
        let stages: Vec<DirectStage> = stages.into_iter().take(filters).collect();
        (filters > 0).then_some(Direct { stages, end: End::Rest(filters) })
    }

    /// Offset from the start of a row to the first field that is read, in the previous row: a good guess for the
    /// next one (used for prefetching). `None` if no field is read.
    #[must_use]
    pub fn first_field_offset(&self) -> Option<usize> {
        let first = self.stages.iter().find_map(DirectStage::first_field);
        let first = first.or_else(|| match &self.end {
            End::Whole(fold) => fold.first_field(),
            End::Groups { groups, .. } => groups.first_field(),
            End::Rest(_) => None,
        });
        first.map(|position| position.offset())
    }

    /// Adds `row` to `tally`, unless it is not a plain case.
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

    /// Moves the groups collected here into `tally`. Must be called after the last row.
    pub fn finish(self, pipeline: &Pipeline, tally: &mut Tally, env: &Env<'_>) -> Result<(), EvalError> {
        match self.end {
            End::Groups { groups, .. } => pipeline.merge(tally, groups.into_tally(), env),
            End::Whole(_) | End::Rest(_) => Ok(()),
        }
    }
}

impl End {
    fn of(pipeline: &Pipeline, stages: &[DirectStage], env: &Env<'_>) -> Option<End> {
        let maps = |stages: &[DirectStage]| stages.iter().any(|stage| matches!(stage, DirectStage::Map(_)));
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
