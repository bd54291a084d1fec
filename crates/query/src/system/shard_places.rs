//! Shards as `table_config` has them, read: which servers, and which of them leads.

use cluster::{Catalog, ServerConfig, ServerId, ShardPlaces};
use datum::{Datum, Object};
use reql::EvalError;
use uuid::Uuid;

use super::fields::only;
use crate::table::Identifiers;

/// One shard of a row that somebody wrote.
pub(super) fn shard_places(
    catalog: &Catalog,
    shard: &Datum,
    identifiers: Identifiers,
) -> Result<ShardPlaces, EvalError> {
    let Datum::Object(shard) = shard else {
        return Err(EvalError::op_failed(format!("Expected an object, got {}", shard.pretty())));
    };
    let failed = |why: &str| Err(EvalError::op_failed(why.to_owned()));
    let replicas = servers(catalog, shard, "replicas", identifiers)?;
    let Some(replicas) = replicas else { return failed("Expected a field named `replicas`.") };
    if replicas.is_empty() {
        return failed("You must specify at least one replica for each shard.");
    }
    let nonvoting = servers(catalog, shard, "nonvoting_replicas", identifiers)?.unwrap_or_default();
    if nonvoting.iter().any(|server| !replicas.contains(server)) {
        return failed(
            "Every server listed in the `nonvoting_replicas` field must also appear in `replicas`.",
        );
    }
    let Some(primary) = shard.get("primary_replica") else {
        return failed("Expected a field named `primary_replica`.");
    };
    let primary_id =
        server(catalog, &primary, identifiers).map_err(|error| error.prefixed("In `primary_replica`: "))?;
    let shown = catalog.server(primary_id).map_or_else(|| primary_id.to_string(), |s| s.name.to_string());
    if !replicas.contains(&primary_id) {
        return failed(&format!(
            "The server listed in the `primary_replica` field (`{shown}`) must also appear in `replicas`."
        ));
    }
    if nonvoting.contains(&primary_id) {
        return failed(&format!("The primary replica (`{shown}`) must not be a nonvoting replica."));
    }
    only(shard, &["replicas", "nonvoting_replicas", "primary_replica"])?;
    let others = replicas.into_iter().filter(|server| *server != primary_id);
    let others = others.map(|server| (server, !nonvoting.contains(&server)));
    Ok(ShardPlaces {
        primary: primary_id,
        replicas: std::iter::once((primary_id, true)).chain(others).collect(),
    })
}

fn servers(
    catalog: &Catalog,
    shard: &Object,
    field: &str,
    identifiers: Identifiers,
) -> Result<Option<Vec<ServerId>>, EvalError> {
    let inside = |error: EvalError| error.prefixed(&format!("In `{field}`: "));
    match shard.get(field) {
        None => Ok(None),
        Some(Datum::Array(names)) => {
            let mut servers = Vec::new();
            for name in names.iter() {
                let id = server(catalog, name, identifiers).map_err(inside)?;
                if servers.contains(&id) {
                    let shown = catalog.server(id).map_or_else(|| id.to_string(), |s| s.name.to_string());
                    let why = format!("Server `{shown}` is listed more than once.");
                    return Err(inside(EvalError::op_failed(why)));
                }
                servers.push(id);
            }
            Ok(Some(servers))
        }
        Some(other) => {
            let shown = other.pretty();
            Err(inside(EvalError::op_failed(format!("Expected an array, got {shown}"))))
        }
    }
}

fn server(catalog: &Catalog, name: &Datum, identifiers: Identifiers) -> Result<ServerId, EvalError> {
    let Datum::String(text) = name else {
        let shown = name.pretty();
        return Err(EvalError::op_failed(format!("Expected a server name, got {shown}")));
    };
    let holds = |server: &&ServerConfig| !server.is_proxy;
    match identifiers {
        Identifiers::Name => {
            catalog.server_named(text).filter(holds).map(|server| server.id).ok_or_else(|| {
                EvalError::op_failed(format!("Server `{text}` does not exist or is not connected."))
            })
        }
        Identifiers::Uuid => {
            let id = Uuid::parse_str(text).ok().map(ServerId);
            id.filter(|id| catalog.server(*id).as_ref().is_some_and(holds))
                .ok_or_else(|| EvalError::op_failed(format!("There is no server with UUID `{text}`.")))
        }
    }
}
