//! Rows of system tables that have rows of every node.

use std::cmp::Reverse;
use std::collections::HashMap;

use cluster::ServerId;
use datum::{Datum, Object, Text};
use reql::EvalError;

use super::SystemRowRequests;
use crate::context::Cx;
use crate::table::SystemRef;

/// The rows of a system table, including the rows of other nodes where the table has rows per server. Rows of several
/// nodes with the same id are merged by adding up their figures. The order of a table covers the rows of all nodes.
pub(crate) fn rows(cx: &Cx, system: &SystemRef) -> Result<Vec<Object>, EvalError> {
    let asks_others = system.table.is_per_server() && !cx.serves_remote;
    // Other nodes work while this one does.
    let requests = asks_others.then(|| SystemRowRequests::send(cx, system.table.name(), system.identifiers));
    let mut rows = system.table.rows(cx, system.identifiers)?;
    let Some(requests) = requests else { return Ok(rows) };
    let mut place: HashMap<Datum, usize> =
        rows.iter().enumerate().filter_map(|(i, row)| Some((row.get("id")?, i))).collect();
    for row in requests
        .wait(cx)?
        .into_iter()
        .flat_map(|(server, rows_of_server)| rows_for(cx, system, server, rows_of_server))
    {
        match row.get("id").and_then(|id| place.get(&id).copied()) {
            Some(i) => rows[i] = added(&rows[i], &row),
            None => {
                place.extend(row.get("id").map(|id| (id, rows.len())));
                rows.push(row);
            }
        }
    }
    if system.table.is_ordered() {
        rows.sort_by_cached_key(|row| Reverse(row.get("id")));
    }
    Ok(rows)
}

/// The rows that `server` sent, or the substitutes if it did not respond.
fn rows_for(
    cx: &Cx,
    system: &SystemRef,
    server: ServerId,
    rows_of_server: Option<Vec<Object>>,
) -> Vec<Object> {
    match rows_of_server {
        Some(rows) => {
            system.table.observe_rows(cx, server, &rows);
            rows
        }
        None => system.table.rows_when_unresponsive(cx, server, system.identifiers),
    }
}

/// The fields of a row that hold figures.
const FIGURES: [&str; 2] = ["query_engine", "storage_engine"];

/// `row` with the figures of `more` added; everything else stays.
fn added(row: &Object, more: &Object) -> Object {
    let sum = |(key, value): (Text, Datum)| match more.get(&key) {
        Some(more) if FIGURES.contains(&&*key) => (key, sum(value, &more)),
        _ => (key, value),
    };
    row.iter().map(sum).collect()
}

fn sum(value: Datum, more: &Datum) -> Datum {
    match (value, more) {
        (Datum::Number(a), Datum::Number(b)) => Datum::Number(a + b),
        (Datum::Object(a), Datum::Object(b)) => {
            let each = |(key, value): (Text, Datum)| match b.get(&key) {
                Some(more) => (key, sum(value, &more)),
                None => (key, value),
            };
            Datum::Object(a.iter().map(each).collect())
        }
        (value, _) => value,
    }
}
