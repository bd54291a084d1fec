//! Names of databases, tables and users.

use datum::{Text, saslprep};
use reql::EvalError;

use super::args::Args;

/// Fails unless `name` is a valid name of a `what` (`Database`, `Table`).
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), EvalError> {
    if is_name(name) {
        return Ok(());
    }
    let why = format!("{what} name `{name}` invalid (Use A-Z, a-z, 0-9, _ and - only).");
    Err(EvalError::logic(why))
}

/// Argument `i`, which must be a valid name of a `what`.
pub(crate) fn name_at(args: &mut Args<'_>, i: usize, what: &str) -> Result<Text, EvalError> {
    let name = args.string(i)?;
    check_name(what, &name).map_err(|error| error.at(i))?;
    Ok(name)
}

/// Whether `name` is a valid name.
pub(crate) fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.chars().all(legal)
}

/// The name of a user as it is stored and as a login looks it up.
pub(crate) fn user_name(name: &str) -> Result<Text, EvalError> {
    match saslprep(name).as_deref() {
        None => Err(EvalError::op_failed("Invalid username encoding")),
        Some("") => Err(EvalError::op_failed("Empty username")),
        Some(prepared) => Ok(prepared.into()),
    }
}
