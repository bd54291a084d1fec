//! `merge` and `literal`: merge one object into another.
//!
//! Objects merge member by member, any other value on the right replaces, and a literal on the right replaces
//! without merging, or removes. Writes use [`merge_datums`] too.

use datum::{Datum, Object, ObjectBuilder, Text, pseudo};

use super::field::object_of;
use crate::EvalError;
use crate::args::{Arg, Args};
use crate::deep;
use crate::env::Cancel;
use crate::walk::Walk;

/// `merge`: merges objects from left to right. A function is called with the result so far.
pub fn merge(args: &Args<'_>) -> Result<Datum, EvalError> {
    let first = args.datum(0)?;
    merge_item(first, args)
}

/// Merges the arguments after the first into `item`, which must be an object.
pub fn merge_item(item: &Datum, args: &Args<'_>) -> Result<Datum, EvalError> {
    object_of(item, "merge")?;
    let mut merged = item.clone();
    for (i, layer) in args.values.iter().enumerate().skip(1) {
        let called;
        let layer = match layer {
            Arg::Datum(layer) => layer,
            Arg::Func(func) => {
                called = func.call(std::slice::from_ref(&merged), args.env).map_err(|error| error.at(i))?;
                &called
            }
        };
        check_layer(layer).map_err(|error| error.at(i))?;
        merged = merge_datums(&merged, layer, args.env.cancel)?;
    }
    Ok(merged)
}

/// Merges `over` into the row `under`, as `update` does.
pub fn merge_row(under: &Datum, over: &Datum) -> Result<Datum, EvalError> {
    check_layer(over)?;
    merge_outermost(under, over, Walk::of_thread())
}

/// Fails if the value to merge is itself a time or geometry. They are allowed as members of it.
fn check_layer(layer: &Datum) -> Result<(), EvalError> {
    match layer {
        Datum::Time(_) | Datum::Geometry(_) => {
            let kind = layer.kind().name();
            Err(EvalError::logic(format!("Cannot merge objects of type `{kind}`.")))
        }
        _ => Ok(()),
    }
}

/// `literal`: in a merge, replaces the value it is merged into, or removes it.
pub fn literal(args: &Args<'_>) -> Result<Datum, EvalError> {
    let mut members = ObjectBuilder::new();
    members.insert(Text::from_static(pseudo::KEY), Datum::from(pseudo::LITERAL));
    if !args.is_empty() {
        let value = args.datum(0)?;
        if pseudo::holds_literal(value) {
            return Err(stray_literal());
        }
        members.insert(Text::from_static(pseudo::LITERAL_VALUE), value.clone());
    }
    Ok(Datum::Object(members.build()))
}

/// The value of merged members, according to their `$reql_type$`.
pub(super) fn typed(members: Object) -> Result<Datum, EvalError> {
    pseudo::from_object(members).map_err(wrong_pseudotype)
}

/// The error for an object with a `$reql_type$` that is not such a value, with this reason. A required member of a geometry that is
/// missing or null is a NON_EXISTENCE error.
pub(super) fn wrong_pseudotype(why: String) -> EvalError {
    match why.ends_with("not found in geometry object.") || why.ends_with("found NULL.") {
        true => EvalError::non_existence(why),
        false => EvalError::logic(why),
    }
}

/// The error for a literal where none is allowed.
#[must_use]
pub fn stray_literal() -> EvalError {
    EvalError::logic(
        "Stray literal keyword found: literal is only legal inside of the object passed to merge \
         or update and cannot nest inside other literals.",
    )
}

/// Merges `over` into `under`. Times and geometries count as objects here, as in RethinkDB: they merge member by
/// member, and the result is validated. Binaries do not. Source: `default_merge_unchecked_stack` in datum.cc of
/// RethinkDB 2.4.
pub fn merge_datums(under: &Datum, over: &Datum, cancel: &Cancel) -> Result<Datum, EvalError> {
    merge_outermost(under, over, Walk::until(cancel))
}

fn merge_outermost(under: &Datum, over: &Datum, walk: Walk<'_>) -> Result<Datum, EvalError> {
    match over {
        Datum::Object(over) if pseudo::is_literal(over) => Err(stray_literal()),
        over if has_members(over) && has_members(under) => merge_members(under, over, walk),
        over => Ok(without_literals(over.clone(), walk)?.unwrap_or(Datum::Null)),
    }
}

/// Whether a value counts as an object: times and geometries do.
pub(crate) fn has_members(value: &Datum) -> bool {
    matches!(value, Datum::Object(_) | Datum::Time(_) | Datum::Geometry(_))
}

/// Merges two values that have members.
fn merge_members(under: &Datum, over: &Datum, walk: Walk<'_>) -> Result<Datum, EvalError> {
    match (under, over) {
        (Datum::Object(under), Datum::Object(over)) => {
            merge_objects(&walk.read(under), &walk.read(over), walk).map(Datum::Object)
        }
        // All members of the first are replaced.
        (Datum::Time(_), Datum::Time(_)) => Ok(over.clone()),
        _ => {
            let (Some(under), Some(over)) = (pseudo::to_object(under), pseudo::to_object(over)) else {
                return Err(EvalError::internal("there are no members to merge"));
            };
            typed(merge_objects(&under.to_tree(), &over, walk)?)
        }
    }
}

fn merge_objects(under: &Object, over: &Object, walk: Walk<'_>) -> Result<Object, EvalError> {
    // Unchanged members are not read: a stored row is changed by copying its text.
    let mut changes = Vec::with_capacity(over.len());
    for (field, layer) in over.iter() {
        let value = match &layer {
            Datum::Object(literal) if pseudo::is_literal(literal) => literal_value(literal)?,
            inner if has_members(inner) => match under.get(&field) {
                Some(below) if has_members(&below) => {
                    let walk = walk.deeper()?;
                    Some(deep::level(|| merge_members(&below, inner, walk))?)
                }
                _ => without_literals(layer, walk)?,
            },
            _ => without_literals(layer, walk)?,
        };
        changes.push((field, value));
    }
    Ok(under.with_changes(changes))
}

/// The replacement in a literal; `None` if it removes.
fn literal_value(literal: &Object) -> Result<Option<Datum>, EvalError> {
    match literal.get(pseudo::LITERAL_VALUE) {
        Some(value) if pseudo::holds_literal(&value) => Err(stray_literal()),
        value => Ok(value),
    }
}

/// `value` with every literal in it resolved; `None` if it is itself a literal that removes.
fn without_literals(value: Datum, walk: Walk<'_>) -> Result<Option<Datum>, EvalError> {
    if !pseudo::holds_literal(&value) {
        return Ok(Some(value));
    }
    let walk = walk.deeper()?;
    deep::level(|| match value {
        Datum::Object(literal) if pseudo::is_literal(&literal) => literal_value(&literal),
        Datum::Object(object) => {
            let mut kept = ObjectBuilder::new();
            for (field, value) in object.iter() {
                if let Some(value) = without_literals(value, walk)? {
                    kept.insert(field, value);
                }
            }
            Ok(Some(Datum::Object(kept.build())))
        }
        Datum::Array(items) => {
            let mut kept = Vec::with_capacity(items.len());
            for item in items.iter() {
                kept.extend(without_literals(item.clone(), walk)?);
            }
            Ok(Some(Datum::from(kept)))
        }
        other => Ok(Some(other)),
    })
}
