//! `config` and `status`: the row of a table or database in the system tables.

use reql::EvalError;

use crate::args::Args;
use crate::row::Row;
use crate::system;
use crate::table::{Identifiers, SystemRef, TableRef};
use crate::term::db_admin::special;
use crate::value::Value;

/// `config`: the writable row of `table_config` or `db_config`.
pub(crate) fn config(mut args: Args<'_>) -> Result<Value, EvalError> {
    match args.take(0)? {
        Value::Db(db) => match db.id {
            Some(id) => row("db_config", &id.to_string()),
            None => Err(special("configure it")),
        },
        Value::Table(slice) if slice.is_whole() => match &slice.table {
            TableRef::Stored(table) => row("table_config", &table.handle.config.id.uuid().to_string()),
            TableRef::System(_) => Err(special("configure the tables in it")),
        },
        other => Err(other.mismatch("TABLE").at(0)),
    }
}

/// `status`: the row of `table_status`.
pub(crate) fn status(mut args: Args<'_>) -> Result<Value, EvalError> {
    match args.table(0)? {
        TableRef::Stored(table) => row("table_status", &table.handle.config.id.uuid().to_string()),
        TableRef::System(_) => Err(special("configure the tables in it")),
    }
}

fn row(table: &str, id: &str) -> Result<Value, EvalError> {
    let table =
        system::table(table).ok_or_else(|| EvalError::internal(format!("no system table {table}")))?;
    let table = TableRef::System(SystemRef { table, identifiers: Identifiers::Name });
    Row::at(table, id.into()).map(Value::Row)
}
