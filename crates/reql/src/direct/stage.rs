//! Steps that are plain functions of a row, or of the result of an earlier step.

use datum::Datum;
use datum::row::FieldPosition;

use super::expr::{Expr, Item, Stop};
use crate::env::Env;
use crate::select::{Filter, FilterTest, OnMissing, Predicate};
use crate::transform::Transform;

/// The row must go through the general pipeline.
pub(super) struct NotPlain;

/// A plain step.
pub(super) enum DirectStage {
    Filter { test: Expr, on_missing: IfMissing },
    Map(Expr),
}

/// How a filter treats an item that lacks a needed field.
#[derive(Clone, Copy)]
pub(super) enum IfMissing {
    Drop,
    Keep,
    /// The item goes through the general pipeline.
    Ask,
}

/// The leading steps that are plain.
pub(super) fn stages(steps: &[Transform], env: &Env<'_>) -> Vec<DirectStage> {
    steps.iter().map_while(|step| DirectStage::of(step, env)).collect()
}

impl DirectStage {
    /// The position, in the previous row, of the first field that is read, if any.
    pub(super) fn first_field(&self) -> Option<FieldPosition> {
        let (DirectStage::Filter { test: expr, .. } | DirectStage::Map(expr)) = self;
        expr.first_field()
    }

    fn of(step: &Transform, env: &Env<'_>) -> Option<DirectStage> {
        match step {
            Transform::Filter(filter) | Transform::Matching(Predicate::Filter(filter)) => {
                let on_missing = match filter.on_missing {
                    OnMissing::Drop => IfMissing::Drop,
                    OnMissing::Keep => IfMissing::Keep,
                    OnMissing::Raise | OnMissing::Fail(_) => IfMissing::Ask,
                };
                Some(DirectStage::Filter { test: test(filter, env)?, on_missing })
            }
            Transform::Map(closure) => Expr::of_closure(closure, env).map(DirectStage::Map),
            _ => None,
        }
    }
}

fn test(filter: &Filter, env: &Env<'_>) -> Option<Expr> {
    match &filter.test {
        FilterTest::Truth(closure) => Expr::of_closure(closure, env),
        FilterTest::Value(Datum::Object(pattern)) => Expr::of_pattern(pattern),
        FilterTest::Value(_) | FilterTest::Pattern(_) | FilterTest::NotIn(_) => None,
    }
}

/// Runs an item through `stages`; `None` if a filter drops it.
pub(super) fn through<'a>(
    stages: &'a mut [DirectStage],
    mut item: Item<'a>,
) -> Result<Option<Item<'a>>, NotPlain> {
    for stage in stages {
        match stage {
            DirectStage::Map(expr) => match expr.eval(item) {
                Ok(value) => item = Item::Value(value),
                Err(Stop::Missing | Stop::NotPlain) => return Err(NotPlain),
            },
            DirectStage::Filter { test, on_missing } => match (test.eval(item), on_missing) {
                (Ok(value), _) if value.is_truthy() => {}
                (Ok(_), _) | (Err(Stop::Missing), IfMissing::Drop) => return Ok(None),
                (Err(Stop::Missing), IfMissing::Keep) => {}
                (Err(Stop::Missing), IfMissing::Ask) | (Err(Stop::NotPlain), _) => return Err(NotPlain),
            },
        }
    }
    Ok(Some(item))
}
