//! Groups, replicas and changes of members in the words of a user, for the log: servers and tables by
//! their names, where the catalog knows them.

use std::collections::BTreeSet;

use log::{GroupId, MemberChange, PeerId};

use crate::node::{CATALOG_GROUP, Core};
use crate::{Catalog, ServerId};

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
pub(crate) fn named(catalog: &Catalog, ids: &BTreeSet<ServerId>) -> String {
    let name = |id: &ServerId| {
        let name = catalog.server_name(*id).map_or_else(|| id.to_string(), |name| format!("`{name}`"));
        if catalog.is_removed(*id) { format!("{name} (removed for good)") } else { name }
    };
    match ids.is_empty() {
        true => "servers that were removed".to_owned(),
        false => ids.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

impl Core {
    /// A server by its name, as the catalog here has it.
    pub(crate) fn server_in_words(&self, id: ServerId) -> String {
        server(&self.catalog(), id)
    }

    /// A replica: the server it is on, or its own id.
    pub(crate) fn replica_in_words(&self, peer: PeerId) -> String {
        let server_of = self.post.server_of(peer);
        server_of.map_or_else(|| format!("replica {peer}"), |id| server(&self.catalog(), id))
    }

    /// A change of members that was made.
    pub(crate) fn change_in_words(&self, of: GroupId, change: MemberChange) -> String {
        let of = group(&self.catalog(), of);
        match change {
            MemberChange::AddLearner(peer) => {
                format!("{} gets a replica of {of} and catches up", self.replica_in_words(peer))
            }
            MemberChange::Promote(peer) => {
                format!(
                    "The replica of {of} on {} is up to date and votes from now on",
                    self.replica_in_words(peer)
                )
            }
            MemberChange::Remove(peer) => {
                format!(
                    "The replica of {of} on {} is no longer one of its replicas",
                    self.replica_in_words(peer)
                )
            }
        }
    }
}

/// A sentence begins with a capital letter.
pub(crate) fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
