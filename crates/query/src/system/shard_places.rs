//! Shards as `table_config` has them, read: which servers, and which of them leads.

use cluster::{Catalog, ServerConfig, ServerId, ShardPlaces};
use datum::{Datum, Object};
use reql::EvalError;

use super::fields::{field, items_of, name_of, only, uuid_of};
use crate::table::Identifiers;

/// One shard of a row that somebody wrote.
pub(super) fn shard_places(
    catalog: &Catalog,
    shard: &Datum,
    identifiers: Identifiers,
) -> Result<ShardPlaces, EvalError> {
    let Datum::Object(shard) = shard else {
        return Err(EvalError::op_failed(format!("Expected an object; got {}", shard.pretty())));
    };
    let failed = |why: &str| Err(EvalError::op_failed(why.to_owned()));
    field(shard, "replicas")?;
    let replicas = servers(catalog, shard, "replicas", identifiers)?;
    if replicas.is_empty() {
        return failed("You must specify at least one replica for each shard.");
    }
    let nonvoting = servers(catalog, shard, "nonvoting_replicas", identifiers)?;
    if nonvoting.iter().any(|server| !replicas.contains(server)) {
        return failed(
            "Every server listed in the `nonvoting_replicas` field must also appear in `replicas`.",
        );
    }
    let primary = field(shard, "primary_replica")?;
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

/// The servers in a field, which may be absent.
fn servers(
    catalog: &Catalog,
    shard: &Object,
    field: &str,
    identifiers: Identifiers,
) -> Result<Vec<ServerId>, EvalError> {
    let Some(value) = shard.get(field) else { return Ok(Vec::new()) };
    let read = |value: &Datum| {
        let mut servers = Vec::new();
        for name in items_of(value)? {
            let id = server(catalog, name, identifiers)?;
            if servers.contains(&id) {
                let shown = catalog.server(id).map_or_else(|| id.to_string(), |s| s.name.to_string());
                return Err(EvalError::op_failed(format!("Server `{shown}` is listed more than once.")));
            }
            servers.push(id);
        }
        Ok(servers)
    };
    read(&value).map_err(|error| error.prefixed(&format!("In `{field}`: ")))
}

fn server(catalog: &Catalog, value: &Datum, identifiers: Identifiers) -> Result<ServerId, EvalError> {
    let holds = |server: &&ServerConfig| !server.is_proxy;
    let (found, missing) = match identifiers {
        Identifiers::Name => {
            let name = name_of(value, "server name")?;
            (catalog.server_named(&name), format!("Server `{name}` does not exist or is not connected."))
        }
        Identifiers::Uuid => {
            let Ok(id) = uuid_of(value) else {
                return Err(EvalError::op_failed(format!("Expected a server ID; got {}", value.pretty())));
            };
            (catalog.server(ServerId(id)), format!("There is no server with UUID `{id}`."))
        }
    };
    found.filter(holds).map(|server| server.id).ok_or_else(|| EvalError::op_failed(missing))
}
