//! `rethinkdb.server_status`: addresses and process of each server.

use std::sync::atomic::Ordering;

use cluster::ServerId;
use datum::{Datum, Object, Text, Time};
use reql::EvalError;

use super::fields::{NO_ANSWER, object, strings};
use super::table_config::named_server;
use crate::context::Cx;
use crate::service::ServerFacts;
use crate::table::{Identifiers, SystemTable};

pub(super) struct ServerStatus;

impl SystemTable for ServerStatus {
    fn name(&self) -> &'static str {
        "server_status"
    }

    fn is_per_server(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let (node, facts) = (cx.node(), &cx.service.facts);
        // A proxy is not counted as a server.
        if node.is_proxy() {
            return Ok(Vec::new());
        }
        Ok(vec![object([
            ("id", node.identity().server.to_string().into()),
            ("name", Datum::String(node.name())),
            ("network", Datum::Object(network(cx, facts))),
            ("process", Datum::Object(process(facts))),
        ])])
    }

    fn observe_rows(&self, cx: &Cx, server: ServerId, rows: &[Object]) {
        let catalog = cx.catalog();
        let mut statuses = cx.service.statuses.lock();
        statuses.retain(|known, _| catalog.server(*known).is_some());
        statuses.extend(rows.last().map(|row| (server, row.clone())));
    }

    /// The last row that the server has sent. RethinkDB has it from every connected server, and does not request it.
    /// Source: `server_status_artificial_table_backend_t`.
    fn rows_when_unresponsive(&self, cx: &Cx, server: ServerId, _identifiers: Identifiers) -> Vec<Object> {
        if let Some(row) = cx.service.statuses.lock().get(&server) {
            return vec![row.clone()];
        }
        let catalog = cx.catalog();
        let known = catalog.server(server).filter(|known| !known.is_proxy);
        let row = |name: &Text| {
            object([
                ("id", server.to_string().into()),
                ("name", Datum::String(name.clone())),
                ("error", NO_ANSWER.into()),
            ])
        };
        known.map(|known| row(&known.name)).into_iter().collect()
    }
}

fn network(cx: &Cx, facts: &ServerFacts) -> Object {
    let catalog = cx.catalog();
    let named = |server| (named_server(&catalog, server, Identifiers::Name), true.into());
    let is_proxy = |id| catalog.server(id).is_some_and(|server| server.is_proxy);
    let connected_to = cx.node().connected_servers().into_iter().filter(|server| !is_proxy(*server));
    let connected_to: Object = connected_to.map(named).collect();
    let port = |port: u16| Datum::Number(f64::from(port));
    let address = |(host, number): &(datum::Text, u16)| {
        Datum::Object(object([("host", Datum::String(host.clone())), ("port", port(*number))]))
    };
    object([
        ("hostname", Datum::String(facts.hostname.clone())),
        ("reql_port", port(facts.reql_port)),
        ("cluster_port", port(facts.cluster_port)),
        ("http_admin_port", facts.http_port.map_or_else(|| "<no http admin>".into(), port)),
        ("canonical_addresses", facts.canonical_addresses.iter().map(address).collect::<Vec<_>>().into()),
        ("time_connected", started(facts)),
        ("connected_to", Datum::Object(connected_to)),
    ])
}

fn process(facts: &ServerFacts) -> Object {
    object([
        ("argv", strings(facts.argv.iter().cloned())),
        ("cache_size_mb", Datum::Number((facts.cache_bytes.load(Ordering::Relaxed) >> 20) as f64)),
        ("pid", Datum::Number(f64::from(facts.pid))),
        ("time_started", started(facts)),
        ("version", Datum::String(facts.version.clone())),
    ])
}

fn started(facts: &ServerFacts) -> Datum {
    Datum::Time(Time::new(facts.started_unix.as_secs_f64(), 0))
}
