//! `table`: the rows of a table, which are not read yet.

use reql::{Call, EvalError, Op, Term};

use super::db::db_and_table;
use crate::context::Cx;
use crate::routing::ReadMode;
use crate::system;
use crate::table::{Identifiers, StoredTable, SystemRef, TableRef};
use crate::value::{Args, DbRef, Slice, Value};

/// `table`: a table of a database, or of the query's default database.
pub(crate) fn table(mut args: Args<'_>) -> Result<Value, EvalError> {
    if args.has_optarg("use_outdated") || args.cx.has_global("use_outdated") {
        return Err(EvalError::logic(
            "The `use_outdated` optarg is no longer supported.  Use the `read_mode` optarg instead.",
        ));
    }
    let options = TableOptions::of(&args)?;
    let (db, name) = db_and_table(&mut args)?;
    let table = find_table(args.cx, &db, &name, options)?;
    Ok(Value::Table(Slice::whole(table)))
}

/// An error of a slice that is the first argument of `call`. RethinkDB raises it where the table is named, below the terms that
/// made the slice. Source: `table_slice_t` in val.cc of RethinkDB 2.4.
pub(crate) fn at_table(call: &Call, error: EvalError) -> EvalError {
    let mut error = error.at(0);
    let mut first = call.args.first();
    while let Some(Term::Call(call)) = first
        && matches!(call.op, Op::Between | Op::BetweenDeprecated | Op::OrderBy)
    {
        error = error.at(0);
        first = call.args.first();
    }
    error
}

#[derive(Clone, Copy)]
pub(crate) struct TableOptions {
    pub read_mode: ReadMode,
    /// The format of system tables.
    pub identifiers: Identifiers,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions { read_mode: ReadMode::Single, identifiers: Identifiers::Name }
    }
}

impl TableOptions {
    fn of(args: &Args<'_>) -> Result<TableOptions, EvalError> {
        let read_mode = match args.optional_string("read_mode")? {
            Some(name) => ReadMode::parse(&name)?,
            None => ReadMode::Single,
        };
        let identifiers = match args.optional_string("identifier_format")? {
            None => Identifiers::Name,
            Some(name) => match name.as_ref() {
                "name" => Identifiers::Name,
                "uuid" => Identifiers::Uuid,
                other => {
                    return Err(EvalError::logic(format!(
                        "Identifier format `{other}` unrecognized (options are \"name\" and \"uuid\")."
                    )));
                }
            },
        };
        Ok(TableOptions { read_mode, identifiers })
    }
}

/// The table with this name.
pub(crate) fn find_table(
    cx: &Cx,
    db: &DbRef,
    name: &str,
    options: TableOptions,
) -> Result<TableRef, EvalError> {
    if db.id.is_none() {
        let table = system::table(name).ok_or_else(|| missing(db, name))?;
        return Ok(TableRef::System(SystemRef { table, identifiers: options.identifiers }));
    }
    let found = || cx.node().catalog_guard().table(&db.name, name).cloned();
    let handle = cx.retry_with_fresh_catalog(found).ok_or_else(|| missing(db, name))?;
    Ok(TableRef::Stored(StoredTable { handle, read_mode: options.read_mode }))
}

fn missing(db: &DbRef, name: &str) -> EvalError {
    EvalError::op_failed(format!("Table `{}.{name}` does not exist.", db.name))
}
