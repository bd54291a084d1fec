//! `rethinkdb.permissions`: the permissions of each user, by scope.

use cluster::{AdminError, Catalog, DbId, Permissions, Scope};
use datum::{Datum, Object, Text};
use reql::EvalError;
use storage::TableId;
use uuid::Uuid;

use super::fields::{name_of, nothing_but, object, uuid_of};
use super::rights::RightsChange;
use crate::context::Cx;
use crate::table::{
    Identifiers, RowEdit, SYSTEM_DB, SYSTEM_TABLES, SystemTable, admin_failed, system_db_id, system_table_id,
};
use crate::value::user_name;

pub(super) struct PermissionsTable;

impl SystemTable for PermissionsTable {
    fn name(&self) -> &'static str {
        "permissions"
    }

    fn is_of_catalog(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let catalog = cx.catalog();
        let all = Permissions::all();
        let without_connect = Permissions { connect: None, ..all };
        let admin = [(Scope::Global, all), (Scope::Database(system_db_id()), without_connect)]
            .map(|(scope, rights)| row(&catalog, "admin", scope, &rights, identifiers));
        let grants = catalog.grants().iter();
        let rows = grants
            .filter_map(|grant| row(&catalog, &grant.user, grant.scope, &grant.permissions, identifiers));
        Ok(admin.into_iter().flatten().chain(rows).collect())
    }

    fn normalized_key(&self, key: &Datum) -> Option<Datum> {
        let Datum::Array(parts) = key else { return None };
        let (Datum::String(name), scope) = parts.split_first()? else { return None };
        let user = Datum::String(user_name(name).ok()?);
        Some(std::iter::once(user).chain(scope.iter().cloned()).collect::<Vec<_>>().into())
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        if edit.generated_key {
            return Err(EvalError::op_failed("You must specify a primary key."));
        }
        let Some(named) = edit.new.or(edit.old) else { return Ok(()) };
        let catalog = cx.catalog();
        let (user, scope) = grantee(&catalog, &named.get("id").unwrap_or(Datum::Null))?;
        let change = match edit.new {
            None => None,
            Some(new) => {
                check_names(&catalog, new, &user, scope, edit.identifiers)?;
                let change = read_change(new, scope)?;
                nothing_but(new, known_fields(scope))?;
                Some(change)
            }
        };
        let after =
            |before: Permissions| change.as_ref().map(|change| change.apply(before)).unwrap_or_default();
        cx.node().accounts().grant(&user, scope, after).map(drop).map_err(admin_failed)
    }

    fn write_none(&self, cx: &Cx, key: &Datum, _identifiers: Identifiers) -> Result<(), EvalError> {
        grantee(&cx.catalog(), key).map(drop)
    }

    /// A row without any permission does not exist.
    fn is_row_gone(&self, cx: &Cx, key: &Datum) -> bool {
        let catalog = cx.catalog();
        let Ok((user, scope)) = read_id(&catalog, key) else { return false };
        !catalog.grants().iter().any(|grant| grant.user == user && grant.scope == scope)
    }
}

/// User and scope of an id. Both must exist, and the user's permissions must not be fixed.
fn grantee(catalog: &Catalog, id: &Datum) -> Result<(Text, Scope), EvalError> {
    let (user, scope) = read_id(catalog, id)?;
    if user == "admin" {
        return Err(admin_failed(AdminError::AdminFixed));
    }
    if catalog.user(&user).is_none() {
        return Err(EvalError::op_failed(format!("No user named `{user}`.")));
    }
    Ok((user, scope))
}

/// The change in a row. Permissions that it does not name stay as they are.
fn read_change(row: &Object, scope: Scope) -> Result<RightsChange, EvalError> {
    match row.get("permissions") {
        Some(Datum::Object(rights)) => RightsChange::read(&rights, scope == Scope::Global),
        Some(other) => Err(EvalError::op_failed(format!("Expected an object, got {}.", other.pretty()))),
        None => Err(EvalError::op_failed("Expected a field `permissions`.")),
    }
}

