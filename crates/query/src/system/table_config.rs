//! `rethinkdb.table_config`: one row per table; writing it creates, changes and drops.

use cluster::{
    Catalog, DbId, ServerId, ShardPlaces, ShardsWanted, TableChange, TableHandle, TableOptions, WriteAcks,
    durability_name, places_of,
};
use datum::{Datum, Object, Text};
use log::Durability;
use reql::EvalError;
use storage::TableId;
use uuid::Uuid;

use super::fields::{object, only, string, strings};
use super::shard_places::shard_places;
use crate::access::{self, Need, Place};
use crate::context::Cx;
use crate::failure::admin_failed;
use crate::hook::described_hook;
use crate::names::check_name;
use crate::reshape::change_table;
use crate::table::{Identifiers, RowEdit, SystemTable};

pub(super) struct TableConfigTable;

const WRONG: &str = "The change you're trying to make to `rethinkdb.table_config` has the wrong format. ";
const FIELDS: [&str; 9] =
    ["id", "name", "db", "primary_key", "durability", "write_acks", "indexes", "write_hook", "shards"];

/// The row of a table.
pub(crate) fn config_row(cx: &Cx, table: &TableHandle, identifiers: Identifiers) -> Object {
    let config = &table.config;
    object([
        ("id", config.id.uuid().to_string().into()),
        ("name", Datum::String(config.name.clone())),
        ("db", Datum::String(db_name(table, identifiers))),
        ("primary_key", Datum::String(config.primary_key.clone())),
        ("durability", durability_name(config.durability).into()),
        ("write_acks", config.write_acks.name().into()),
        ("indexes", strings(config.indexes.all().into_iter().map(|index| index.name.clone()))),
        ("write_hook", described_hook(config)),
        ("shards", shard_rows(cx, &places_of(&config.shards), identifiers)),
    ])
}

/// Shards as rows show them.
pub(crate) fn shard_rows(cx: &Cx, places: &[ShardPlaces], identifiers: Identifiers) -> Datum {
    let catalog = cx.catalog();
    let shown = |server: ServerId| named_server(&catalog, server, identifiers);
    let sorted = |mut names: Vec<Text>| {
        names.sort();
        strings(names)
    };
    let shard = |place: &ShardPlaces| {
        let all = place.replicas.iter().map(|(server, _)| shown(*server));
        let nonvoting = place.replicas.iter().filter(|(_, voting)| !voting).map(|(server, _)| shown(*server));
        Datum::Object(object([
            ("primary_replica", Datum::String(shown(place.primary))),
            ("replicas", sorted(all.collect())),
            ("nonvoting_replicas", sorted(nonvoting.collect())),
        ]))
    };
    places.iter().map(shard).collect::<Vec<_>>().into()
}

/// A server as rows show it.
pub(super) fn named_server(catalog: &Catalog, server: ServerId, identifiers: Identifiers) -> Text {
    match (identifiers, catalog.server(server)) {
        (Identifiers::Name, Some(server)) => server.name.clone(),
        _ => server.to_string().into(),
    }
}

/// This server as rows show it.
pub(super) fn server_name(cx: &Cx, identifiers: Identifiers) -> Text {
    match identifiers {
        Identifiers::Name => cx.node().name(),
        Identifiers::Uuid => cx.node().identity().server.to_string().into(),
    }
}

/// A table's database as rows show it.
pub(super) fn db_name(table: &TableHandle, identifiers: Identifiers) -> Text {
    match identifiers {
        Identifiers::Name => table.db.name.clone(),
        Identifiers::Uuid => table.db.id.to_string().into(),
    }
}

impl SystemTable for TableConfigTable {
    fn name(&self) -> &'static str {
        "table_config"
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let catalog = cx.catalog();
        Ok(catalog.tables().into_iter().map(|table| config_row(cx, table, identifiers)).collect())
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        match (edit.old, edit.new) {
            (None, None) => Ok(()),
            (None, Some(_)) if !edit.generated_key => Err(EvalError::op_failed(
                "If you want to create a new table by inserting into `rethinkdb.table_config`, you must use an \
                 auto-generated primary key.",
            )),
            (None, Some(new)) => create(cx, new, edit.identifiers),
            (Some(old), Some(new)) => change(cx, old, new, edit.identifiers),
            (Some(old), None) => drop_table(cx, old),
        }
    }
}

fn create(cx: &Cx, new: &Object, identifiers: Identifiers) -> Result<(), EvalError> {
    let row = read(cx, new, identifiers).map_err(|error| error.prefixed(WRONG))?;
    let db = db_named(cx, row.db, identifiers);
    if let Some(db) = cx.catalog().database(&db) {
        access::check(cx, Need::Config, Place::Db(db.config.id))?;
    }
    let defaults = TableOptions::default();
    let options = TableOptions {
        id: Some(id_of(new)?),
        primary_key: optional_string(new, "primary_key").unwrap_or(defaults.primary_key),
        durability: row.durability.unwrap_or(defaults.durability),
        write_acks: row.write_acks.unwrap_or(defaults.write_acks),
        shards: row.shards.map_or(defaults.shards, ShardsWanted::Named),
    };
    check_name("Table", &row.name)?;
    cx.node().create_table(&db, &row.name, options).map(drop).map_err(admin_failed)
}

