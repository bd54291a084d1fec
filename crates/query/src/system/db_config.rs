//! `rethinkdb.db_config`: one row per database; writing it creates, renames and drops.

use cluster::{AdminError, DbId};
use datum::{Datum, Object, Text};
use reql::EvalError;
use uuid::Uuid;

use super::fields::{field, named, object, only, string, uuid_of};
use crate::context::Cx;
use crate::table::{Identifiers, Privilege, Resource, RowEdit, SYSTEM_DB, SystemTable, access, admin_failed};

pub(super) struct DbConfigTable;

/// The row of a database.
pub(crate) fn db_row(id: &str, name: &Text) -> Object {
    object([("id", id.into()), ("name", Datum::String(name.clone()))])
}

impl SystemTable for DbConfigTable {
    fn name(&self) -> &'static str {
        "db_config"
    }

    fn is_of_catalog(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let catalog = cx.catalog();
        let row = |db: &cluster::Database| db_row(&db.config.id.to_string(), &db.config.name);
        Ok(catalog.databases().into_iter().map(row).collect())
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        let node = cx.node();
        let place = match edit.old {
            Some(old) => Resource::Db(DbId(id_of(old)?)),
            None => Resource::Cluster,
        };
        access::check(cx, Privilege::Config, place)?;
        match (edit.old, edit.new) {
            (None, None) => Ok(()),
            (None, Some(new)) if !edit.generated_key => read_name(new).and(Err(EvalError::op_failed(
                "If you want to create a new table by inserting into `rethinkdb.db_config`, you must use an \
                 auto-generated primary key.",
            ))),
            (None, Some(new)) => {
                let name = read_name(new)?;
                if name == SYSTEM_DB {
                    return Err(EvalError::op_failed("Database `rethinkdb` already exists."));
                }
                node.schema().create_db_as(DbId(id_of(new)?), &name).map(drop).map_err(admin_failed)
            }
            (Some(old), Some(new)) => {
                let (from, to) = (string(old, "name")?, read_name(new)?);
                if to == SYSTEM_DB {
                    return Err(EvalError::op_failed(format!(
                        "Cannot rename database `{from}` to `rethinkdb` because database `rethinkdb` already exists."
                    )));
                }
                node.schema().rename_db(DbId(id_of(old)?), &to).map_err(admin_failed)
            }
            (Some(old), None) => {
                let (id, name) = (DbId(id_of(old)?), string(old, "name")?);
                // Another database may have this name by then.
                let dropped = node.schema().drop_db_if(&name, |_, found| found.config.id == id);
                dropped.map(drop).map_err(|error| match error {
                    AdminError::Forbidden => admin_failed(AdminError::DbMissing(name)),
                    error => admin_failed(error),
                })
            }
        }
    }
}

fn id_of(row: &Object) -> Result<Uuid, EvalError> {
    uuid_of(&field(row, "id")?).map_err(|error| error.prefixed("In `id`: "))
}

fn read_name(row: &Object) -> Result<Text, EvalError> {
    const WRONG: &str = "The change you're trying to make to `rethinkdb.db_config` has the wrong format. ";
    let name = named(row, "db name").map_err(|error| error.prefixed(WRONG))?;
    only(row, &["id", "name"]).map_err(|error| error.prefixed(WRONG))?;
    Ok(name)
}