/// The fields a row may have.
fn known_fields(scope: Scope) -> &'static [&'static str] {
    match scope {
        Scope::Global => &["id", "user", "permissions"],
        Scope::Database(_) => &["id", "user", "permissions", "database"],
        Scope::Table(..) => &["id", "user", "permissions", "database", "table"],
    }
}

/// The row of a grant, or none if its database or table is gone.
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
        let name = SYSTEM_TABLES.into_iter().find(|name| system_table_id(name) == table);
        return name.map(Text::from_static);
    }
    let found = catalog.table_by_id(table).filter(|table| table.db.id == db);
    found.map(|table| table.config.name.clone())
}

/// Fails if user, database or table of a row do not match its id.
fn check_names(
    catalog: &Catalog,
    row: &Object,
    user: &Text,
    scope: Scope,
    identifiers: Identifiers,
) -> Result<(), EvalError> {
    let check = |field: &str, is_same: bool| match is_same {
        true => Ok(()),
        false => Err(EvalError::op_failed(format!("The key `{field}` does not match the primary key."))),
    };
    match row.get("user") {
        None => {}
        Some(Datum::String(name)) => check("user", user_name(&name)? == *user)?,
        Some(other) => return Err(EvalError::type_error("STRING", &other)),
    }
    let is = |given: &Datum, what: &str, name: Option<Text>, id: Uuid| match identifiers {
        Identifiers::Name => name_of(given, what).map(|given| name == Some(given)),
        Identifiers::Uuid => uuid_of(given).map(|given| given == id),
    };
    if let (Scope::Database(db) | Scope::Table(db, _), Some(given)) = (scope, row.get("database")) {
        check("database", is(&given, "database name", db_name(catalog, db), db.0)?)?;
    }
    if let (Scope::Table(db, table), Some(given)) = (scope, row.get("table")) {
        check("table", is(&given, "table name", table_name(catalog, db, table), table.uuid())?)?;
    }
    Ok(())
}

/// User and scope of an id: `[user]`, `[user, database]` or `[user, database, table]`. Database and table must exist.
fn read_id(catalog: &Catalog, id: &Datum) -> Result<(Text, Scope), EvalError> {
    let parts = match id {
        Datum::Array(parts) if (1..=3).contains(&parts.len()) => parts,
        other => {
            let shown = other.pretty();
            let why = format!("Expected an array of one to three items in the primary key, got {shown}.");
            return Err(EvalError::op_failed(why));
        }
    };
    let Datum::String(user) = &parts[0] else {
        let shown = parts[0].pretty();
        return Err(EvalError::op_failed(format!("Expected a string as the username, got {shown}.")));
    };
    let user = user_name(user)?;
    let Some(db) = parts.get(1) else { return Ok((user, Scope::Global)) };
    let db = DbId(uuid("database", db)?);
    if db_name(catalog, db).is_none() {
        return Err(EvalError::op_failed(format!("No database with UUID `{db}` exists.")));
    }
    let Some(table) = parts.get(2) else { return Ok((user, Scope::Database(db))) };
    let id = uuid("table", table)?;
    let table = TableId::from_uuid(id);
    if table_name(catalog, db, table).is_none() {
        return Err(EvalError::op_failed(format!("No table with UUID `{id}` exists.")));
    }
    Ok((user, Scope::Table(db, table)))
}

/// A part of an id. It must have the normal spelling of ids: another spelling would be another row.
fn uuid(what: &str, part: &Datum) -> Result<Uuid, EvalError> {
    let parsed = match part {
        Datum::String(text) => Uuid::parse_str(text).ok().filter(|uuid| *text == uuid.to_string()),
        _ => None,
    };
    let wrong = || format!("Expected a UUID as the {what}, got {}.", part.pretty());
    parsed.ok_or_else(|| EvalError::op_failed(wrong()))
}