fn change(cx: &Cx, old: &Object, new: &Object, identifiers: Identifiers) -> Result<(), EvalError> {
    check_config(cx, id_of(old)?)?;
    let row = read(cx, new, identifiers).map_err(|error| error.prefixed(WRONG))?;
    for (field, why) in [
        ("primary_key", "It's illegal to change a table's primary key"),
        ("db", "It's illegal to change a table's database"),
    ] {
        if old.get(field) != new.get(field) {
            return Err(EvalError::op_failed(why));
        }
    }
    for field in ["indexes", "write_hook"] {
        if old.get(field) != new.get(field) {
            let why = format!(
                "{WRONG}The `{field}` field is read-only and can't be used to create or drop {}.",
                if field == "indexes" { "indexes" } else { "a write hook function" }
            );
            return Err(EvalError::op_failed(why));
        }
    }
    check_name("Table", &row.name)?;
    let change = TableChange {
        name: Some(row.name),
        durability: row.durability,
        write_acks: row.write_acks,
        shards: row.shards.filter(|_| old.get("shards") != new.get("shards")).map(ShardsWanted::Named),
        write_hook: None,
    };
    change_table(cx, id_of(old)?, &change)
}

/// The name of the database a row names or identifies.
fn db_named(cx: &Cx, db: Text, identifiers: Identifiers) -> Text {
    let id = match identifiers {
        Identifiers::Name => None,
        Identifiers::Uuid => Uuid::parse_str(&db).ok().map(DbId),
    };
    let found = id.and_then(|id| cx.catalog().database_by_id(id).map(|db| db.config.name.clone()));
    found.unwrap_or(db)
}

fn drop_table(cx: &Cx, old: &Object) -> Result<(), EvalError> {
    let id = id_of(old)?;
    check_config(cx, id)?;
    let catalog = cx.catalog();
    let Some(table) = catalog.table_by_id(id) else { return Ok(()) };
    cx.node().drop_table(&table.db.name, &table.config.name).map(drop).map_err(admin_failed)
}

/// Who writes a row must also be allowed to configure its table.
fn check_config(cx: &Cx, id: TableId) -> Result<(), EvalError> {
    match cx.catalog().table_by_id(id) {
        Some(table) => access::check(cx, Need::Config, Place::Table(table.db.id, id)),
        None => Ok(()),
    }
}

fn id_of(row: &Object) -> Result<TableId, EvalError> {
    let text = string(row, "id")?;
    let uuid = Uuid::parse_str(&text).map_err(|_| EvalError::op_failed("In `id`: Expected a UUID."))?;
    Ok(TableId::from_uuid(uuid))
}

/// What can be set through a row.
struct Settings {
    name: Text,
    db: Text,
    durability: Option<Durability>,
    write_acks: Option<WriteAcks>,
    shards: Option<Vec<ShardPlaces>>,
}

fn read(cx: &Cx, row: &Object, identifiers: Identifiers) -> Result<Settings, EvalError> {
    only(row, &FIELDS)?;
    Ok(Settings {
        name: string(row, "name")?,
        db: string(row, "db")?,
        durability: row.get("durability").map(|value| read_durability(&value)).transpose()?,
        write_acks: row.get("write_acks").map(|value| read_acks(&value)).transpose()?,
        shards: row.get("shards").map(|value| read_shards(cx, &value, identifiers)).transpose()?,
    })
}

fn read_durability(value: &Datum) -> Result<Durability, EvalError> {
    match value {
        Datum::String(text) if text == "hard" => Ok(Durability::Hard),
        Datum::String(text) if text == "soft" => Ok(Durability::Soft),
        other => {
            let shown = other.pretty();
            Err(EvalError::op_failed(format!("In `durability`: Expected \"soft\" or \"hard\", got: {shown}")))
        }
    }
}

fn read_acks(value: &Datum) -> Result<WriteAcks, EvalError> {
    match value {
        Datum::String(text) if text == "majority" => Ok(WriteAcks::Majority),
        Datum::String(text) if text == "single" => Ok(WriteAcks::Single),
        other => {
            let shown = other.pretty();
            Err(EvalError::op_failed(format!(
                "In `write_acks`: Expected \"single\" or \"majority\", got: {shown}"
            )))
        }
    }
}

fn read_shards(cx: &Cx, value: &Datum, identifiers: Identifiers) -> Result<Vec<ShardPlaces>, EvalError> {
    match value {
        Datum::Array(shards) if shards.is_empty() => {
            Err(EvalError::op_failed("In `shards`: You must specify at least one shard."))
        }
        Datum::Array(shards) => {
            let catalog = cx.catalog();
            let one = |shard: &Datum| {
                shard_places(&catalog, shard, identifiers).map_err(|error| error.prefixed("In `shards`: "))
            };
            shards.iter().map(one).collect()
        }
        other => {
            let shown = other.pretty();
            Err(EvalError::op_failed(format!("In `shards`: Expected an array, got {shown}")))
        }
    }
}

fn optional_string(row: &Object, name: &str) -> Option<Text> {
    match row.get(name) {
        Some(Datum::String(text)) => Some(text),
        _ => None,
    }
}
