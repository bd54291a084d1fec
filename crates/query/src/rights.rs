//! Permissions as ReQL writes them: objects of `read`, `write`, `config` and `connect`.

use cluster::Permissions;
use datum::{Datum, Object, Text};
use reql::EvalError;

/// A change to permissions: a name, and what it becomes; `None` unsets it.
pub(crate) struct RightsChange(Vec<(Text, Option<bool>)>);

impl RightsChange {
    /// The change an object describes. `connect` exists only at the global scope.
    pub fn read(object: &Object, is_global: bool) -> Result<RightsChange, EvalError> {
        let mut changes = Vec::new();
        let mut unknown = Vec::new();
        for (name, value) in object.iter() {
            match name.as_ref() {
                "read" | "write" | "config" => changes.push((name, value)),
                "connect" if is_global => changes.push((name, value)),
                "connect" => {
                    let why = "The `connect` permission is only valid at the global scope.";
                    return Err(EvalError::op_failed(why));
                }
                _ => unknown.push(name),
            }
        }
        if !unknown.is_empty() {
            return Err(EvalError::op_failed(format!("Unexpected key(s) `{}`.", unknown.join("`, `"))));
        }
        let flags = changes.into_iter().map(|(name, value)| flag(name, &value));
        flags.collect::<Result<_, _>>().map(RightsChange)
    }

    /// `before` with this change.
    pub fn apply(&self, before: Permissions) -> Permissions {
        let mut after = before;
        for (name, value) in &self.0 {
            match name.as_ref() {
                "read" => after.read = *value,
                "write" => after.write = *value,
                "config" => after.config = *value,
                _ => after.connect = *value,
            }
        }
        after
    }
}

fn flag(name: Text, value: &Datum) -> Result<(Text, Option<bool>), EvalError> {
    match value {
        Datum::Null => Ok((name, None)),
        Datum::Bool(flag) => Ok((name, Some(*flag))),
        other => {
            let shown = other.pretty();
            Err(EvalError::op_failed(format!("Expected a boolean or null for `{name}`, got {shown}.")))
        }
    }
}

/// Permissions as a grant answers them: the set ones, or null when none is.
pub(crate) fn rights_datum(permissions: &Permissions) -> Datum {
    if permissions.is_unset() { Datum::Null } else { Datum::Object(permissions.to_object()) }
}
