//! Hidden system tables: an ordinary table in memory for tests, and two views for debugging.

use datum::PrimaryKey;
use datum::{Datum, Object, Text};
use reql::EvalError;

use super::fields::object;
use super::table_config::{config_row, db_name};
use super::table_status::status_row;
use crate::context::Cx;
use crate::table::{Identifiers, RowEdit, SystemTable, key_error};

pub(super) struct Scratch;
pub(super) struct Stats;
pub(super) struct TableStatus;

impl SystemTable for Scratch {
    fn name(&self) -> &'static str {
        "_debug_scratch"
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        Ok(cx.service.scratch.lock().values().cloned().collect())
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        let Some(id) = edit.new.or(edit.old).and_then(|row| row.get("id")) else { return Ok(()) };
        let key = PrimaryKey::encode(&id).map_err(|error| key_error(&error))?;
        let mut rows = cx.service.scratch.lock();
        match edit.new {
            Some(row) => rows.insert(key, row.clone()),
            None => rows.remove(&key),
        };
        Ok(())
    }
}

impl SystemTable for Stats {
    fn name(&self) -> &'static str {
        "_debug_stats"
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let node = cx.node();
        Ok(vec![object([
            ("id", node.identity().server.to_string().into()),
            ("name", Datum::String(node.name())),
            ("stats", Datum::Object(stats(cx))),
        ])])
    }
}

/// The field for the largest allowed cache size, in megabytes.
const CACHE_MB_MAX: &str = "cache_mb_max";

fn stats(cx: &Cx) -> Object {
    let range = cx.service.facts.cache_mb_range.as_ref();
    range
        .map(|range| (Text::from_static(CACHE_MB_MAX), Datum::Number(*range.end() as f64)))
        .into_iter()
        .collect()
}

/// The largest allowed cache size in a row of `_debug_stats`.
pub(super) fn cache_mb_max(row: &Object) -> Option<u64> {
    match row.get("stats")? {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a count of megabytes
        Datum::Object(stats) => match stats.get(CACHE_MB_MAX)? {
            Datum::Number(megabytes) => Some(megabytes as u64),
            _ => None,
        },
        _ => None,
    }
}

impl SystemTable for TableStatus {
    fn name(&self) -> &'static str {
        "_debug_table_status"
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let catalog = cx.catalog();
        let row = |table: &std::sync::Arc<cluster::TableHandle>| {
            object([
                ("id", table.config.id.uuid().to_string().into()),
                ("name", Datum::String(table.config.name.clone())),
                ("db", Datum::String(db_name(table, identifiers))),
                ("config", Datum::Object(config_row(cx, table, identifiers))),
                ("shard_scheme", Datum::empty_array()),
                ("table_server_status", Datum::Object(status_row(cx, table, identifiers))),
            ])
        };
        Ok(catalog.tables().into_iter().map(row).collect())
    }

    /// The error names the table that this one extends.
    fn write(&self, _cx: &Cx, _edit: RowEdit<'_>) -> Result<(), EvalError> {
        Err(EvalError::op_failed("It's illegal to write to the `rethinkdb.table_status` table."))
    }
}
