//! `rethinkdb.table_config`: one row per table; writing it creates, changes and drops.

use std::collections::BTreeSet;

use cluster::{
    AdminError, Catalog, DbConfig, DbId, DesiredShards, ServerId, ShardPlaces, TableChange, TableCompression,
    TableHandle, TableOptions, WriteAcks, durability_name, places_of,
};
use datum::{Datum, Object, Text};
use log::Durability;
use reql::EvalError;
use storage::TableId;

use super::fields::{field, items_of, name_of, named, object, only, strings, text_of, uuid_of};
use super::reconfiguration::{Reconfiguration, ReconfigurationKind};
use super::shard_places::{Servers, shard_places};
use crate::context::Cx;
use crate::edit::described_hook;
use crate::table::{Identifiers, Privilege, Resource, RowEdit, SystemTable, access, admin_failed};

pub(super) struct TableConfigTable;

const WRONG: &str = "The change you're trying to make to `rethinkdb.table_config` has the wrong format. ";
const NO_TABLE: &str = "There is no existing table with the given ID. To create a new table by inserting into \
    `rethinkdb.table_config`, you must let the database generate the primary key automatically.";
const FIELDS: [&str; 10] = [
    "id",
    "name",
    "db",
    "primary_key",
    "durability",
    "write_acks",
    "compression",
    "indexes",
    "write_hook",
    "shards",
];

pub(crate) fn config_row(cx: &Cx, table: &TableHandle, identifiers: Identifiers) -> Object {
    let config = &table.config;
    // Only where it is set, so that the row has otherwise the fields of RethinkDB's.
    let is_set = config.compression != TableCompression::Default;
    let compression = is_set.then(|| ("compression", config.compression.name().into()));
    let fields = [
        ("id", config.id.uuid().to_string().into()),
        ("name", Datum::String(config.name.clone())),
        ("db", Datum::String(db_name(table, identifiers))),
        ("primary_key", Datum::String(config.primary_key.clone())),
        ("durability", durability_name(config.durability).into()),
        ("write_acks", config.write_acks.name().into()),
        ("indexes", strings(config.indexes.all().into_iter().map(|index| index.name.clone()))),
        ("write_hook", described_hook(config)),
        ("shards", shard_rows(cx, &places_of(&config.shards), identifiers)),
    ];
    fields.into_iter().chain(compression).map(|(name, value)| (Text::from_static(name), value)).collect()
}

/// Shards in the format of rows.
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

/// The name of a server, or its id if the name is unknown.
pub(super) fn named_server(catalog: &Catalog, server: ServerId, identifiers: Identifiers) -> Text {
    match (identifiers, catalog.server_name(server)) {
        (Identifiers::Name, Some(name)) => name.clone(),
        _ => server.to_string().into(),
    }
}

/// The name or id of this server.
pub(super) fn server_name(cx: &Cx, identifiers: Identifiers) -> Text {
    match identifiers {
        Identifiers::Name => cx.node().name(),
        Identifiers::Uuid => cx.node().identity().server.to_string().into(),
    }
}

/// The name or id of a table's database.
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

    fn is_of_catalog(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let catalog = cx.catalog();
        Ok(catalog.tables().into_iter().map(|table| config_row(cx, table, identifiers)).collect())
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        match (edit.old, edit.new) {
            (None, None) => Ok(()),
            (None, Some(_)) if !edit.generated_key => Err(EvalError::op_failed(NO_TABLE)),
            (None, Some(new)) => create(cx, new, edit.identifiers),
            (Some(old), Some(new)) => change(cx, old, new, edit.identifiers),
            (Some(old), None) => drop_table(cx, old),
        }
    }
}

fn create(cx: &Cx, new: &Object, identifiers: Identifiers) -> Result<(), EvalError> {
    let row = read(cx, None, new, identifiers).map_err(|error| error.prefixed(WRONG))?;
    access::check(cx, Privilege::Config, Resource::Db(row.db.id))?;
    let defaults = TableOptions::default();
    let options = TableOptions {
        id: Some(id_of(new)?),
        primary_key: row.primary_key.unwrap_or(defaults.primary_key),
        durability: row.durability.unwrap_or(defaults.durability),
        write_acks: row.write_acks.unwrap_or(defaults.write_acks),
        compression: row.compression,
        shards: row.shards.map_or(defaults.shards, DesiredShards::Named),
    };
    cx.node().schema().create_table(&row.db.name, &row.name, options).map(drop).map_err(admin_failed)
}

