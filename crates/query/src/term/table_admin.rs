//! `table_create`, `table_drop`, `table_list`.

use cluster::{TableCompression, TableOptions};
use datum::{Datum, Text};
use reql::EvalError;

use super::db::{db_and_table, default_db};
use super::db_admin::{answer, change, special};
use super::placement::Placement;
use crate::system;
use crate::system::config_row;
use crate::table::{Identifiers, Privilege, Resource, SYSTEM_DB, access, admin_failed, system_db_id};
use crate::value::{Args, Value};
use crate::write::durability_of;

/// `table_create`: a new, empty table.
pub(crate) fn table_create(mut args: Args<'_>) -> Result<Value, EvalError> {
    let defaults = TableOptions::default();
    let placement = Placement::of_create(&args)?;
    let primary_key = args.optional_string("primary_key")?.unwrap_or(defaults.primary_key);
    if primary_key.is_empty() {
        return Err(EvalError::logic("The name of the primary key cannot be empty.").at("primary_key"));
    }
    let options = TableOptions {
        id: None,
        primary_key,
        durability: durability_of(&args)?.unwrap_or(defaults.durability),
        write_acks: defaults.write_acks,
        compression: compression_of(&args)?,
        shards: placement.desired_shards(),
    };
    let (db, name) = db_and_table(&mut args)?;
    access::check(args.cx, Privilege::Config, Resource::Db(db.id.unwrap_or_else(system_db_id)))?;
    if db.id.is_none() {
        return Err(special("create new tables in it"));
    }
    // Another database may have this name by then.
    let mut permitted = Ok(());
    let created = args.cx.node().schema().create_table_if(&db.name, &name, options, |catalog, db| {
        permitted = access::check_in(args.cx, catalog, Privilege::Config, Resource::Db(db.id));
        permitted.is_ok()
    });
    permitted?;
    created.map_err(admin_failed)?;
    let catalog = args.cx.catalog();
    let row = catalog
        .table(&db.name, &name)
        .map_or(Datum::Null, |table| config_row(args.cx, table, Identifiers::Name).into());
    Ok(answer([("tables_created", 1.into())], vec![change(Datum::Null, row)]))
}

/// The `compression` option.
fn compression_of(args: &Args<'_>) -> Result<TableCompression, EvalError> {
    let Some(name) = args.optional_string("compression")? else { return Ok(TableCompression::Default) };
    TableCompression::named(&name).ok_or_else(|| {
        let why =
            format!("Compression option `{name}` unrecognized (options are \"default\" and \"archive\").");
        args.at_optarg("compression", EvalError::logic(why))
    })
}

/// `table_drop`: removes a table and its rows.
pub(crate) fn table_drop(mut args: Args<'_>) -> Result<Value, EvalError> {
    let (db, name) = db_and_table(&mut args)?;
    if db.id.is_none() {
        return Err(special("drop tables in it"));
    }
    let (mut permitted, mut row) = (Ok(()), Datum::Null);
    let dropped = args.cx.node().schema().drop_table_if(&db.name, &name, |catalog, table| {
        row = config_row(args.cx, table, Identifiers::Name).into();
        let place = Resource::Table(table.db.id, table.config.id);
        permitted = access::check_in(args.cx, catalog, Privilege::Config, place);
        permitted.is_ok()
    });
    permitted?;
    dropped.map_err(admin_failed)?;
    Ok(answer([("tables_dropped", 1.into())], vec![change(row, Datum::Null)]))
}

/// `table_list`: the names of the tables of a database.
pub(crate) fn table_list(mut args: Args<'_>) -> Result<Value, EvalError> {
    let db = if args.len() == 0 { default_db(args.cx)? } else { args.db(0)? };
    let names: Vec<Text> = if db.name == SYSTEM_DB {
        system::listed().map(Text::from_static).collect()
    } else {
        let catalog = args.cx.catalog();
        let tables = catalog.database(&db.name).into_iter().flat_map(|db| db.tables());
        tables.map(|table| table.config.name.clone()).collect()
    };
    args.cx.check_array(names.len())?;
    Ok(Value::Datum(names.into_iter().map(Datum::String).collect::<Vec<_>>().into()))
}
