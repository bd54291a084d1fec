//! `grant`: sets permissions of a user globally, for a database or for a table.

use cluster::{AdminError, Scope};
use datum::{Datum, Text};
use reql::EvalError;

use super::db_admin::change;
use crate::context::Cx;
use crate::system;
use crate::system::{RightsChange, rights_datum};
use crate::table::{Identifiers, SystemRef, TableRef, access, admin_failed, system_db_id, system_table_id};
use crate::value::{Args, Value, user_name};

/// `grant([scope,] user, {permission: true | false | null})`. Its checks have the order of RethinkDB's: the types of arguments, the
/// caller's permission, the user, the permissions.
pub(crate) fn grant(mut args: Args<'_>) -> Result<Value, EvalError> {
    let last = args.len() - 1;
    let (user, rights) = (user_name(&args.string(last - 1)?)?, args.datum(last)?);
    let scope = match args.len() {
        2 => Scope::Global,
        _ => scope(args.cx, args.take(0)?)?,
    };
    if user == "admin" {
        return Err(admin_failed(AdminError::AdminFixed));
    }
    if let Some(table) = system::table("permissions") {
        let table = TableRef::System(SystemRef { table, identifiers: Identifiers::Name });
        access::check_write(args.cx, &table)?;
    }
    let known = || args.cx.catalog().user(&user).map(drop);
    if args.cx.retry_with_fresh_catalog(known).is_none() {
        return Err(admin_failed(AdminError::UserMissing(user)));
    }
    let Datum::Object(rights) = rights else {
        return Err(EvalError::op_failed(format!("Expected an object, got {}.", rights.pretty())));
    };
    let rights = RightsChange::read(&rights, scope == Scope::Global)?;
    let granted = args.cx.node().accounts().grant(&user, scope, |before| rights.apply(before));
    let (before, after) = granted.map_err(admin_failed)?;
    let changes = vec![change(rights_datum(&before), rights_datum(&after))];
    let fields = [("granted", 1.into()), ("permissions_changes", changes.into())];
    let object = fields.into_iter().map(|(name, value)| (Text::from_static(name), value));
    Ok(Value::Datum(Datum::Object(object.collect())))
}

fn scope(cx: &Cx, value: Value) -> Result<Scope, EvalError> {
    match value {
        Value::Db(db) => Ok(Scope::Database(db.id.unwrap_or_else(system_db_id))),
        Value::Table(slice) if slice.is_whole() => Ok(match &slice.table {
            TableRef::Stored(table) => Scope::Table(table.handle.db.id, table.handle.config.id),
            TableRef::System(system) => Scope::Table(system_db_id(), system_table_id(system.table.name())),
        }),
        other => Err(other.not_a(cx, "TABLE").at(0)),
    }
}