fn change(cx: &Cx, old: &Object, new: &Object, identifiers: Identifiers) -> Result<(), EvalError> {
    let id = id_of(old)?;
    check_config(cx, id)?;
    let row = read(cx, Some(old), new, identifiers).map_err(|error| error.prefixed(WRONG))?;
    // It may have been dropped since.
    let table = cx.catalog().table_by_id(id).cloned().ok_or_else(|| EvalError::op_failed(NO_TABLE))?;
    if table.db.id != row.db.id {
        access::check(cx, Privilege::Config, Resource::Db(row.db.id))?;
    }
    if old.get("primary_key") != new.get("primary_key") {
        return Err(EvalError::op_failed("It's illegal to change a table's primary key"));
    }
    let change = TableChange {
        name: Some(row.name),
        db: Some(row.db.id),
        durability: row.durability,
        write_acks: row.write_acks,
        compression: Some(row.compression),
        shards: row.shards.map(DesiredShards::Named),
        write_hook: None,
    };
    Reconfiguration::of_table(cx, ReconfigurationKind::Configure).change(&table, &change)
}

fn drop_table(cx: &Cx, old: &Object) -> Result<(), EvalError> {
    let id = id_of(old)?;
    check_config(cx, id)?;
    let catalog = cx.catalog();
    let Some(table) = catalog.table_by_id(id) else { return Ok(()) };
    let (db, name) = (table.db.name.clone(), table.config.name.clone());
    // Another table may have this name by then.
    let dropped = cx.node().schema().drop_table_if(&db, &name, |_, found| found.config.id == id);
    dropped.map(drop).map_err(|error| match error {
        AdminError::Forbidden => admin_failed(AdminError::TableMissing { db, table: name }),
        error => admin_failed(error),
    })
}

/// Writing a row needs permission to configure its table.
fn check_config(cx: &Cx, id: TableId) -> Result<(), EvalError> {
    match cx.catalog().table_by_id(id) {
        Some(table) => access::check(cx, Privilege::Config, Resource::Table(table.db.id, id)),
        None => Ok(()),
    }
}

fn id_of(row: &Object) -> Result<TableId, EvalError> {
    let id = uuid_of(&field(row, "id")?).map_err(|error| error.prefixed("In `id`: "))?;
    Ok(TableId::from_uuid(id))
}

/// The fields of a row that can be written.
struct Settings {
    name: Text,
    db: DbConfig,
    primary_key: Option<Text>,
    durability: Option<Durability>,
    write_acks: Option<WriteAcks>,
    compression: TableCompression,
    shards: Option<Vec<ShardPlaces>>,
}

/// Parses a row that replaces `old`. A new row needs only the names. Of several errors RethinkDB's first is reported.
fn read(
    cx: &Cx,
    old: Option<&Object>,
    new: &Object,
    identifiers: Identifiers,
) -> Result<Settings, EvalError> {
    let name = named(new, "table name")?;
    let db = read_db(cx, &field(new, "db")?, identifiers)?;
    check_indexes(old, new)?;
    let primary_key = field_of(old, new, "primary_key", read_primary_key)?;
    // An unchanged field is not parsed: a server in it may be gone, or its name may belong to another one now.
    let shards = match old {
        Some(old) if old.get("shards") == new.get("shards") => None,
        _ => field_of(old, new, "shards", |value| read_shards(cx, old, value, identifiers))?,
    };
    let settings = Settings {
        name,
        db,
        primary_key,
        shards,
        write_acks: field_of(old, new, "write_acks", read_acks)?,
        // Optional in every row.
        compression: field_of(None, new, "compression", read_compression)?.unwrap_or_default(),
        durability: field_of(old, new, "durability", read_durability)?,
    };
    check_hook(old, new)?;
    only(new, &FIELDS)?;
    Ok(settings)
}

/// The field `name` of a row, which is optional in new rows.
fn field_of<T>(
    old: Option<&Object>,
    new: &Object,
    name: &str,
    read: impl Fn(&Datum) -> Result<T, EvalError>,
) -> Result<Option<T>, EvalError> {
    if old.is_none() && !new.contains_key(name) {
        return Ok(None);
    }
    let value = field(new, name)?;
    read(&value).map(Some).map_err(|error| error.prefixed(&format!("In `{name}`: ")))
}

