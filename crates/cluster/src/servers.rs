//! Changes to servers: their names and tags, and their removal for good.

use std::collections::BTreeSet;
use std::time::Duration;

use datum::Text;
use log::GroupId;

use crate::answer::{EndAnswer, decode_servers};
use crate::catalog_row::{CatalogRow, server_key};
use crate::change::Draft;
use crate::node::Core;
use crate::question::Question;
use crate::{AdminError, Catalog, ReplicaConfig, ServerId, ShardConfig};

/// How long a server may take to say whom it sees.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most voters of the catalog.
pub(crate) const VOTERS_MAX: usize = 5;

/// Gives votes on the catalog to servers that have none, because those of `gone` are free.
pub(crate) fn fill_voters(catalog: &Catalog, draft: &mut Draft, gone: &[ServerId]) {
    let staying = || catalog.servers().into_iter().filter(|server| !gone.contains(&server.id));
    let voters = staying().filter(|server| server.catalog.voting).count();
    let others = staying().filter(|server| !server.catalog.voting && !server.is_proxy);
    for server in others.take(VOTERS_MAX.saturating_sub(voters)) {
        let mut server = server.clone();
        server.catalog.voting = true;
        draft.put(CatalogRow::Server(server));
    }
}

impl Core {
    /// How long a server may be silent before the links to it end, in seconds.
    pub fn set_heartbeat(&self, seconds: u64) -> Result<(), AdminError> {
        if seconds < 2 {
            return Err(AdminError::HeartbeatTooShort);
        }
        self.change(|catalog, draft| {
            if catalog.heartbeat_secs() != seconds {
                draft.put(CatalogRow::Heartbeat(seconds));
            }
            Ok(())
        })
    }

    /// The other servers of the catalog that this one is connected to.
    #[must_use]
    pub fn sees(&self) -> Vec<ServerId> {
        let catalog = self.catalog();
        let others = catalog.servers().into_iter().map(|server| server.id);
        others.filter(|id| *id != self.identity.server && self.is_connected(*id)).collect()
    }

    /// Servers that do not see each other although this one, or one that it sees, sees both: the one
    /// that does not see, and whom. Asks every server that is connected.
    #[must_use]
    pub fn unseen(&self) -> Vec<(ServerId, ServerId)> {
        let mut seen = vec![(self.identity.server, self.sees())];
        for server in seen[0].1.clone() {
            let answer = self.ask(server, Question::Sees.encode(), PATIENCE);
            seen.extend(answer.ok().and_then(|bytes| Some((server, decode_servers(&bytes)?))));
        }
        let alive: BTreeSet<ServerId> =
            seen.iter().flat_map(|(server, sees)| sees.iter().chain([server])).copied().collect();
        let unseen = |(server, sees): (ServerId, Vec<ServerId>)| {
            let others = alive.iter().filter(move |other| **other != server && !sees.contains(other));
            others.map(move |other| (server, *other)).collect::<Vec<_>>()
        };
        seen.into_iter().flat_map(unseen).collect()
    }

    /// Changes what a server's row says. Fails when there is no such server, or another has the name.
    pub fn change_server(
        &self,
        id: ServerId,
        name: &Text,
        tags: &[Text],
        cache_size_mb: Option<u64>,
    ) -> Result<(), AdminError> {
        self.change(|catalog, draft| {
            let mut server = catalog.server(id).cloned().ok_or(AdminError::ServerMissing(id))?;
            if catalog.server_named(name).is_some_and(|other| other.id != id) {
                return Err(AdminError::ServerNameTaken { from: server.name, to: name.clone() });
            }
            server.name = name.clone();
            server.tags = tags.to_vec();
            server.cache_size_mb = cache_size_mb;
            draft.put(CatalogRow::Server(server));
            Ok(())
        })
    }

    /// Forgets this server, which is a proxy and goes now. Anything else does nothing.
    pub fn take_leave(&self) -> Result<(), AdminError> {
        self.forget_proxy(self.identity.server)
    }

    /// Takes a proxy out of the catalog.
    pub(crate) fn forget_proxy(&self, id: ServerId) -> Result<(), AdminError> {
        self.change(|catalog, draft| {
            if catalog.server(id).is_some_and(|server| server.is_proxy) {
                draft.delete(server_key(id));
            }
            Ok(())
        })
    }

