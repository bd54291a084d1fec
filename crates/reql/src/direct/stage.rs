//! Steps that are plain functions of a row, or of what an earlier step made of it.

use datum::Datum;
use datum::row::FieldPlace;

use super::expr::{Expr, Item, Stop};
use crate::env::Env;
use crate::select::{Filter, FilterTest, OnMissing, Predicate};
use crate::transform::Transform;

/// The row must take the way of all items.
pub(super) struct NotPlain;

/// A step every item takes.
pub(super) enum Stage {
    Filter { test: Expr, on_missing: IfMissing },
    Map(Expr),
}

/// What is done with an item about which something needed is missing.
#[derive(Clone, Copy)]
pub(super) enum IfMissing {
    Drop,
    Keep,
    /// It takes the way of all items.
    Ask,
}

/// The steps from the first on that are plain.
pub(super) fn stages(steps: &[Transform], env: &Env<'_>) -> Vec<Stage> {
    steps.iter().map_while(|step| Stage::of(step, env)).collect()
}

impl Stage {
    /// Where the field that is looked at first was in the last row, if any field is.
    pub(super) fn first_field(&self) -> Option<FieldPlace> {
        let (Stage::Filter { test: expr, .. } | Stage::Map(expr)) = self;
        expr.first_field()
    }

    fn of(step: &Transform, env: &Env<'_>) -> Option<Stage> {
        match step {
            Transform::Filter(filter) | Transform::Matching(Predicate::Filter(filter)) => {
                let on_missing = match filter.on_missing {
                    OnMissing::Drop => IfMissing::Drop,
                    OnMissing::Keep => IfMissing::Keep,
                    OnMissing::Raise | OnMissing::Fail(_) => IfMissing::Ask,
                };
                Some(Stage::Filter { test: test(filter, env)?, on_missing })
            }
            Transform::Map(closure) => Expr::of_closure(closure, env).map(Stage::Map),
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

/// What `stages` make of an item, if they let it pass.
pub(super) fn through<'a>(stages: &'a mut [Stage], mut item: Item<'a>) -> Result<Option<Item<'a>>, NotPlain> {
    for stage in stages {
        match stage {
            Stage::Map(expr) => match expr.eval(item) {
                Ok(value) => item = Item::Value(value),
                Err(Stop::Missing | Stop::NotPlain) => return Err(NotPlain),
            },
            Stage::Filter { test, on_missing } => match (test.eval(item), on_missing) {
                (Ok(value), _) if value.is_truthy() => {}
                (Ok(_), _) | (Err(Stop::Missing), IfMissing::Drop) => return Ok(None),
                (Err(Stop::Missing), IfMissing::Keep) => {}
                (Err(Stop::Missing), IfMissing::Ask) | (Err(Stop::NotPlain), _) => return Err(NotPlain),
            },
        }
    }
    Ok(Some(item))
}
