//! Permissions as ReQL objects with `read`, `write`, `config` and `connect`.

use cluster::Permissions;
use datum::{Datum, Object, Text};
use reql::EvalError;

/// A change to permissions: names and new values; `None` unsets a permission.
pub(crate) struct RightsChange(Vec<(Text, Option<bool>)>);

impl RightsChange {
    /// The change that an object describes. `connect` exists only at the global scope.
    pub fn read(object: &Object, is_global: bool) -> Result<RightsChange, EvalError> {
        let mut changes = Vec::new();
        for name in ["read", "write", "config", "connect"] {
            match object.get(name) {
                None => {}
                Some(_) if name == "connect" && !is_global => {
                    let why = "The `connect` permission is only valid at the global scope.";
                    return Err(EvalError::op_failed(why));
                }
                Some(value) => changes.push(flag(Text::from_static(name), &value)?),
            }
        }
        let is_known = |name: &Text| matches!(name.as_ref(), "read" | "write" | "config" | "connect");
        let unknown: Vec<Text> = object.keys().filter(|name| !is_known(name)).collect();
        if !unknown.is_empty() {
            return Err(EvalError::op_failed(format!("Unexpected key(s) `{}`.", unknown.join("`, `"))));
        }
        Ok(RightsChange(changes))
    }

    /// `before` after this change.
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

/// Permissions in the result of `grant`: only the set ones, or null if none is.
pub(crate) fn rights_datum(permissions: &Permissions) -> Datum {
    if permissions.is_unset() { Datum::Null } else { Datum::Object(permissions.to_object()) }
}
