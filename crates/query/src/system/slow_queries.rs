//! `rethinkdb._slow_queries`: the slowest queries of the last hour that have ended.

use datum::{Datum, Object, Text, Time};
use reql::EvalError;

use super::fields::object;
use super::table_config::server_name;
use crate::context::Cx;
use crate::service::SlowQuery;
use crate::table::{Identifiers, Readers, SystemTable};

pub(super) struct SlowQueriesTable;

impl SystemTable for SlowQueriesTable {
    fn name(&self) -> &'static str {
        "_slow_queries"
    }

    fn is_per_server(&self) -> bool {
        true
    }

    fn readers(&self) -> Readers {
        Readers::All
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let mine = |query: &SlowQuery| cx.caller.is("admin") || cx.caller.is(&query.client.user);
        let server = server_name(cx, identifiers);
        let queries = cx.service.slow_queries.list(cx.node().clock().unix());
        Ok(queries.into_iter().filter(mine).map(|query| row(query, &server)).collect())
    }
}

fn row(query: SlowQuery, server: &Text) -> Object {
    object([
        ("id", query.id.to_string().into()),
        ("server", Datum::String(server.clone())),
        ("user", Datum::String(query.client.user.clone())),
        ("client_address", query.client.address.ip().to_string().into()),
        ("client_port", Datum::Number(f64::from(query.client.address.port()))),
        ("query", Datum::String(query.query)),
        ("ended", Datum::Time(Time::new(query.ended.as_secs_f64(), 0))),
        ("duration_sec", Datum::Number(query.took.as_secs_f64())),
        ("plan", query.plan),
    ])
}