fn read_db(cx: &Cx, value: &Datum, identifiers: Identifiers) -> Result<DbConfig, EvalError> {
    let catalog = cx.catalog();
    let (found, missing) = match identifiers {
        Identifiers::Name => {
            let name = name_of(value, "database name")?;
            (catalog.database(&name), format!("Database `{name}` does not exist."))
        }
        Identifiers::Uuid => {
            let id = uuid_of(value)?;
            (catalog.database_by_id(DbId(id)), format!("There is no database with UUID `{id}`."))
        }
    };
    found.map(|db| db.config.clone()).ok_or_else(|| EvalError::op_failed(missing))
}

/// Fails unless the row lists the existing indexes, in any order.
fn check_indexes(old: Option<&Object>, new: &Object) -> Result<(), EvalError> {
    let given = field_of(old, new, "indexes", read_indexes)?;
    let (known, why) = match old {
        Some(old) => (field_of(None, old, "indexes", read_indexes)?, "create or drop indexes"),
        None => (None, "create indexes"),
    };
    if given.unwrap_or_default() == known.unwrap_or_default() {
        return Ok(());
    }
    Err(EvalError::op_failed(format!("The `indexes` field is read-only and can't be used to {why}.")))
}

fn read_indexes(value: &Datum) -> Result<BTreeSet<Text>, EvalError> {
    let mut names = BTreeSet::new();
    for item in items_of(value)? {
        if !names.insert(text_of(item)?) {
            return Err(EvalError::op_failed(format!("{} was specified more than once.", item.pretty())));
        }
    }
    Ok(names)
}

/// Fails unless the row shows the existing write hook; a new row may show null.
fn check_hook(old: Option<&Object>, new: &Object) -> Result<(), EvalError> {
    let given = field_of(old, new, "write_hook", |value| Ok(value.clone()))?;
    let known = old.and_then(|old| old.get("write_hook"));
    if given.unwrap_or(Datum::Null) == known.unwrap_or(Datum::Null) {
        return Ok(());
    }
    Err(EvalError::op_failed(
        "The `write_hook` field is read-only and can't be used to create or drop a write hook function.",
    ))
}

fn read_primary_key(value: &Datum) -> Result<Text, EvalError> {
    let name = text_of(value)?;
    if name.is_empty() {
        return Err(EvalError::op_failed("The name of the primary key cannot be empty."));
    }
    Ok(name)
}

fn read_durability(value: &Datum) -> Result<Durability, EvalError> {
    match value {
        Datum::String(text) if text == "hard" => Ok(Durability::Hard),
        Datum::String(text) if text == "soft" => Ok(Durability::Soft),
        other => {
            let shown = other.pretty();
            Err(EvalError::op_failed(format!("Expected \"soft\" or \"hard\", got: {shown}")))
        }
    }
}

fn read_acks(value: &Datum) -> Result<WriteAcks, EvalError> {
    match value {
        Datum::String(text) if text == "majority" => Ok(WriteAcks::Majority),
        Datum::String(text) if text == "single" => Ok(WriteAcks::Single),
        other => {
            let shown = other.pretty();
            Err(EvalError::op_failed(format!("Expected \"single\" or \"majority\", got: {shown}")))
        }
    }
}

fn read_compression(value: &Datum) -> Result<TableCompression, EvalError> {
    let found = match value {
        Datum::String(name) => TableCompression::named(name),
        _ => None,
    };
    let wrong = || format!("Expected \"default\" or \"archive\", got: {}", value.pretty());
    found.ok_or_else(|| EvalError::op_failed(wrong()))
}

fn read_shards(
    cx: &Cx,
    old: Option<&Object>,
    value: &Datum,
    identifiers: Identifiers,
) -> Result<Vec<ShardPlaces>, EvalError> {
    let shards = items_of(value)?;
    if shards.is_empty() {
        return Err(EvalError::op_failed("You must specify at least one shard."));
    }
    let catalog = cx.catalog();
    let table = old.map(id_of).transpose()?.and_then(|id| catalog.table_by_id(id));
    let places = table.map(|table| places_of(&table.config.shards)).unwrap_or_default();
    let own: BTreeSet<ServerId> =
        places.iter().flat_map(|shard| shard.replicas.iter().map(|(server, _)| *server)).collect();
    let servers = Servers { catalog: &catalog, node: cx.node(), own, identifiers };
    shards.iter().map(|shard| shard_places(&servers, shard)).collect()
}
