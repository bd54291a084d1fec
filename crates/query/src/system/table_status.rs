//! `rethinkdb.table_status`: whether tables can be read and written, by replica.

use cluster::{ReplicaState, ServerId, ShardState, TableHandle, readiness};
use datum::{Datum, Object};
use reql::EvalError;

use super::fields::object;
use super::table_config::{db_name, named_server};
use crate::context::Cx;
use crate::table::{Identifiers, SystemTable};

pub(super) struct TableStatus;

pub(crate) fn status_row(cx: &Cx, table: &TableHandle, identifiers: Identifiers) -> Object {
    status_row_of(cx, table, &cx.node().states().table_state(table), identifiers)
}

/// The row of a table with shards in these states.
pub(super) fn status_row_of(
    cx: &Cx,
    table: &TableHandle,
    shards: &[ShardState],
    identifiers: Identifiers,
) -> Object {
    let catalog = cx.catalog();
    let shown = |server: ServerId| Datum::String(named_server(&catalog, server, identifiers));
    let shard = |state: &ShardState| {
        let replica = |(server, state): &(ServerId, ReplicaState)| {
            Datum::Object(object([("server", shown(*server)), ("state", state.name().into())]))
        };
        Datum::Object(object([
            ("primary_replicas", state.leader.map(shown).into_iter().collect::<Vec<_>>().into()),
            ("replicas", state.replicas.iter().map(replica).collect::<Vec<_>>().into()),
        ]))
    };
    let ready = readiness(shards);
    let status = object([
        ("all_replicas_ready", ready.all_replicas.into()),
        ("ready_for_outdated_reads", ready.outdated_reads.into()),
        ("ready_for_reads", ready.reads.into()),
        ("ready_for_writes", ready.writes.into()),
    ]);
    let leader = shards.first().and_then(|shard| shard.leader);
    object([
        ("id", table.config.id.uuid().to_string().into()),
        ("name", Datum::String(table.config.name.clone())),
        ("db", Datum::String(db_name(table, identifiers))),
        ("raft_leader", leader.map_or(Datum::Null, shown)),
        ("status", Datum::Object(status)),
        ("shards", shards.iter().map(shard).collect::<Vec<_>>().into()),
    ])
}

impl SystemTable for TableStatus {
    fn name(&self) -> &'static str {
        "table_status"
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let catalog = cx.catalog();
        let tables: Vec<&TableHandle> = catalog.tables().into_iter().map(|table| &**table).collect();
        let states = cx.node().states().table_states(&tables);
        let rows =
            tables.iter().zip(&states).map(|(table, shards)| status_row_of(cx, table, shards, identifiers));
        Ok(rows.collect())
    }
}
