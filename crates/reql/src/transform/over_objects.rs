//! Terms over objects: applied to a sequence they process each of its items.
//!
//! RethinkDB turns such a term into a function and calls it with each item, so that its other arguments are
//! evaluated again for every item. This is visible if one of them is random or fails. Source:
//! `make_obj_or_seq_func` in terms/obj_or_seq.cc of RethinkDB 2.4.

use datum::{Datum, pseudo};

use super::Transform;
use crate::args::{Arg, Args};
use crate::closure::Closure;
use crate::env::Env;
use crate::error::EvalError;
use crate::op::field::object_of;
use crate::op::geo::{Relation, ShapeTest};
use crate::op::merge::stray_literal;
use crate::op::pathspec::PathSpec;
use crate::signature::Op;

/// Whether `op` is a term over objects that checks its first argument before the others.
#[must_use]
pub fn is_over_objects(op: Op) -> bool {
    matches!(
        op,
        Op::GetField
            | Op::Pluck
            | Op::Without
            | Op::HasFields
            | Op::WithFields
            | Op::Merge
            | Op::Intersects
            | Op::Includes
    )
}

/// Fails if `op` is such a term and does not accept `item`.
pub fn check_object(op: Op, item: &Datum) -> Result<(), EvalError> {
    match op {
        Op::Intersects | Op::Includes => shape_test(op, &Datum::Null).check(item),
        op => name_of(op).map_or(Ok(()), |name| object_of(item, name).map(drop)),
    }
}

/// The name of such a term in messages.
pub(super) fn name_of(op: Op) -> Option<&'static str> {
    Some(match op {
        Op::GetField => "get_field",
        Op::Pluck => "pluck",
        Op::Without => "without",
        Op::HasFields | Op::WithFields => "has_fields",
        Op::Merge => "merge",
        Op::Intersects => Relation::Intersects.term(),
        Op::Includes => Relation::Includes.term(),
        _ => return None,
    })
}

/// The step of such a term with these arguments, the first of which is a placeholder for the item.
pub(crate) fn step_of(op: Op, args: &Args<'_>) -> Result<Transform, EvalError> {
    Ok(match op {
        Op::GetField => Transform::Field { name: args.string(1)?.clone(), term: "get_field" },
        Op::Pluck => Transform::Pluck(PathSpec::of_args(args, 1)?),
        Op::Without => Transform::Without(PathSpec::of_args(args, 1)?),
        Op::HasFields => Transform::HasFields(PathSpec::of_args(args, 1)?),
        Op::WithFields => Transform::WithFields(PathSpec::of_args(args, 1)?),
        Op::Merge => Transform::Merge(args.values.to_vec()),
        Op::Intersects | Op::Includes => Transform::Shape(shape_test(op, args.datum(1)?)),
        _ => return Err(EvalError::internal(format!("{} is not over objects", op.name()))),
    })
}

fn shape_test(op: Op, argument: &Datum) -> ShapeTest {
    let relation = if op == Op::Intersects { Relation::Intersects } else { Relation::Includes };
    ShapeTest::new(relation, argument)
}

/// Such a term with arguments that are evaluated for every item.
#[derive(Clone, Debug)]
pub struct PerItem {
    /// The term.
    pub op: Op,
    /// All its arguments but the first, as functions without parameters.
    pub args: Vec<Closure>,
}

impl PerItem {
    /// The step for this item.
    pub(super) fn for_item(&self, item: &Datum, env: &Env<'_>) -> Result<Transform, EvalError> {
        check_object(self.op, item)?;
        let mut values = vec![Arg::Datum(Datum::Null)];
        for (i, arg) in self.args.iter().enumerate() {
            let value = arg.call(&[], env).map_err(|error| error.at(i + 1))?;
            if pseudo::holds_literal(&value) {
                return Err(stray_literal().at(i + 1));
            }
            values.push(Arg::Datum(value));
        }
        step_of(self.op, &Args::new(&values, &[], env))
    }

    /// Whether items in which something is missing are dropped.
    pub(super) fn leaves_out(&self) -> bool {
        !matches!(self.op, Op::Pluck | Op::Without | Op::Merge)
    }
}
