//! Groups, replicas, servers and changes of members as log lines and errors name them: by the names in the catalog, where it
//! knows them.

use std::collections::BTreeSet;

use log::{GroupId, MemberChange, PeerId};

use super::snapshot::Catalog;
use crate::config::{CATALOG_GROUP, ServerId};

/// What a group holds: `table "test.users"`, one of its shards, or the catalog.
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

/// A server: `server "ada"`, or by its id.
pub(crate) fn server(catalog: &Catalog, id: ServerId) -> String {
    catalog.server_name(id).map_or_else(|| format!("server {id}"), |name| format!("server \"{name}\""))
}

/// Servers by their names, as errors have them: `ada`, `bob`.
pub(crate) fn servers(catalog: &Catalog, ids: &BTreeSet<ServerId>) -> String {
    let name = |id: &ServerId| {
        let name = catalog.server_name(*id).map_or_else(|| id.to_string(), |name| format!("`{name}`"));
        if catalog.is_removed(*id) { format!("{name} (removed for good)") } else { name }
    };
    match ids.is_empty() {
        true => "servers that were removed".to_owned(),
        false => ids.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

/// A replica: the server it is on, or its own id.
pub(crate) fn replica(catalog: &Catalog, peer: PeerId, server_of: Option<ServerId>) -> String {
    server_of.map_or_else(|| format!("replica {peer}"), |id| server(catalog, id))
}

/// A change of members that was made; `replica` is the display name of the replica that it is about.
pub(crate) fn change(catalog: &Catalog, of: GroupId, change: MemberChange, replica: &str) -> String {
    let of = group(catalog, of);
    match change {
        MemberChange::AddLearner(_) => format!("{replica} gets a replica of {of} and catches up"),
        MemberChange::Promote(_) => {
            format!("The replica of {of} on {replica} is up to date and votes from now on")
        }
        MemberChange::Remove(_) => {
            format!("The replica of {of} on {replica} is no longer one of its replicas")
        }
    }
}

/// A sentence begins with a capital letter.
pub(crate) fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
