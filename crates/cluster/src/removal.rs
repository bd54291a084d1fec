//! Removal of servers for good, of those that nothing needs any more.

use std::collections::BTreeMap;
use std::time::Duration;

use log::GroupId;

use crate::answer::{EndAnswer, decode_ends};
use crate::catalog_row::{CatalogRow, server_key};
use crate::node::Core;
use crate::question::Question;
use crate::repair::{MostComplete, everyone};
use crate::servers::fill_voters;
use crate::{AdminError, Catalog, ReplicaConfig, ServerId, ShardConfig, TableHandle};

/// How long a server may take to say how far its logs reach.
const PATIENCE: Duration = Duration::from_secs(2);
/// One question is about so many groups at most: it is answered in one turn of a log.
const GROUPS_MAX: usize = 4096;
/// So many tables are named at most, where some are in the way.
const NAMED_MAX: usize = 10;

impl Core {
    /// Removes a server for good: it is not let in again, and its replicas leave their groups.
    ///
    /// Fails while it is connected, and while a shard needs it: when that has its only replica there, or when of those
    /// who vote in its group now no majority answers that has rows. Who was removed is told so when it comes back, and
    /// what the others lack would be lost without anybody having asked for that.
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
                // What was added to divide the table, or is on its way out, is another replica if it votes and has rows.
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
            let needing = self.tables_needing(catalog, id);
            if !needing.is_empty() {
                return Err(AdminError::NeededForMajority { server: name, tables: in_words(&needing) });
            }
            draft.delete(server_key(id));
            draft.put(CatalogRow::Removed(id));
            fill_voters(catalog, draft, &[id], None);
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

    /// The tables with a shard that can lose nobody more, of those that have a replica on a server that is away.
    fn tables_needing<'a>(&self, catalog: &'a Catalog, away: ServerId) -> Vec<&'a TableHandle> {
        let has_it = |shard: &&ShardConfig| shard.replica_on(away).is_some();
        let tables = catalog.tables();
        let shards = || tables.iter().flat_map(|table| &table.config.shards).filter(has_it);
        let mut asked: BTreeMap<ServerId, Vec<GroupId>> = BTreeMap::new();
        for shard in shards() {
            for replica in everyone(shard).filter(|replica| self.is_connected(replica.server)) {
                asked.entry(replica.server).or_default().push(shard.group);
            }
        }
        let mut ends: BTreeMap<GroupId, Vec<(ServerId, EndAnswer)>> = BTreeMap::new();
        for (server, groups) in &asked {
            for (group, end) in groups.iter().zip(self.ends_on(*server, groups)) {
                ends.entry(*group).or_default().extend(end.map(|end| (*server, end)));
            }
        }
        let is_needed = |shard: &ShardConfig| {
            let ends = ends.get(&shard.group).map_or(&[][..], Vec::as_slice);
            !MostComplete::of(of_shard(shard, ends)).is_some_and(|found| found.majority_was_heard())
        };
        let needs_it = |table: &&&TableHandle| {
            table.config.shards.iter().filter(has_it).any(is_needed) && !self.waits_for_removal(table, away)
        };
        tables.iter().map(|table| &***table).filter(|table| needs_it(&table)).collect()
    }

    /// Whether an emergency repair of the table is refused until servers that are away are removed, this one perhaps:
    /// decision 0024.
    fn waits_for_removal(&self, table: &TableHandle, away: ServerId) -> bool {
        table.config.founds(away)
            && matches!(self.sealed_to_repair(&table.config), Err(AdminError::RowsAway { .. }))
    }

    /// How far the logs of groups reach on a server, in the order of the groups; none where its replica has no rows,
    /// or it does not say.
    fn ends_on(&self, server: ServerId, groups: &[GroupId]) -> Vec<Option<EndAnswer>> {
        if server == self.identity.server {
            return self.ends_here(groups);
        }
        let ask = |groups: &[GroupId]| {
            let answer =
                self.ask(server, Question::Ends { groups: groups.to_vec() }.encode(), PATIENCE).ok()?;
            decode_ends(answer).filter(|ends| ends.len() == groups.len())
        };
        groups.chunks(GROUPS_MAX).flat_map(|some| ask(some).unwrap_or(vec![None; some.len()])).collect()
    }
}

/// What was said of a shard's replicas by those who have them.
fn of_shard(shard: &ShardConfig, ends: &[(ServerId, EndAnswer)]) -> Vec<(ReplicaConfig, EndAnswer)> {
    let said = |replica: &ReplicaConfig| {
        let end = ends.iter().find(|(server, end)| *server == replica.server && end.own == replica.peer);
        end.map(|(_, end)| (*replica, end.clone()))
    };
    everyone(shard).filter_map(said).collect()
}

/// Some tables by their names, and how many more there are.
fn in_words(tables: &[&TableHandle]) -> String {
    let name = |table: &&TableHandle| format!("`{}.{}`", table.db.name, table.config.name);
    let names: Vec<String> = tables.iter().take(NAMED_MAX).map(name).collect();
    match tables.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
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
