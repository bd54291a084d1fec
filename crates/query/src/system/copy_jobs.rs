//! Replicas that copy their rows, as rows of `rethinkdb.jobs`; the receiving server shows them.

use cluster::{Catalog, CopyProgress, GroupId, TableHandle};
use datum::{Datum, Object, Text};
use uuid::Uuid;

use super::fields::{object, strings};
use super::table_config::{db_name, named_server, server_name};
use crate::context::Cx;
use crate::table::Identifiers;

/// The type of such jobs. Source: docs/reql-spec.md section 14, `jobs`.
const KIND: &str = "backfill";

/// One row for each local replica that copies its rows from another server.
pub(super) fn copy_jobs(cx: &Cx, identifiers: Identifiers) -> Vec<Object> {
    let catalog = cx.catalog();
    let copies = cx.node().copies().under_way().into_iter();
    copies.filter_map(|(group, copy)| row(cx, &catalog, group, copy, identifiers)).collect()
}

fn row(
    cx: &Cx,
    catalog: &Catalog,
    group: GroupId,
    copy: CopyProgress,
    identifiers: Identifiers,
) -> Option<Object> {
    let is_of =
        |table: &&std::sync::Arc<TableHandle>| table.config.shards.iter().any(|shard| shard.group == group);
    let table = catalog.tables().into_iter().find(is_of)?;
    let source = named_server(catalog, copy.source?, identifiers);
    let destination = server_name(cx, identifiers);
    let own = cx.node().identity().server.0;
    let id = Uuid::new_v5(&own, &group.0.to_be_bytes());
    let seconds = cx.node().clock().now().since(copy.started).as_secs_f64();
    let name = match identifiers {
        Identifiers::Name => table.config.name.clone(),
        Identifiers::Uuid => table.config.id.uuid().to_string().into(),
    };
    let text = |text: &Text| Datum::String(text.clone());
    let info = object([
        ("db", Datum::String(db_name(table, identifiers))),
        ("table", Datum::String(name)),
        ("source_server", text(&source)),
        ("destination_server", text(&destination)),
        ("progress", Datum::Number(progress(&copy))),
    ]);
    Some(object([
        ("id", vec![KIND.into(), id.to_string().into()].into()),
        ("type", KIND.into()),
        ("duration_sec", Datum::Number(seconds)),
        ("servers", strings([source, destination])),
        ("info", Datum::Object(info)),
    ]))
}

/// The share of the rows that has arrived, from 0 to 1.
#[allow(clippy::cast_precision_loss, reason = "a share need not be exact")]
fn progress(copy: &CopyProgress) -> f64 {
    match copy.rows_total {
        0 => 0.0,
        total => (copy.rows as f64 / total as f64).min(1.0),
    }
}
