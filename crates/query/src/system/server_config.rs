//! `rethinkdb.server_config`: name, tags and cache size of each server.

use datum::{Datum, Object};
use reql::EvalError;

use super::fields::{object, strings};
use crate::context::Cx;
use crate::table::{Identifiers, RowEdit, SystemTable};

pub(super) struct ServerConfig;

impl SystemTable for ServerConfig {
    fn name(&self) -> &'static str {
        "server_config"
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let node = cx.node();
        let cache = match cx.service.facts.cache_mb_configured {
            None => "auto".into(),
            Some(mb) => Datum::Number(mb as f64),
        };
        Ok(vec![object([
            ("id", node.identity().server.to_string().into()),
            ("name", Datum::String(node.name().clone())),
            ("tags", strings(node.tags().iter().cloned())),
            ("cache_size_mb", cache),
        ])])
    }

    fn write(&self, _cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        let verb = match (edit.old, edit.new) {
            (None, _) => "insert new rows into",
            (_, None) => "delete rows from",
            (Some(old), Some(new)) if old == new => return Ok(()),
            _ => {
                return Err(EvalError::op_failed(
                    "Changing `rethinkdb.server_config` while the server runs is not supported; use its command line.",
                ));
            }
        };
        Err(EvalError::op_failed(format!(
            "It's illegal to {verb} the `rethinkdb.server_config` system table."
        )))
    }
}
