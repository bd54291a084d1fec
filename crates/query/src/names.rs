//! What databases and tables may be called.

use reql::EvalError;

/// Fails unless `name` may be a name of `what` (`Database`, `Table`).
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), EvalError> {
    if is_name(name) {
        return Ok(());
    }
    let why = format!("{what} name `{name}` invalid (Use A-Z, a-z, 0-9, _ and - only).");
    Err(EvalError::logic(why))
}

/// Whether `name` may be a name.
pub(crate) fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.chars().all(legal)
}
