//! Helpers for rows of system tables: creating them, and checking the fields of written ones.

use datum::{Datum, Object, Text};
use reql::EvalError;
use uuid::Uuid;

use crate::value::is_name;

/// The field `error` of a row about a server that does not respond. Source: docs/reql-spec.md section 14.
pub(super) const NO_ANSWER: &str = "Timed out. Unable to retrieve stats.";

pub(super) fn object<const N: usize>(fields: [(&'static str, Datum); N]) -> Object {
    fields.into_iter().map(|(name, value)| (Text::from_static(name), value)).collect()
}

pub(super) fn strings<I: IntoIterator<Item = Text>>(items: I) -> Datum {
    items.into_iter().map(Datum::String).collect::<Vec<_>>().into()
}

/// A required field of a row.
pub(super) fn field(row: &Object, name: &str) -> Result<Datum, EvalError> {
    row.get(name).ok_or_else(|| EvalError::op_failed(format!("Expected a field named `{name}`.")))
}

/// `value` as a name; `what` is `"table name"`, `"server name"`.
pub(super) fn name_of(value: &Datum, what: &str) -> Result<Text, EvalError> {
    let shown = || value.pretty();
    match value {
        Datum::String(name) if is_name(name) => Ok(name.clone()),
        Datum::String(_) => Err(EvalError::op_failed(format!(
            "{} is not a valid {what}; Use A-Z, a-z, 0-9, _ and - only",
            shown()
        ))),
        _ => Err(EvalError::op_failed(format!("Expected a {what}; got {}", shown()))),
    }
}

/// The name in field `name` of a row.
pub(super) fn named(row: &Object, what: &str) -> Result<Text, EvalError> {
    name_of(&field(row, "name")?, what).map_err(|error| error.prefixed("In `name`: "))
}

/// Fails unless `value` is a string.
pub(super) fn text_of(value: &Datum) -> Result<Text, EvalError> {
    match value {
        Datum::String(text) => Ok(text.clone()),
        other => Err(EvalError::op_failed(format!("Expected a string; got {}", other.pretty()))),
    }
}

/// `value` as an id.
pub(super) fn uuid_of(value: &Datum) -> Result<Uuid, EvalError> {
    let id = match value {
        Datum::String(text) => Uuid::parse_str(text).ok(),
        _ => None,
    };
    id.ok_or_else(|| EvalError::op_failed(format!("Expected a UUID; got {}", value.pretty())))
}

/// `value` as the items of an array.
pub(super) fn items_of(value: &Datum) -> Result<&[Datum], EvalError> {
    match value {
        Datum::Array(items) => Ok(items),
        other => Err(EvalError::op_failed(format!("Expected an array, got {}", other.pretty()))),
    }
}

/// A required field of a row, as a text.
pub(super) fn string(row: &Object, name: &str) -> Result<Text, EvalError> {
    text_of(&field(row, name)?).map_err(|error| error.prefixed(&format!("In `{name}`: ")))
}

/// As [`only`], with the message of the tables `users` and `permissions`.
pub(super) fn nothing_but(row: &Object, known: &[&str]) -> Result<(), EvalError> {
    let unknown = others(row, known);
    if unknown.is_empty() {
        return Ok(());
    }
    Err(EvalError::op_failed(format!("Unexpected key(s) `{}`.", unknown.join("`, `"))))
}

/// Fails if `row` has other fields than these. It is checked last.
pub(super) fn only(row: &Object, known: &[&str]) -> Result<(), EvalError> {
    let unknown = others(row, known);
    if unknown.is_empty() {
        return Ok(());
    }
    Err(EvalError::op_failed(format!("Unexpected key(s): {}", unknown.join(" "))))
}

fn others(row: &Object, known: &[&str]) -> Vec<Text> {
    row.keys().filter(|key| !known.contains(&key.as_ref())).collect()
}
