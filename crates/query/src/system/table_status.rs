//! `rethinkdb.table_status`: whether tables can be read and written, replica by replica.

use cluster::TableHandle;
use datum::{Datum, Object};
use reql::EvalError;

use super::fields::{object, strings};
use super::table_config::{db_name, server_name};
use crate::context::Cx;
use crate::table::{Identifiers, SystemTable};

pub(super) struct TableStatus;

/// The row of a table.
pub(crate) fn status_row(cx: &Cx, table: &TableHandle, identifiers: Identifiers) -> Object {
    let server = server_name(cx, identifiers);
    let shard = |_| {
        let replica = object([("server", Datum::String(server.clone())), ("state", "ready".into())]);
        Datum::Object(object([
            ("primary_replicas", strings([server.clone()])),
            ("replicas", vec![Datum::Object(replica)].into()),
        ]))
    };
    let status = object([
        ("all_replicas_ready", true.into()),
        ("ready_for_outdated_reads", true.into()),
        ("ready_for_reads", true.into()),
        ("ready_for_writes", true.into()),
    ]);
    object([
        ("id", table.config.id.uuid().to_string().into()),
        ("name", Datum::String(table.config.name.clone())),
        ("db", Datum::String(db_name(table, identifiers))),
        ("raft_leader", Datum::String(server.clone())),
        ("status", Datum::Object(status)),
        ("shards", table.config.shards.iter().map(shard).collect::<Vec<_>>().into()),
    ])
}

impl SystemTable for TableStatus {
    fn name(&self) -> &'static str {
        "table_status"
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let catalog = cx.catalog();
        Ok(catalog.tables().into_iter().map(|table| status_row(cx, table, identifiers)).collect())
    }
}
