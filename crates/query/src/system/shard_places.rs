//! Parses the shards in a row of `table_config`: their servers and primary replicas.

use std::collections::BTreeSet;

use cluster::{Catalog, Node, ServerId, ShardPlaces};
use datum::{Datum, Object};
use reql::EvalError;

use super::fields::{field, items_of, name_of, only, uuid_of};
use crate::table::Identifiers;

/// The servers that a row may name.
pub(super) struct Servers<'a> {
    pub catalog: &'a Catalog,
    /// Knows which servers are connected.
    pub node: &'a Node,
    /// The servers with replicas of the table: their names refer to them first, also while they are not connected.
    /// Other servers must be connected. Source: `convert_server_id_from_datum` in tables/table_config.cc of RethinkDB.
    pub own: BTreeSet<ServerId>,
    /// Whether rows have names or ids.
    pub identifiers: Identifiers,
}

/// One shard of a row that a client has written.
pub(super) fn shard_places(known: &Servers<'_>, shard: &Datum) -> Result<ShardPlaces, EvalError> {
    let Datum::Object(shard) = shard else {
        return Err(EvalError::op_failed(format!("Expected an object; got {}", shard.pretty())));
    };
    let failed = |why: &str| Err(EvalError::op_failed(why.to_owned()));
    field(shard, "replicas")?;
    let replicas = servers(known, shard, "replicas")?;
    if replicas.is_empty() {
        return failed("You must specify at least one replica for each shard.");
    }
    let nonvoting = servers(known, shard, "nonvoting_replicas")?;
    if nonvoting.iter().any(|server| !replicas.contains(server)) {
        return failed(
            "Every server listed in the `nonvoting_replicas` field must also appear in `replicas`.",
        );
    }
    let primary = field(shard, "primary_replica")?;
    let primary_id = known.server(&primary).map_err(|error| error.prefixed("In `primary_replica`: "))?;
    let shown = known.shown(primary_id);
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

/// The servers in an optional field.
fn servers(known: &Servers<'_>, shard: &Object, field: &str) -> Result<Vec<ServerId>, EvalError> {
    let Some(value) = shard.get(field) else { return Ok(Vec::new()) };
    let read = |value: &Datum| {
        let mut servers = Vec::new();
        for name in items_of(value)? {
            let id = known.server(name)?;
            if servers.contains(&id) {
                let shown = known.shown(id);
                return Err(EvalError::op_failed(format!("Server `{shown}` is listed more than once.")));
            }
            servers.push(id);
        }
        Ok(servers)
    };
    read(&value).map_err(|error| error.prefixed(&format!("In `{field}`: ")))
}

impl Servers<'_> {
    fn shown(&self, id: ServerId) -> String {
        self.catalog.server(id).map_or_else(|| id.to_string(), |server| server.name.to_string())
    }

    fn server(&self, value: &Datum) -> Result<ServerId, EvalError> {
        match self.identifiers {
            Identifiers::Name => self.named(&name_of(value, "server name")?),
            Identifiers::Uuid => {
                let Ok(id) = uuid_of(value) else {
                    let why = format!("Expected a server ID; got {}", value.pretty());
                    return Err(EvalError::op_failed(why));
                };
                let found = self.catalog.server(ServerId(id)).filter(|server| !server.is_proxy);
                let missing = || EvalError::op_failed(format!("There is no server with UUID `{id}`."));
                let is_there = |id: &ServerId| self.own.contains(id) || self.node.is_connected(*id);
                found.map(|server| server.id).filter(is_there).ok_or_else(missing)
            }
        }
    }

    fn named(&self, name: &str) -> Result<ServerId, EvalError> {
        let named =
            || self.catalog.servers_named(name).filter(|server| !server.is_proxy).map(|server| server.id);
        let own: Vec<ServerId> = named().filter(|id| self.own.contains(id)).collect();
        let connected = || named().filter(|id| self.node.is_connected(*id)).collect();
        match if own.is_empty() { connected() } else { own }.as_slice() {
            [] => Err(EvalError::op_failed(format!("Server `{name}` does not exist or is not connected."))),
            [server] => Ok(*server),
            _ => Err(EvalError::op_failed(format!(
                "Server `{name}` is ambiguous; there are multiple servers with that name."
            ))),
        }
    }
}
