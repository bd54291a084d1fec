//! Making and reading the rows of system tables.

use datum::{Datum, Object, Text};
use reql::EvalError;

/// An object of these fields.
pub(super) fn object<const N: usize>(fields: [(&'static str, Datum); N]) -> Object {
    fields.into_iter().map(|(name, value)| (Text::from_static(name), value)).collect()
}

/// An array of strings.
pub(super) fn strings<I: IntoIterator<Item = Text>>(items: I) -> Datum {
    items.into_iter().map(Datum::String).collect::<Vec<_>>().into()
}

/// A string field of a row.
pub(super) fn string(row: &Object, name: &str) -> Result<Text, EvalError> {
    match row.get(name) {
        Some(Datum::String(text)) => Ok(text),
        Some(other) => {
            let shown = other.pretty();
            Err(EvalError::op_failed(format!("In `{name}`: Expected a string, got {shown}")))
        }
        None => Err(EvalError::op_failed(format!("Expected a field named `{name}`."))),
    }
}

/// Fails if `row` has fields other than these.
pub(super) fn only(row: &Object, known: &[&str]) -> Result<(), EvalError> {
    let unknown: Vec<Text> = row.keys().filter(|key| !known.contains(&key.as_ref())).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(EvalError::op_failed(format!("Unexpected key(s): {}", unknown.join(", "))))
}
