//! The optional arguments that writes share.

use datum::Datum;
use log::Durability;
use reql::EvalError;

use crate::args::Args;
use crate::edit::ReturnChanges;

/// The options of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOptions {
    /// What the write waits for; `None` leaves it to the table.
    pub durability: Option<Durability>,
    /// What it shows of the rows.
    pub return_changes: ReturnChanges,
    /// Whether the table's write hook has no say in it.
    pub ignore_hook: bool,
}

impl WriteOptions {
    /// The options given to a write term.
    pub fn of(args: &Args<'_>) -> Result<WriteOptions, EvalError> {
        if args.has_optarg("return_vals") {
            return Err(EvalError::logic(
                "Error: encountered obsolete optarg `return_vals`.  Use `return_changes` instead.",
            ));
        }
        Ok(WriteOptions {
            durability: durability_of(args)?,
            return_changes: return_changes(args)?,
            ignore_hook: args.flag("ignore_write_hook")?,
        })
    }
}

/// The durability a term asks for.
pub(crate) fn durability_of(args: &Args<'_>) -> Result<Option<Durability>, EvalError> {
    let Some(name) = args.optional_string("durability")? else {
        return Ok(None);
    };
    durability_named(&name).map(Some).map_err(|error| error.at("durability"))
}

/// The durability of that name.
pub(crate) fn durability_named(name: &str) -> Result<Durability, EvalError> {
    match name {
        "hard" => Ok(Durability::Hard),
        "soft" => Ok(Durability::Soft),
        other => Err(EvalError::logic(format!(
            "Durability option `{other}` unrecognized (options are \"hard\" and \"soft\")."
        ))),
    }
}

fn return_changes(args: &Args<'_>) -> Result<ReturnChanges, EvalError> {
    match args.optional_datum("return_changes")? {
        None | Some(Datum::Bool(false)) => Ok(ReturnChanges::No),
        Some(Datum::Bool(true)) => Ok(ReturnChanges::Changed),
        Some(Datum::String(text)) if text == "always" => Ok(ReturnChanges::Always),
        Some(other) => {
            let shown = match &other {
                Datum::String(text) => text.to_string(),
                other => other.pretty(),
            };
            let why = format!(
                "Invalid return_changes value `{shown}` (options are `true`, `false`, and `'always'`.)"
            );
            Err(EvalError::logic(why))
        }
    }
}
