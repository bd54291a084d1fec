//! `config` and `status`: the row of a table or database in the system tables.

use datum::Object;
use reql::EvalError;

use crate::access::{self, Need, Place};
use crate::args::Args;
use crate::context::Cx;
use crate::read;
use crate::row::Row;
use crate::system::{self, status_row};
use crate::table::{Identifiers, SystemRef, TableRef};
use crate::term::db_admin::{special, special_because};
use crate::value::Value;

/// `config`: the writable row of `table_config` or `db_config`.
///
/// Who may configure the table or database sees it, whatever they may do in database `rethinkdb`.
pub(crate) fn config(mut args: Args<'_>) -> Result<Value, EvalError> {
    let target = args.take(0)?;
    let cx = args.cx;
    match target {
        Value::Db(db) => match db.id {
            Some(id) => {
                access::check(cx, Need::Config, Place::Db(id))?;
                row(cx, "db_config", &id.to_string())
            }
            None => Err(special("configure it")),
        },
        Value::Table(slice) if slice.is_whole() => match &slice.table {
            TableRef::Stored(table) => {
                access::check(cx, Need::Config, Place::of_table(&slice.table))?;
                row(cx, "table_config", &table.handle.config.id.uuid().to_string())
            }
            TableRef::System(_) => Err(special("configure the tables in it")),
        },
        other => Err(other.not_a(cx, "TABLE").at(0)),
    }
}

/// `status`: the row of `table_status`, for everybody.
pub(crate) fn status(mut args: Args<'_>) -> Result<Value, EvalError> {
    match args.table(0)? {
        TableRef::Stored(table) => {
            let (cx, id) = (args.cx, table.handle.config.id);
            let catalog = cx.catalog();
            // Only its own leaders are asked, not those of all tables.
            let found = catalog.table_by_id(id).map(|table| status_row(cx, table, Identifiers::Name));
            selected(system_table("table_status")?, &id.uuid().to_string(), found)
        }
        TableRef::System(_) => {
            Err(special_because("the system tables in it don't have meaningful status information"))
        }
    }
}

fn row(cx: &Cx, table: &str, id: &str) -> Result<Value, EvalError> {
    let system = system_table(table)?;
    let found = read::system_row(cx, &system, &id.into())?;
    selected(system, id, found)
}

fn system_table(name: &str) -> Result<SystemRef, EvalError> {
    let table = system::table(name);
    let table = table.ok_or_else(|| EvalError::internal(format!("no system table {name}")))?;
    Ok(SystemRef { table, identifiers: Identifiers::Name })
}

/// The row under `id`, or that there is none.
fn selected(system: SystemRef, id: &str, found: Option<Object>) -> Result<Value, EvalError> {
    let table = TableRef::System(system);
    match found {
        Some(row) => Row::of_selection(table, row.into()),
        None => Ok(Row::at(table, id.into())),
    }
    .map(Value::Row)
}
