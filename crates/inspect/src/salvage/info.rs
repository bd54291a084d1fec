//! The description of a table in the layout of `rethinkdb export`: its primary key, indexes and write hook.

use cluster::{IndexConfig, TableConfig};
use datum::{Datum, Object, Text};
use reql::IndexFlags;

/// The `.info` file of a table.
pub(super) fn of_table(db: &str, table: &TableConfig) -> String {
    let indexes: Vec<Datum> = table.indexes.all().into_iter().map(index).collect();
    let hook = table.write_hook.as_ref().map(|hook| {
        let query = format!("setWriteHook({})", hook.source());
        object(vec![("function", Datum::Binary(hook.hook_binary())), ("query", query.into())])
    });
    let fields = vec![
        ("db", object(vec![("name", db.into()), ("type", "DB".into())])),
        ("id", table.id.to_string().into()),
        ("indexes", indexes.into()),
        ("name", table.name.clone().into()),
        ("primary_key", table.primary_key.clone().into()),
        ("type", "TABLE".into()),
        ("write_hook", hook.unwrap_or(Datum::Null)),
    ];
    object(fields).to_json_string()
}

/// The `.info` file of a table of which only the primary key is known.
pub(super) fn of_unknown(table: &str, primary_key: &str) -> String {
    let none: Vec<Datum> = Vec::new();
    let fields = vec![
        ("indexes", none.into()),
        ("name", table.into()),
        ("primary_key", primary_key.into()),
        ("type", "TABLE".into()),
        ("write_hook", Datum::Null),
    ];
    object(fields).to_json_string()
}

fn index(index: &IndexConfig) -> Datum {
    let flags = IndexFlags { multi: index.kind.is_multi(), geo: index.kind.is_geo() };
    object(vec![
        ("index", index.name.clone().into()),
        ("function", Datum::Binary(index.function.index_binary(flags))),
        ("multi", flags.multi.into()),
        ("geo", flags.geo.into()),
        ("outdated", false.into()),
        ("ready", true.into()),
    ])
}

fn object(fields: Vec<(&'static str, Datum)>) -> Datum {
    let fields = fields.into_iter().map(|(name, value)| (Text::from_static(name), value));
    Datum::Object(fields.collect::<Object>())
}
