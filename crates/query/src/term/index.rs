//! Secondary indexes and write hooks, which do not exist yet: lists are empty, waiting finds
//! everything ready, and the rest says so.

use datum::{Datum, Text};
use reql::EvalError;

use crate::args::Args;
use crate::value::Value;

/// `index_list`: the names of a table's secondary indexes.
pub(crate) fn index_list(mut args: Args<'_>) -> Result<Value, EvalError> {
    args.table(0)?;
    Ok(Value::Datum(Datum::empty_array()))
}

/// `index_status` and `index_wait`: what is known of the named indexes, or of all.
pub(crate) fn index_status(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    if args.len() > 1 {
        let name = args.string(1)?;
        return Err(table.index_missing(&name));
    }
    Ok(Value::Datum(Datum::empty_array()))
}

/// `index_drop`: always an error, because there is nothing to drop.
pub(crate) fn index_drop(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    let name: Text = args.string(1)?;
    let (db, table) = (table.db_name().to_owned(), table.name().to_owned());
    Err(EvalError::op_failed(format!("Index `{name}` does not exist on table `{db}.{table}`.")))
}

/// `index_create`, `index_rename`, `set_write_hook`: not there yet.
pub(crate) fn not_yet(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    if let Some(Value::Datum(Datum::String(name))) = args.peek(1) {
        if *name == table.primary_key() {
            let why = format!("Index name conflict: `{name}` is the name of the primary key.");
            return Err(EvalError::logic(why));
        }
    }
    Err(EvalError::not_yet(args.op()))
}

/// `get_write_hook`: there is none.
pub(crate) fn get_write_hook(mut args: Args<'_>) -> Result<Value, EvalError> {
    args.table(0)?;
    Ok(Value::Datum(Datum::Null))
}
