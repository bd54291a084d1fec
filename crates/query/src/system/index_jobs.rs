//! Indexes under construction, as rows of `rethinkdb.jobs`.

use cluster::IndexProgress;
use datum::{Datum, Object};
use uuid::Uuid;

use super::fields::{object, strings};
use super::table_config::{db_name, server_name};
use crate::context::Cx;
use crate::table::Identifiers;

/// The type of such jobs.
const KIND: &str = "index_construction";

/// One row for each index that is not ready.
pub(super) fn index_jobs(cx: &Cx, identifiers: Identifiers) -> Vec<Object> {
    let catalog = cx.catalog();
    let now = cx.node().clock().now();
    let mut rows = Vec::new();
    for table in catalog.tables() {
        let config = &table.config;
        for index in config.indexes.all() {
            let IndexProgress::Under(share) = table.index_progress(index.id) else { continue };
            let id = Uuid::new_v5(&config.id.uuid(), &index.id.0.to_be_bytes());
            let started = cx.node().indexes().build_started(config.id, index.id).unwrap_or(now);
            let name = match identifiers {
                Identifiers::Name => config.name.clone(),
                Identifiers::Uuid => config.id.uuid().to_string().into(),
            };
            let info = object([
                ("db", Datum::String(db_name(table, identifiers))),
                ("table", Datum::String(name)),
                ("index", Datum::String(index.name.clone())),
                ("progress", Datum::Number(share)),
            ]);
            rows.push(object([
                ("id", vec![KIND.into(), id.to_string().into()].into()),
                ("type", KIND.into()),
                ("duration_sec", Datum::Number(now.since(started).as_secs_f64())),
                ("servers", strings([server_name(cx, identifiers)])),
                ("info", Datum::Object(info)),
            ]));
        }
    }
    rows
}
