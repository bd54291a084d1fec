//! `get_field` and `bracket` on one item, and the type errors of all terms over objects.

use datum::{Datum, Object, Text};

use crate::EvalError;
use crate::args::Args;

/// `get_field`: the value of one field of an object.
pub fn get_field(args: &Args<'_>) -> Result<Datum, EvalError> {
    field_of(args.datum(0)?, args.string(1)?, "get_field")
}

/// `bracket`: a field of an object by name, an item of an array by position.
pub fn bracket(args: &Args<'_>) -> Result<Datum, EvalError> {
    match args.datum(1)? {
        Datum::String(field) => field_of(args.datum(0)?, field, "bracket"),
        Datum::Number(_) => nth(args),
        other => Err(EvalError::typed(
            other,
            format!(
                "Expected NUMBER or STRING as second argument to `bracket` but found {}.",
                other.kind().name()
            ),
        )),
    }
}

/// The field of `item`, which must be an object; `term` names the caller in messages.
pub fn field_of(item: &Datum, field: &Text, term: &'static str) -> Result<Datum, EvalError> {
    let object = object_of(item, term)?;
    object.get(field).ok_or_else(|| EvalError::no_attribute(field, object))
}

/// `item` as an object; `term` names the caller in messages.
pub fn object_of<'d>(item: &'d Datum, term: &'static str) -> Result<&'d Object, EvalError> {
    match item {
        Datum::Object(object) => Ok(object),
        other => Err(not_an_object(other, term)),
    }
}

fn not_an_object(item: &Datum, term: &'static str) -> EvalError {
    match item {
        Datum::Time(_) | Datum::Geometry(_) => {
            EvalError::logic(format!("Cannot call `{term}` on objects of type `{}`.", item.kind().name()))
        }
        Datum::Array(_) => EvalError::logic(format!("Cannot perform {term} on a sequence of sequences.")),
        _ => EvalError::typed(
            item,
            format!("Cannot perform {term} on a non-object non-sequence `{}`.", item.truncated()),
        ),
    }
}

fn nth(args: &Args<'_>) -> Result<Datum, EvalError> {
    let index = i64::from(args.narrow(1)?);
    let Datum::Array(items) = args.datum(0)? else {
        let found = args.datum(0)?;
        let message = format!("Cannot convert {} to SEQUENCE", found.kind().name());
        return Err(EvalError::typed(found, message));
    };
    let from_end = if index < 0 { index + items.len() as i64 } else { index };
    let item = usize::try_from(from_end).ok().and_then(|position| items.get(position));
    item.cloned().ok_or_else(|| EvalError::out_of_bounds(index))
}
