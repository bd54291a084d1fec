//! What databases and tables may be called.

use reql::EvalError;

/// Fails unless `name` may be a name of `what` (`Database`, `Table`).
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), EvalError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(legal) {
        return Ok(());
    }
    let why = format!("{what} name `{name}` invalid (Use A-Z, a-z, 0-9, _ and - only).");
    Err(EvalError::logic(why))
}
