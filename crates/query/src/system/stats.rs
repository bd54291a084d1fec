//! `rethinkdb.stats`: statistics of the cluster, its servers, and the tables on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster::{ServerId, TableHandle};
use datum::{Datum, Object, Text};
use reql::EvalError;

use super::fields::{NO_ANSWER, object};
use super::table_config::{db_name, named_server, server_name};
use crate::context::Cx;
use crate::service::memory_owners;
use crate::table::{Identifiers, SystemTable, TableSizes};

pub(super) struct Stats;

impl SystemTable for Stats {
    fn name(&self) -> &'static str {
        "stats"
    }

    fn is_per_server(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let rates = rates(cx);
        let mut rows = vec![cluster(cx, rates)];
        // A proxy is not listed as a server.
        let is_server = !cx.node().is_proxy();
        rows.extend(is_server.then(|| server(cx, rates, identifiers)));
        let catalog = cx.catalog();
        cx.service.table_rates.retain(|table| catalog.table_by_id(table).is_some());
        cx.service.row_lengths.retain(|table| catalog.table_by_id(table).is_some());
        for table in catalog.tables() {
            let figures = Figures::of(cx, table);
            rows.push(table_row(table, &figures, identifiers));
            rows.extend(is_server.then(|| table_server(cx, table, &figures, identifiers)));
        }
        Ok(rows)
    }

    /// The server itself, and the tables with a replica on it. Source: docs/reql-spec.md section 14.
    fn rows_when_unresponsive(&self, cx: &Cx, server: ServerId, identifiers: Identifiers) -> Vec<Object> {
        let catalog = cx.catalog();
        if catalog.server(server).is_none_or(|known| known.is_proxy) {
            return Vec::new();
        }
        let is_there = |table: &&Arc<TableHandle>| {
            let replicas = table.config.shards.iter().flat_map(|shard| &shard.replicas);
            replicas.into_iter().any(|replica| replica.server == server)
        };
        let shown = || Datum::String(named_server(&catalog, server, identifiers));
        let id = server.to_string();
        let of_server = object([
            ("id", vec!["server".into(), id.as_str().into()].into()),
            ("server", shown()),
            ("error", NO_ANSWER.into()),
        ]);
        let of_table = |table: &Arc<TableHandle>| {
            let table_id = table.config.id.uuid().to_string();
            object([
                ("id", vec!["table_server".into(), table_id.into(), id.as_str().into()].into()),
                ("db", Datum::String(db_name(table, identifiers))),
                ("table", table_name(table, identifiers)),
                ("server", shown()),
                ("error", NO_ANSWER.into()),
            ])
        };
        let tables = catalog.tables();
        std::iter::once(of_server).chain(tables.into_iter().filter(is_there).map(of_table)).collect()
    }
}

/// Queries, rows read and rows written per second.
fn rates(cx: &Cx) -> [f64; 3] {
    let counters = cx.service.counters();
    let counts = [&counters.queries, &counters.rows_read, &counters.rows_written];
    cx.service.rates.sample(cx.node().clock().now(), counts.map(|count| count.load(Ordering::Relaxed)))
}

fn cluster(cx: &Cx, [queries, read, written]: [f64; 3]) -> Object {
    let engine = object([
        ("client_connections", count(&cx.service.counters().connections)),
        ("clients_active", Datum::Number(cx.service.jobs.len() as f64)),
        ("queries_per_sec", queries.into()),
        ("read_docs_per_sec", read.into()),
        ("written_docs_per_sec", written.into()),
    ]);
    object([("id", vec!["cluster".into()].into()), ("query_engine", Datum::Object(engine))])
}

