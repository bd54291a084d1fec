//! How an item contributes to an aggregate.

use datum::row::FieldPosition;
use datum::{Datum, Scalar};

use super::expr::{Expr, Item, Stop};
use super::stage::NotPlain;
use crate::env::Env;
use crate::error::EvalError;
use crate::select::Selector;
use crate::terminal::{Partial, Terminal};

/// How an item contributes.
pub(super) enum Fold {
    Count,
    /// Contributes a number: for sums and means.
    Number(Expr),
}

impl Fold {
    /// The contribution to `terminal`. `mapped` tells whether items are values instead of rows.
    pub(super) fn of(terminal: &Terminal, mapped: bool, env: &Env<'_>) -> Option<Fold> {
        match terminal {
            Terminal::Count => Some(Fold::Count),
            Terminal::Sum(selector) | Terminal::Avg(selector) => match selector {
                None => mapped.then_some(Fold::Number(Expr::item())),
                Some(Selector::Field(Datum::String(name))) => {
                    (!mapped).then(|| Fold::Number(Expr::field(name.clone())))
                }
                Some(Selector::Field(_)) => None,
                Some(Selector::Func(closure)) => Expr::of_closure(closure, env).map(Fold::Number),
            },
            _ => None,
        }
    }

    /// The position, in the previous row, of the first field that is read, if any.
    pub(super) fn first_field(&self) -> Option<FieldPosition> {
        match self {
            Fold::Count => None,
            Fold::Number(expr) => expr.first_field(),
        }
    }

    /// Calls `take` with a function that counts `item`, unless the item does not contribute.
    pub(super) fn add(
        &mut self,
        item: Item<'_>,
        take: impl FnOnce(&dyn Fn(&mut Partial)) -> Result<(), EvalError>,
    ) -> Result<Result<(), NotPlain>, EvalError> {
        let number = match self {
            Fold::Count => {
                return take(&|partial| {
                    if let Partial::Count(count) = partial {
                        *count += 1;
                    }
                })
                .map(Ok);
            }
            Fold::Number(expr) => match expr.eval(item) {
                Ok(Scalar::Number(number)) => number,
                // A missing or null value does not contribute.
                Ok(Scalar::Null) | Err(Stop::Missing) => return Ok(Ok(())),
                Ok(_) | Err(Stop::NotPlain) => return Ok(Err(NotPlain)),
            },
        };
        take(&|partial| {
            if let Partial::Sum { sum, count } = partial {
                *sum += number;
                *count += 1;
            }
        })
        .map(Ok)
    }
}
