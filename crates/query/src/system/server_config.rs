//! `rethinkdb.server_config`: name, tags and cache size of each server. Deleting the row of a server
//! that is gone removes it for good.

use cluster::ServerId;
use datum::{Datum, Object, Text};
use reql::EvalError;

use super::fields::{field, items_of, name_of, named, object, only, strings, uuid_of};
use crate::context::Cx;
use crate::failure::admin_failed;
use crate::table::{Identifiers, RowEdit, SystemTable};

pub(super) struct ServerConfig;

const WRONG: &str = "The row you're trying to put into `rethinkdb.server_config` has the wrong format. ";

impl SystemTable for ServerConfig {
    fn name(&self) -> &'static str {
        "server_config"
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let catalog = cx.catalog();
        let row = |server: &&cluster::ServerConfig| {
            object([
                ("id", server.id.to_string().into()),
                ("name", Datum::String(server.name.clone())),
                ("tags", strings(server.tags.iter().cloned())),
                (
                    "cache_size_mb",
                    server.cache_size_mb.map_or_else(|| "auto".into(), |mb| Datum::Number(mb as f64)),
                ),
            ])
        };
        Ok(catalog.servers().iter().filter(|server| !server.is_proxy).map(row).collect())
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        match (edit.old, edit.new) {
            (None, _) => Err(EvalError::op_failed(
                "It's illegal to insert new rows into the `rethinkdb.server_config` system table.",
            )),
            (Some(old), None) => cx.node().remove_server(id_of(old)?).map_err(admin_failed),
            (Some(old), Some(new)) => change(cx, old, new).map_err(|error| error.prefixed(WRONG))?,
        }
    }
}

/// So many megabytes are more bytes than 64 bits can count.
const CACHE_MB_END: f64 = (1u64 << 44) as f64;

/// Checks the row; what comes of carrying it out is inside.
fn change(cx: &Cx, old: &Object, new: &Object) -> Result<Result<(), EvalError>, EvalError> {
    let name = named(new, "server name")?;
    let tags = tags(new)?;
    let cache = cache_size(new)?;
    only(new, &["id", "name", "tags", "cache_size_mb"])?;
    Ok(cx.node().change_server(id_of(old)?, &name, &tags, cache).map_err(admin_failed))
}

/// How many megabytes the caches are to have; `None` is "auto".
fn cache_size(row: &Object) -> Result<Option<u64>, EvalError> {
    let wrong = |what: &str, value: &Datum| {
        let shown = value.pretty();
        Err(EvalError::op_failed(format!("In `cache_size_mb`: Expected {what} or 'auto', got {shown}")))
    };
    match row.get("cache_size_mb") {
        Some(Datum::String(text)) if text == "auto" => Ok(None),
        Some(Datum::Number(n)) if n >= CACHE_MB_END => {
            wrong(&format!("a number below {CACHE_MB_END}"), &Datum::Number(n))
        }
        Some(Datum::Number(n)) if n >= 0.0 && n.fract() != 0.0 => wrong("a whole number", &Datum::Number(n)),
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked to be a count
        Some(Datum::Number(n)) if n >= 0.0 => Ok(Some(n as u64)),
        Some(other) => wrong("a number", &other),
        None => Err(EvalError::op_failed("Expected a field named `cache_size_mb`.")),
    }
}

/// The tags, each once.
fn tags(row: &Object) -> Result<Vec<Text>, EvalError> {
    let items = field(row, "tags")?;
    let read = |items: &Datum| {
        let mut tags: Vec<Text> = Vec::new();
        for item in items_of(items)? {
            let tag = name_of(item, "server tag")?;
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        Ok(tags)
    };
    read(&items).map_err(|error: EvalError| error.prefixed("In `tags`: "))
}

fn id_of(row: &Object) -> Result<ServerId, EvalError> {
    uuid_of(&field(row, "id")?).map(ServerId).map_err(|error| error.prefixed("In `id`: "))
}
