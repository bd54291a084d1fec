//! `rethinkdb.server_config`: name, tags and cache size of each server. Deleting the row of a server that is not
//! connected removes it from the cluster.

use cluster::ServerId;
use datum::{Datum, Object, Text};
use reql::EvalError;

use super::debug;
use super::debug::Stats;
use super::fields::{field, items_of, name_of, named, object, only, strings, uuid_of};
use super::table_config::named_server;
use crate::context::Cx;
use crate::remote::SystemRowRequests;
use crate::table::{Identifiers, RowEdit, SystemTable, admin_failed};

pub(super) struct ServerConfig;

const WRONG: &str = "The row you're trying to put into `rethinkdb.server_config` has the wrong format. ";

impl SystemTable for ServerConfig {
    fn name(&self) -> &'static str {
        "server_config"
    }

    fn is_of_catalog(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let catalog = cx.catalog();
        Ok(catalog
            .servers()
            .iter()
            .filter(|server| !server.is_proxy)
            .map(|server| server_row(server))
            .collect())
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        match (edit.old, edit.new) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(EvalError::op_failed(
                "It's illegal to insert new rows into the `rethinkdb.server_config` system table.",
            )),
            (Some(old), None) => cx.node().removal().remove_server(id_of(old)?).map_err(admin_failed),
            (Some(old), Some(new)) => change(cx, old, new).map_err(|error| error.prefixed(WRONG))?,
        }
    }
}

pub(crate) fn server_row(server: &cluster::ServerConfig) -> Object {
    let cache = server.cache_size_mb.map_or_else(|| "auto".into(), |mb| Datum::Number(mb as f64));
    object([
        ("id", server.id.to_string().into()),
        ("name", Datum::String(server.name.clone())),
        ("tags", strings(server.tags.iter().cloned())),
        ("cache_size_mb", cache),
    ])
}

/// From this many megabytes on the number of bytes does not fit in a signed 64-bit integer.
const CACHE_MB_MAX: f64 = (1u64 << 43) as f64;

/// Checks the row; the inner result is that of the change.
fn change(cx: &Cx, old: &Object, new: &Object) -> Result<Result<(), EvalError>, EvalError> {
    let name = named(new, "server name")?;
    let tags = tags(new)?;
    let cache = cache_size(new)?;
    only(new, &["id", "name", "tags", "cache_size_mb"])?;
    if old.get("cache_size_mb") != new.get("cache_size_mb") {
        has_room(cx, id_of(old)?, cache)?;
    }
    Ok(cx.node().servers().change_server(id_of(old)?, &name, &tags, cache).map_err(admin_failed))
}

/// The cache size in megabytes; `None` is "auto".
fn cache_size(row: &Object) -> Result<Option<u64>, EvalError> {
    let wrong = |why: String| Err(EvalError::op_failed(format!("In `cache_size_mb`: {why}")));
    let shown = |value: Datum| value.pretty();
    match field(row, "cache_size_mb")? {
        Datum::String(text) if text == "auto" => Ok(None),
        Datum::Number(n) if n > CACHE_MB_MAX => wrong("Value is too big.".to_owned()),
        Datum::Number(n) if n < 0.0 => wrong("Cache size cannot be negative.".to_owned()),
        Datum::Number(n) if n.fract() != 0.0 => {
            wrong(format!("Expected a whole number or 'auto', got {}", shown(Datum::Number(n))))
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked to be a count
        Datum::Number(n) => Ok(Some(n as u64)),
        other => wrong(format!("Expected a number or 'auto', got {}", shown(other))),
    }
}

/// Fails unless `server` can have caches of this size. Only the server itself knows how much memory it has: while it
/// does not respond, every size from the minimum on is accepted, and the server limits it later.
fn has_room(cx: &Cx, server: ServerId, cache: Option<u64>) -> Result<(), EvalError> {
    let (Some(megabytes), Some(range)) = (cache, &cx.service.facts.cache_mb_range) else { return Ok(()) };
    let least = *range.start();
    let most = match server == cx.node().identity().server {
        true => Some(*range.end()),
        false if megabytes < least => None,
        false => most_of(cx, server)?,
    };
    let why = match most {
        Some(most) if !(least..=most).contains(&megabytes) => {
            let catalog = cx.catalog();
            let name = named_server(&catalog, server, Identifiers::Name);
            format!("The memory of server `{name}` allows {least} to {most} or 'auto', got {megabytes}")
        }
        None if megabytes < least => format!("Caches work with {least} or more, or 'auto', got {megabytes}"),
        _ => return Ok(()),
    };
    Err(EvalError::op_failed(format!("In `cache_size_mb`: {why}")))
}

/// The largest cache size of another server in megabytes, if it responds.
fn most_of(cx: &Cx, server: ServerId) -> Result<Option<u64>, EvalError> {
    let responses = SystemRowRequests::send(cx, Stats.name(), Identifiers::Name).wait(cx)?;
    let row =
        responses.into_iter().find(|(responder, _)| *responder == server).and_then(|(_, rows)| rows?.pop());
    Ok(row.and_then(|row| debug::cache_mb_max(&row)))
}

/// The tags without duplicates.
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
