//! `rethinkdb.permissions`: what each user was granted, scope by scope.

use cluster::{Catalog, DbId, Permissions, Scope};
use datum::{Datum, Object, Text};
use reql::EvalError;
use storage::TableId;
use uuid::Uuid;

use super::fields::{object, only};
use crate::context::Cx;
use crate::failure::admin_failed;
use crate::ids::{NAMES, system_db_id, system_table_id};
use crate::rights::RightsChange;
use crate::table::{Identifiers, RowEdit, SYSTEM_DB, SystemTable};

pub(super) struct PermissionsTable;

const FIELDS: [&str; 5] = ["id", "user", "database", "table", "permissions"];

impl SystemTable for PermissionsTable {
    fn name(&self) -> &'static str {
        "permissions"
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let catalog = cx.catalog();
        let admin = row(&catalog, "admin", Scope::Global, &Permissions::all(), identifiers);
        let grants = catalog.grants().iter();
        let rows = grants
            .filter_map(|grant| row(&catalog, &grant.user, grant.scope, &grant.permissions, identifiers));
        Ok(admin.into_iter().chain(rows).collect())
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        let Some(named) = edit.new.or(edit.old) else { return Ok(()) };
        let (user, scope) = read_id(named)?;
        if cx.catalog().user(&user).is_none() {
            return Err(EvalError::op_failed(format!("No user named `{user}`.")));
        }
        let after = match edit.new {
            None => Permissions::default(),
            Some(new) => {
                only(new, &FIELDS)?;
                let Some(Datum::Object(rights)) = new.get("permissions") else {
                    return Err(EvalError::op_failed("Expected a field named `permissions`."));
                };
                RightsChange::read(&rights, scope == Scope::Global)?.apply(Permissions::default())
            }
        };
        cx.node().grant(&user, scope, |_| after).map(drop).map_err(admin_failed)
    }
}

/// The row of one grant, or nothing if its database or table is gone.
fn row(
    catalog: &Catalog,
    user: &str,
    scope: Scope,
    permissions: &Permissions,
    identifiers: Identifiers,
) -> Option<Object> {
    let mut id: Vec<Datum> = vec![user.into()];
    let mut out =
        object([("user", user.into()), ("permissions", Datum::Object(permissions.to_object()))]).to_builder();
    let shown = |name: Text, id: &str| match identifiers {
        Identifiers::Name => Datum::String(name),
        Identifiers::Uuid => id.into(),
    };
    if let Scope::Database(db) | Scope::Table(db, _) = scope {
        let text = db.to_string();
        out.insert(Text::from_static("database"), shown(db_name(catalog, db)?, &text));
        id.push(text.into());
    }
    if let Scope::Table(db, table) = scope {
        let text = table.uuid().to_string();
        out.insert(Text::from_static("table"), shown(table_name(catalog, db, table)?, &text));
        id.push(text.into());
    }
    out.insert(Text::from_static("id"), id.into());
    Some(out.build())
}

fn db_name(catalog: &Catalog, db: DbId) -> Option<Text> {
    if db == system_db_id() {
        return Some(SYSTEM_DB.into());
    }
    catalog.database_by_id(db).map(|db| db.config.name.clone())
}

fn table_name(catalog: &Catalog, db: DbId, table: TableId) -> Option<Text> {
    if db == system_db_id() {
        let name = NAMES.into_iter().find(|name| system_table_id(name) == table);
        return name.map(Text::from_static);
    }
    catalog.table_by_id(table).map(|table| table.config.name.clone())
}

/// User and scope of an id: `[user]`, `[user, database]` or `[user, database, table]`.
fn read_id(row: &Object) -> Result<(Text, Scope), EvalError> {
    let wrong = || EvalError::op_failed("Expected an array of user, database id and table id for `id`.");
    let Some(Datum::Array(parts)) = row.get("id") else { return Err(wrong()) };
    let uuid = |part: &Datum| match part {
        Datum::String(text) => Uuid::parse_str(text).map_err(|_| wrong()),
        _ => Err(wrong()),
    };
    match parts.as_ref() {
        [Datum::String(user)] => Ok((user.clone(), Scope::Global)),
        [Datum::String(user), db] => Ok((user.clone(), Scope::Database(DbId(uuid(db)?)))),
        [Datum::String(user), db, table] => {
            let scope = Scope::Table(DbId(uuid(db)?), TableId::from_uuid(uuid(table)?));
            Ok((user.clone(), scope))
        }
        _ => Err(wrong()),
    }
}
