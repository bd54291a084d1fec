//! `pluck`, `without`, `has_fields`, `with_fields` on one item.
//!
//! Sequences apply the same functions to every item, with the same error messages.

use datum::Datum;

use super::field::object_of;
use super::pathspec::PathSpec;
use crate::EvalError;
use crate::args::Args;
use crate::env::Cancel;

/// `pluck`: only the named parts of an object.
pub fn pluck(args: &Args<'_>) -> Result<Datum, EvalError> {
    let spec = PathSpec::of_args(args, 1)?;
    pluck_item(args.datum(0)?, &spec, args.env.cancel)
}

/// `without`: an object without the named parts.
pub fn without(args: &Args<'_>) -> Result<Datum, EvalError> {
    let spec = PathSpec::of_args(args, 1)?;
    without_item(args.datum(0)?, &spec, args.env.cancel)
}

/// `has_fields`: whether an object has all the named parts, and none of them null.
pub fn has_fields(args: &Args<'_>) -> Result<Datum, EvalError> {
    let spec = PathSpec::of_args(args, 1)?;
    item_has_fields(args.datum(0)?, &spec, args.env.cancel).map(Datum::Bool)
}

/// `with_fields`: the named parts of those objects of a sequence that have all of them. Equivalent to `has_fields`,
/// which returns a boolean for one object, followed by `pluck`.
pub fn with_fields(args: &Args<'_>) -> Result<Datum, EvalError> {
    let spec = PathSpec::of_args(args, 1)?;
    let has_them = item_has_fields(args.datum(0)?, &spec, args.env.cancel)?;
    pluck_item(&Datum::Bool(has_them), &spec, args.env.cancel)
}

/// Only the named parts of `item`, which must be an object.
pub fn pluck_item(item: &Datum, spec: &PathSpec, cancel: &Cancel) -> Result<Datum, EvalError> {
    spec.pluck(object_of(item, "pluck")?, cancel).map(Datum::Object)
}

/// `item`, which must be an object, without the named parts.
pub fn without_item(item: &Datum, spec: &PathSpec, cancel: &Cancel) -> Result<Datum, EvalError> {
    spec.without(object_of(item, "without")?, cancel).map(Datum::Object)
}

/// Whether `item`, which must be an object, has all the named parts.
pub fn item_has_fields(item: &Datum, spec: &PathSpec, cancel: &Cancel) -> Result<bool, EvalError> {
    spec.is_in(object_of(item, "has_fields")?, cancel)
}
