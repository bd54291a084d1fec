//! Display names of groups, replicas, servers and membership changes for log lines and errors: by their names in the
//! catalog, else by id.

use std::collections::BTreeSet;

use log::{GroupId, MemberChange, PeerId};

use super::snapshot::Catalog;
use crate::config::{CATALOG_GROUP, ServerId};

/// The display name of a group: `table "test.users"`, a shard of a table, or the catalog.
pub(crate) fn group(catalog: &Catalog, group: GroupId) -> String {
    if group == CATALOG_GROUP {
        return "the catalog".to_owned();
    }
    for table in catalog.tables() {
        let shards = &table.config.shards;
        if let Some(nth) = shards.iter().position(|shard| shard.group == group) {
            let name = format!("table \"{}.{}\"", table.db.name, table.config.name);
            return match shards.len() {
                1 => name,
                all => format!("shard {} of {all} of {name}", nth + 1),
            };
        }
    }
    format!("group {group}")
}

/// The display name of a server: `server "ada"`, or by its id.
pub(crate) fn server(catalog: &Catalog, id: ServerId) -> String {
    catalog.server_name(id).map_or_else(|| format!("server {id}"), |name| format!("server \"{name}\""))
}

/// The names of servers, for errors: `ada`, `bob`.
pub(crate) fn servers(catalog: &Catalog, ids: &BTreeSet<ServerId>) -> String {
    let name = |id: &ServerId| {
        let name = catalog.server_name(*id).map_or_else(|| id.to_string(), |name| format!("`{name}`"));
        if catalog.is_removed(*id) { format!("{name} (permanently removed)") } else { name }
    };
    match ids.is_empty() {
        true => "servers that were removed".to_owned(),
        false => ids.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

/// The display name of a replica: its server's, or its id if the server is unknown.
pub(crate) fn replica(catalog: &Catalog, peer: PeerId, server_of: Option<ServerId>) -> String {
    server_of.map_or_else(|| format!("replica {peer}"), |id| server(catalog, id))
}

/// The log line for a completed membership change; `replica` is the display name of the replica that was changed.
pub(crate) fn change(catalog: &Catalog, of: GroupId, change: MemberChange, replica: &str) -> String {
    let of = group(catalog, of);
    match change {
        MemberChange::AddLearner(_) => format!("A replica of {of} was added on {replica} and catches up"),
        MemberChange::Promote(_) => {
            format!("The replica of {of} on {replica} is up to date and was promoted to voter")
        }
        MemberChange::Remove(_) => {
            format!("The replica of {of} on {replica} was removed")
        }
    }
}

/// The text with its first letter capitalized, to begin a sentence.
pub(crate) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
