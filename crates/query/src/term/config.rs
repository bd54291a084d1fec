//! `config` and `status`: the row of a table or database in the system tables.

use datum::Object;
use reql::EvalError;

use super::db_admin::{special, special_because};
use crate::context::Cx;
use crate::stream::row_reads;
use crate::system;
use crate::system::status_row;
use crate::table::{Identifiers, Privilege, Resource, SystemRef, TableRef, access};
use crate::value::{Args, Row, Value};

/// `config`: the writable row of `table_config` or `db_config`.
///
/// It needs permission to configure the table or database, and none for database `rethinkdb`.
pub(crate) fn config(mut args: Args<'_>) -> Result<Value, EvalError> {
    let target = args.take(0)?;
    let cx = args.cx;
    match target {
        Value::Db(db) => match db.id {
            Some(id) => {
                access::check(cx, Privilege::Config, Resource::Db(id))?;
                row(cx, "db_config", &id.to_string())
            }
            None => Err(special("configure it")),
        },
        Value::Table(slice) if slice.is_whole() => match &slice.table {
            TableRef::Stored(table) => {
                access::check(cx, Privilege::Config, Resource::of_table(&slice.table))?;
                row(cx, "table_config", &table.handle.config.id.uuid().to_string())
            }
            TableRef::System(_) => Err(special("configure the tables in it")),
        },
        other => Err(other.not_a(cx, "TABLE").at(0)),
    }
}

/// `status`: the row of `table_status`, which needs no permission.
pub(crate) fn status(mut args: Args<'_>) -> Result<Value, EvalError> {
    match args.table(0)? {
        TableRef::Stored(table) => {
            let (cx, id) = (args.cx, table.handle.config.id);
            let catalog = cx.catalog();
            // Only the leaders of this table are asked, and not the leaders of all tables.
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
    let found = row_reads::system_row(cx, &system, &id.into())?;
    selected(system, id, found)
}

fn system_table(name: &str) -> Result<SystemRef, EvalError> {
    let table = system::table(name);
    let table = table.ok_or_else(|| EvalError::internal(format!("no system table {name}")))?;
    Ok(SystemRef { table, identifiers: Identifiers::Name })
}

/// The row under `id`, or null.
fn selected(system: SystemRef, id: &str, found: Option<Object>) -> Result<Value, EvalError> {
    let table = TableRef::System(system);
    match found {
        Some(row) => Row::of_selection(table, row.into()),
        None => Ok(Row::at(table, id.into())),
    }
    .map(Value::Row)
}
