//! Reads the optional arguments of writes.

use datum::Datum;
use log::Durability;
use reql::EvalError;

use crate::edit::{ReturnChanges, WriteOptions};
use crate::value::Args;

/// The options of a write term, checked in the order of RethinkDB (terms/writes.cc).
pub(crate) fn write_options(args: &Args<'_>) -> Result<WriteOptions, EvalError> {
    write_options_showing(return_changes(args)?, args)
}

/// The options of a write term whose `return_changes` was read before.
pub(crate) fn write_options_showing(
    return_changes: ReturnChanges,
    args: &Args<'_>,
) -> Result<WriteOptions, EvalError> {
    let durability = durability_of(args)?;
    Ok(WriteOptions { durability, return_changes, ignore_hook: args.flag("ignore_write_hook")? })
}

/// The durability option of a term.
pub(crate) fn durability_of(args: &Args<'_>) -> Result<Option<Durability>, EvalError> {
    let Some(name) = args.optional_string("durability")? else {
        return Ok(None);
    };
    durability_named(&name).map(Some).map_err(|error| args.at_optarg("durability", error))
}

/// `hard` or `soft`; any other name is an error.
pub(crate) fn durability_named(name: &str) -> Result<Durability, EvalError> {
    match name {
        "hard" => Ok(Durability::Hard),
        "soft" => Ok(Durability::Soft),
        other => Err(EvalError::logic(format!(
            "Durability option `{other}` unrecognized (options are \"hard\" and \"soft\")."
        ))),
    }
}

/// The `return_changes` option of a term.
pub(crate) fn return_changes(args: &Args<'_>) -> Result<ReturnChanges, EvalError> {
    if args.has_optarg("return_vals") {
        return Err(EvalError::logic(
            "Error: encountered obsolete optarg `return_vals`.  Use `return_changes` instead.",
        ));
    }
    match args.optional_datum("return_changes")? {
        Some(Datum::String(text)) if text == "always" => Ok(ReturnChanges::Always),
        Some(Datum::String(text)) => Err(EvalError::logic(format!(
            "Invalid return_changes value `{text}` (options are `true`, `false`, and `'always'`.)"
        ))),
        Some(other) if other.is_truthy() => Ok(ReturnChanges::Changed),
        _ => Ok(ReturnChanges::No),
    }
}