fn server(cx: &Cx, [queries, read, written]: [f64; 3], identifiers: Identifiers) -> Object {
    let counters = cx.service.counters();
    let engine = object([
        ("client_connections", count(&counters.connections)),
        ("clients_active", Datum::Number(cx.service.jobs.len() as f64)),
        ("queries_per_sec", queries.into()),
        ("queries_total", count(&counters.queries)),
        ("read_docs_per_sec", read.into()),
        ("read_docs_total", count(&counters.rows_read)),
        ("written_docs_per_sec", written.into()),
        ("written_docs_total", count(&counters.rows_written)),
    ]);
    let memory = memory_owners(cx.node().replicas(), &cx.service.memory);
    let memory =
        memory.into_iter().map(|(owner, bytes)| (Text::from_static(owner), Datum::Number(bytes as f64)));
    let id = cx.node().identity().server.to_string();
    object([
        ("id", vec!["server".into(), id.into()].into()),
        ("server", Datum::String(server_name(cx, identifiers))),
        ("query_engine", Datum::Object(engine)),
        ("memory_bytes", Datum::Object(memory.collect())),
    ])
}

/// Statistics of a table on this server.
struct Figures {
    read: u64,
    written: u64,
    /// Rows read and written per second.
    rates: [f64; 2],
    sizes: TableSizes,
}

impl Figures {
    fn of(cx: &Cx, table: &TableHandle) -> Figures {
        let activity = cx.node().replicas().activity(table.config.id);
        let (read, written) = activity.map_or((0, 0), |activity| (activity.read(), activity.written()));
        let now = cx.node().clock().now();
        let rates = cx.service.table_rates.sample(table.config.id, now, [read, written]);
        Figures { read, written, rates, sizes: TableSizes::of(&cx.service, table) }
    }
}

fn table_row(table: &TableHandle, figures: &Figures, identifiers: Identifiers) -> Object {
    let [read, written] = figures.rates;
    let engine = object([("read_docs_per_sec", read.into()), ("written_docs_per_sec", written.into())]);
    object([
        ("id", vec!["table".into(), table.config.id.uuid().to_string().into()].into()),
        ("db", Datum::String(db_name(table, identifiers))),
        ("table", table_name(table, identifiers)),
        ("query_engine", Datum::Object(engine)),
    ])
}

fn table_server(cx: &Cx, table: &TableHandle, figures: &Figures, identifiers: Identifiers) -> Object {
    let [read, written] = figures.rates;
    let zero = || Datum::Number(0.0);
    let engine = object([
        ("read_docs_per_sec", read.into()),
        ("read_docs_total", Datum::Number(figures.read as f64)),
        ("written_docs_per_sec", written.into()),
        ("written_docs_total", Datum::Number(figures.written as f64)),
    ]);
    let space = object([
        ("data_bytes", Datum::Number(figures.sizes.rows)),
        ("garbage_bytes", zero()),
        ("metadata_bytes", zero()),
        ("preallocated_bytes", zero()),
    ]);
    let disk = object([
        ("read_bytes_per_sec", zero()),
        ("read_bytes_total", zero()),
        ("written_bytes_per_sec", zero()),
        ("written_bytes_total", zero()),
        ("space_usage", Datum::Object(space)),
    ]);
    let sizes = TableSizes::summary(figures.sizes.logical, figures.sizes.disk());
    let storage = object([
        ("cache", Datum::Object(object([("in_use_bytes", zero())]))),
        ("disk", Datum::Object(disk)),
        ("estimates", Datum::Object(sizes)),
    ]);
    let (table_id, server_id) = (table.config.id.uuid().to_string(), cx.node().identity().server.to_string());
    object([
        ("id", vec!["table_server".into(), table_id.into(), server_id.into()].into()),
        ("db", Datum::String(db_name(table, identifiers))),
        ("table", table_name(table, identifiers)),
        ("server", Datum::String(server_name(cx, identifiers))),
        ("query_engine", Datum::Object(engine)),
        ("storage_engine", Datum::Object(storage)),
    ])
}

fn table_name(table: &TableHandle, identifiers: Identifiers) -> Datum {
    match identifiers {
        Identifiers::Name => Datum::String(table.config.name.clone()),
        Identifiers::Uuid => table.config.id.uuid().to_string().into(),
    }
}

fn count(counter: &AtomicU64) -> Datum {
    Datum::Number(counter.load(Ordering::Relaxed) as f64)
}