    /// Removes a server for good: it is not let in again, and its replicas leave their groups.
    ///
    /// Fails while it is connected, and when a shard has its only replica there. One that was added to divide the table,
    /// or is on its way out, is another one if it says that it votes and has rows.
    pub fn remove_server(&self, id: ServerId) -> Result<(), AdminError> {
        let name_in = |catalog: &Catalog| {
            catalog.server(id).map(|server| server.name.clone()).ok_or(AdminError::ServerMissing(id))
        };
        if self.is_connected(id) {
            return Err(name_in(&self.catalog()).map_or_else(|missing| missing, AdminError::ServerConnected));
        }
        self.change(|catalog, draft| {
            let name = name_in(catalog)?;
            for table in catalog.tables() {
                let mut config = table.config.clone();
                for shard in &mut config.shards {
                    let group = shard.group;
                    if !shard.remove_server(id, |replica| self.votes_with_rows(group, replica)) {
                        return Err(AdminError::OnlyReplica { server: name, table: config.name });
                    }
                }
                if config != table.config {
                    draft.put(CatalogRow::Table(config));
                }
            }
            draft.delete(server_key(id));
            draft.put(CatalogRow::Removed(id));
            fill_voters(catalog, draft, &[id]);
            Ok(())
        })
    }

    /// Whether a replica says that it has the rows of its group and votes.
    fn votes_with_rows(&self, group: GroupId, replica: &ReplicaConfig) -> bool {
        let end = match replica.server == self.identity.server {
            true => self.end_here(group),
            false => {
                let answer = self.ask(replica.server, Question::End { group }.encode(), PATIENCE);
                answer.ok().and_then(EndAnswer::decode)
            }
        };
        end.is_some_and(|end| end.own == replica.peer && end.members.voters.contains(&end.own))
    }
}

impl ShardConfig {
    /// Removes the replica on a server, and has another lead if that one did; whether there is one that can.
    ///
    /// Of those that the table is to have the first one that is to vote. If there is none, one of the others that
    /// `votes_with_rows`: what was added may have no rows yet, and who is on its way out may never have had them.
    fn remove_server(&mut self, gone: ServerId, votes_with_rows: impl Fn(&ReplicaConfig) -> bool) -> bool {
        self.replicas.retain(|replica| replica.server != gone);
        self.leaving.retain(|replica| replica.server != gone);
        let own = self.own_voters().next().map(|replica| replica.server);
        if let Some(own) = own {
            if self.primary == gone {
                self.primary = own;
            }
            return true;
        }
        let can_lead = |replica: &ReplicaConfig| replica.voting && votes_with_rows(replica);
        let added = self.replicas.iter().find(|replica| can_lead(replica)).map(|replica| replica.server);
        let Some(heir) = added.or_else(|| {
            let leaving = self.leaving.iter().position(can_lead)?;
            self.replicas.push(self.leaving.remove(leaving));
            self.replicas.last().map(|replica| replica.server)
        }) else {
            return false;
        };
        self.primary = heir;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Added;
    use crate::fixture::{peer, server, shard};

    /// A shard on 1 and 2, where 2 has no vote, one is added on 3, and 4 is on its way out.
    fn moving() -> ShardConfig {
        let mut config = shard(3, b"", &[1, 2, 4]);
        config.leaving.extend(config.replicas.pop());
        config.replicas[1].voting = false;
        assert!(config.add(server(3), || peer(3, 3)));
        config
    }

    /// The shard without its first server, if those say that they vote and have rows.
    fn without_first(mut config: ShardConfig, those: &[u64]) -> Option<ShardConfig> {
        let votes = |replica: &ReplicaConfig| those.iter().any(|n| replica.peer == peer(3, *n));
        let is_left = config.remove_server(server(1), votes);
        config.settle_added();
        is_left.then_some(config)
    }

    #[test]
    fn only_who_votes_and_has_rows_takes_the_place_of_the_only_replica() {
        let primary = |those: &[u64]| without_first(moving(), those).map(|left| left.primary);
        assert_eq!(primary(&[]), None);
        assert_eq!(primary(&[2]), None, "it is to have no vote");
        assert_eq!(primary(&[3, 4]), Some(server(3)));
        assert_eq!(primary(&[4]), Some(server(4)));
        let (added, left) = (without_first(moving(), &[3]), without_first(moving(), &[4]));
        assert_eq!(added.map(|config| (config.added, config.leaving.len())), Some((vec![], 1)));
        let which = left.map(|config| (config.added, config.leaving.len()));
        assert_eq!(
            which,
            Some((vec![Added::Replica(server(3))], 0)),
            "it is the table's, and the other is not"
        );
    }

    #[test]
    fn one_that_the_table_is_to_have_comes_before_a_vote_that_was_added() {
        let mut config = shard(3, b"", &[1, 2, 3]);
        config.replicas[1].voting = false;
        assert!(config.add(server(2), || unreachable!("it has one")));
        let left = without_first(config.clone(), &[2]);
        assert_eq!(left.map(|left| (left.primary, left.added)), Some((server(3), config.added.clone())));
        config.replicas.pop();
        assert_eq!(without_first(config.clone(), &[]), None);
        assert_eq!(without_first(config, &[2]).map(|left| left.primary), Some(server(2)));
    }
}
