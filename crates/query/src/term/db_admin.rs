//! `db_create`, `db_drop`, `db_list`.

use cluster::TableHandle;
use datum::{Datum, Object, Text};
use reql::EvalError;

use crate::system::{config_row, db_row};
use crate::table::{Identifiers, Privilege, Resource, SYSTEM_DB, access, admin_failed};
use crate::value::{Args, Value, name_at};

/// `db_create`: a new, empty database.
pub(crate) fn db_create(mut args: Args<'_>) -> Result<Value, EvalError> {
    let name = name_at(&mut args, 0, "Database")?;
    access::check(args.cx, Privilege::Config, Resource::Cluster)?;
    if name == SYSTEM_DB {
        return Err(EvalError::op_failed(format!("Database `{name}` already exists.")));
    }
    let db = args.cx.node().schema().create_db(&name).map_err(admin_failed)?;
    let row = db_row(&db.id.to_string(), &db.name);
    Ok(answer([("dbs_created", 1.into())], vec![change(Datum::Null, row.into())]))
}

/// `db_drop`: removes a database and its tables.
pub(crate) fn db_drop(mut args: Args<'_>) -> Result<Value, EvalError> {
    let name = name_at(&mut args, 0, "Database")?;
    if name == SYSTEM_DB {
        return Err(special("delete it"));
    }
    let (mut permitted, mut tables) = (Ok(()), Vec::new());
    let dropped = args.cx.node().schema().drop_db_if(&name, |catalog, db| {
        let row = |table: &TableHandle| config_row(args.cx, table, Identifiers::Name).into();
        tables = db.tables().into_iter().map(|table| change(row(table), Datum::Null)).collect();
        permitted = access::check_db_and_tables(args.cx, catalog, db);
        permitted.is_ok()
    });
    permitted?;
    let (db, dropped) = dropped.map_err(admin_failed)?;
    let mut changes = vec![change(db_row(&db.id.to_string(), &db.name).into(), Datum::Null)];
    changes.extend(tables);
    let counts = [("dbs_dropped", 1.into()), ("tables_dropped", Datum::Number(dropped.len() as f64))];
    Ok(answer(counts, changes))
}

/// `db_list`: the names of all databases.
pub(crate) fn db_list(args: Args<'_>) -> Result<Value, EvalError> {
    let catalog = args.cx.catalog();
    let mut names: Vec<Text> = catalog.databases().into_iter().map(|db| db.config.name.clone()).collect();
    names.push(SYSTEM_DB.into());
    names.sort_unstable();
    args.cx.check_array(names.len())?;
    Ok(Value::Datum(names.into_iter().map(Datum::String).collect::<Vec<_>>().into()))
}

/// ``Database `rethinkdb` is special; you can't <do that>.``
pub(crate) fn special(what: &str) -> EvalError {
    special_because(&format!("you can't {what}"))
}

/// ``Database `rethinkdb` is special; <that>.``
pub(crate) fn special_because(why: &str) -> EvalError {
    EvalError::op_failed(format!("Database `{SYSTEM_DB}` is special; {why}."))
}

/// One element of `config_changes`.
pub(crate) fn change(old: Datum, new: Datum) -> Datum {
    let fields = [("new_val", new), ("old_val", old)];
    Datum::Object(fields.into_iter().map(|(name, value)| (Text::from_static(name), value)).collect())
}

/// The result of an administrative term: counts and `config_changes`.
pub(crate) fn answer<const N: usize>(counts: [(&'static str, Datum); N], changes: Vec<Datum>) -> Value {
    let fields = counts.into_iter().chain([("config_changes", changes.into())]);
    let object: Object = fields.map(|(name, value)| (Text::from_static(name), value)).collect();
    Value::Datum(Datum::Object(object))
}
