//! Removes servers from the cluster, as far as no shard needs them any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datum::Text;
use io::task;
use log::{GroupId, GroupStatus, Log, Role};
use storage::TableId;

use super::tables::Repair;
use crate::catalog::row::{CatalogRow, RemovedServer, server_key};
use crate::catalog::{Catalog, CatalogClient, Draft, Handles, fill_voters};
use crate::config::{ReplicaConfig, ServerId, ShardConfig, TableConfig};
use crate::error::{AdminError, RepairNeeded};
use crate::membership::{Connectivity, Farthest, LogPositions, PositionLookup, has_quorum};
use crate::routing::lag::{Lag, is_within};
use crate::routing::{ReplicaTransport, TableHandle};
use crate::rpc::Peers;

/// How long servers may take to tell how far their logs reach, and how long their responses count.
const POSITIONS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a removal is retried while other changes are made to the server's tables.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(20);
/// The most tables that an error names.
const NAMED_TABLES_MAX: usize = 10;

/// What was responses of the tables that have replicas on a server.
struct Responses {
    /// When the last answer was there.
    at: Instant,
    /// The tables as they were.
    tables: Vec<TableConfig>,
    positions: LogPositions,
    /// Those of them whose emergency repair is refused until that server is removed.
    waiting: BTreeSet<TableId>,
}

/// Removes servers.
pub struct ServerRemoval {
    peers: Arc<Peers>,
    transport: Arc<ReplicaTransport>,
    log: Arc<dyn Log>,
    catalog: Arc<CatalogClient>,
    positions: Arc<PositionLookup>,
    connectivity: Arc<Connectivity>,
    repair: Arc<Repair>,
}

impl ServerRemoval {
    pub(crate) fn new(
        handles: &Handles,
        positions: Arc<PositionLookup>,
        connectivity: Arc<Connectivity>,
        repair: Arc<Repair>,
    ) -> ServerRemoval {
        ServerRemoval {
            peers: handles.peers.clone(),
            transport: handles.transport.clone(),
            log: handles.log.clone(),
            catalog: handles.catalog.clone(),
            positions,
            connectivity,
            repair,
        }
    }

    /// Removes a server for good: it is not let in again, and its replicas leave their groups.
    ///
    /// Fails while it is connected, here or to a server that is connected here, or may be because one of those does not
    /// say whom it sees, and while a shard needs it: when that has its only voting replica there, or when of those who vote
    /// in its group now no majority answers that has rows. Who was removed is told so when it comes back, and what the others lack would be lost without anybody having asked for that. Fails at once where the catalog has
    /// no majority.
    pub fn remove_server(&self, id: ServerId) -> Result<(), AdminError> {
        let until = task::now() + REMOVAL_TIMEOUT;
        loop {
            if self.peers.is_connected(id) {
                return Err(
                    name_of(&self.catalog.shown(), id).map_or_else(|e| e, AdminError::ServerConnected)
                );
            }
            let catalog = self.catalog.shown();
            name_of(&catalog, id)?;
            if !self.catalog.has_quorum() {
                return Err(self.catalog.no_leader_error());
            }
            // Somebody may hang who is asked. Nobody else waits for that: the tables are looked at again after it.
            let mut responses = self.ask_about(&catalog, id);
            // After the others, so that it is not older than what was responses of the tables.
            self.connectivity.connections().refuse_connected(&catalog, id)?;
            let _one_at_a_time = self.catalog.lock_changes();
            let is_old = task::now() > responses.at + POSITIONS_TIMEOUT;
            if is_old && task::now() >= until {
                return Err(AdminError::Refused("too much else is being changed; try again".to_owned()));
            }
            if self.peers.is_connected(id) || is_old {
                continue;
            }
            responses.positions.retain(|server| self.peers.is_connected(server));
            match self
                .catalog
                .change_locked(|catalog, draft| self.put_removal(catalog, draft, id, &responses))?
            {
                Outcome::Removed => return Ok(()),
                Outcome::Changed if task::now() < until => {}
                Outcome::Changed => {
                    return Err(AdminError::Refused("its tables are being changed; try again".to_owned()));
                }
            }
        }
    }

    /// Asks those who are connected of the shards that have a replica on a server, all at the same time.
    fn ask_about(&self, catalog: &Catalog, id: ServerId) -> Responses {
        let tables: Vec<TableConfig> =
            tables_on(catalog, id).into_iter().map(|table| table.config.clone()).collect();
        let shards = || tables.iter().flat_map(|table| shards_on(table, id));
        let (mut ends, mut at) = (self.positions.of_shards(shards(), POSITIONS_TIMEOUT), task::now());
        // An emergency repair of these is refused until servers that are away are removed, this one perhaps:
        // decision 0024.
        let waits = |table: &&TableConfig| {
            table.is_founded_on(id)
                && is_needed(table, id, &ends)
                && matches!(
                    self.repair.sealed_to_repair(table, false, POSITIONS_TIMEOUT),
                    Err(AdminError::RowsUnreachable { .. })
                )
        };
        let waiting = tables.iter().filter(waits).map(|table| table.id).collect();
        // That took long where somebody hangs.
        if task::now() > at + POSITIONS_TIMEOUT {
            (ends, at) = (self.positions.of_shards(shards(), POSITIONS_TIMEOUT), task::now());
        }
        Responses { at, tables, positions: ends, waiting }
    }

    /// Removes a server from a catalog, if its tables are those that were `responses` of.
    fn put_removal(
        &self,
        catalog: &Catalog,
        draft: &mut Draft,
        id: ServerId,
        responses: &Responses,
    ) -> Result<Outcome, AdminError> {
        let name = name_of(catalog, id)?;
        let tables = tables_on(catalog, id);
        if !tables.iter().map(|table| &table.config).eq(&responses.tables) {
            return Ok(Outcome::Changed);
        }
        for table in &tables {
            let mut config = table.config.clone();
            if let Err(rest) = config.remove_server(id, &responses.positions) {
                let table = format!("{}.{}", table.db.name, config.name);
                return Err(AdminError::OnlyReplica { server: name, table, rest });
            }
            if config != table.config {
                draft.put(CatalogRow::Table(config));
            }
        }
        let is_in_the_way = |table: &&TableHandle| {
            is_needed(&table.config, id, &responses.positions)
                && !responses.waiting.contains(&table.config.id)
        };
        let needing: Vec<&TableHandle> = tables.into_iter().filter(is_in_the_way).collect();
        if !needing.is_empty() {
            return Err(AdminError::NeededForMajority { server: name, tables: in_words(&needing) });
        }
        draft.delete(server_key(id));
        draft.put(CatalogRow::Removed(RemovedServer { id, name: Some(name) }));
        fill_voters(catalog, draft, &[id], None);
        Ok(Outcome::Removed)
    }

    /// Takes replicas on servers that were removed for good out of a shard that is led from here: a repair of the catalog
    /// leaves them in one that is being moved, and only who leads it knows who votes. The move could wait for them for ever.
    pub(crate) fn reconcile_removed(&self, catalog: &Catalog, table: TableId, shard: &ShardConfig) {
        if !shard.all_replicas().any(|replica| catalog.is_removed(replica.server)) {
            return;
        }
        let status = self.log.group_status(shard.group).map(|status| self.transport.with_connected(status));
        let led = status.ok().filter(|status| matches!(status.role, Role::Leader { .. }));
        let Some(left) = led.and_then(|status| shard.without_removed(|id| catalog.is_removed(id), &status))
        else {
            return;
        };
        let changed = self.catalog.change(|catalog, draft| {
            let Some(table) = catalog.table_by_id(table) else { return Ok(()) };
            let mut config = table.config.clone();
            if let Some(known) = config.shards.iter_mut().find(|known| *known == shard) {
                known.clone_from(&left);
                draft.put(CatalogRow::Table(config));
            }
            Ok(())
        });
        if let Err(error) = changed {
            tracing::warn!("replicas on servers that were removed are still in the catalog: {error}");
        }
    }
}

/// What came of one attempt.
enum Outcome {
    Removed,
    /// The tables were changed meanwhile.
    Changed,
}

fn name_of(catalog: &Catalog, id: ServerId) -> Result<Text, AdminError> {
    catalog.server(id).map(|server| server.name.clone()).ok_or(AdminError::ServerMissing(id))
}

/// The tables that have a replica on a server.
fn tables_on(catalog: &Catalog, id: ServerId) -> Vec<&TableHandle> {
    let tables = catalog.tables().into_iter().map(|table| &**table);
    tables.filter(|table| shards_on(&table.config, id).next().is_some()).collect()
}

/// The shards of a table that have a replica on a server.
fn shards_on(table: &TableConfig, id: ServerId) -> impl Iterator<Item = &ShardConfig> {
    table.shards.iter().filter(move |shard| shard.replica_on(id).is_some())
}

/// Whether a shard with a replica on a server that is away can lose nobody more.
fn is_needed(table: &TableConfig, away: ServerId, ends: &LogPositions) -> bool {
    shards_on(table, away).any(|shard| !has_quorum_by(shard, ends))
}

/// Whether of those who vote in the group of a shard now most have said so and have rows.
fn has_quorum_by(shard: &ShardConfig, ends: &LogPositions) -> bool {
    Farthest::of(ends.of_shard(shard)).is_some_and(|found| found.has_quorum())
}

/// Whether a replica votes and has rows, as it said itself.
fn votes_with_rows(group: GroupId, replica: &ReplicaConfig, ends: &LogPositions) -> bool {
    let end = ends.of(group, replica.server, replica.peer);
    end.is_some_and(|end| end.members.voters.contains(&end.own))
}

/// Some tables by their names, and how many more there are.
fn in_words(tables: &[&TableHandle]) -> String {
    let name = |table: &&TableHandle| format!("`{}.{}`", table.db.name, table.config.name);
    let names: Vec<String> = tables.iter().take(NAMED_TABLES_MAX).map(name).collect();
    match tables.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

impl TableConfig {
    /// Removes the replicas on a server. Fails if a shard has no other that can lead, and says who is left then.
    fn remove_server(&mut self, gone: ServerId, ends: &LogPositions) -> Result<(), RepairNeeded> {
        let mut outcome = Ok(());
        for shard in &mut self.shards {
            // What was added to divide the table, or is on its way out, is another replica if it votes and has rows.
            let group = shard.group;
            let votes_with_rows = |replica: &ReplicaConfig| votes_with_rows(group, replica, ends);
            if !shard.remove_server(gone, votes_with_rows) && outcome != Err(RepairNeeded::Rollback) {
                let is_nobody = shard.all_replicas().next().is_none();
                outcome = Err(if is_nobody { RepairNeeded::Erase } else { RepairNeeded::Rollback });
            }
        }
        outcome
    }

    /// Takes the replicas on servers that are `gone` for good out of those shards that can do without all of them. A shard
    /// that is being moved stays: those on their way out may be the only ones that have its rows.
    pub(crate) fn spare(&mut self, gone: &[ServerId], ends: &LogPositions) {
        for shard in self.shards.iter_mut().filter(|shard| shard.leaving.is_empty()) {
            let mut left = shard.clone();
            let votes_with_rows = |replica: &ReplicaConfig| votes_with_rows(shard.group, replica, ends);
            let mut had = gone.iter().filter(|gone| shard.replica_on(**gone).is_some());
            if has_quorum_by(shard, ends) && had.all(|gone| left.remove_server(*gone, votes_with_rows)) {
                *shard = left;
            }
        }
    }
}

impl ShardConfig {
    /// The shard without its replicas on servers that were removed for good, as its leader may say, with a majority that
    /// answers; `None` if nothing is to be changed.
    ///
    /// Those that the group has removed as well stay: an emergency repair takes them out, or the end of the move.
    fn without_removed(
        &self,
        is_removed: impl Fn(ServerId) -> bool,
        status: &GroupStatus,
    ) -> Option<ShardConfig> {
        let is_gone = |replica: &&ReplicaConfig| {
            is_removed(replica.server) && !status.members.removed.contains(&replica.peer)
        };
        let votes_with_rows = |replica: &ReplicaConfig| {
            status.members.voters.contains(&replica.peer) && is_within(status, replica.peer, Lag::Ready)
        };
        let mut left = self.clone();
        let is_led = has_quorum(status)
            && self
                .all_replicas()
                .filter(is_gone)
                .all(|gone| left.remove_server(gone.server, votes_with_rows));
        (is_led && left != *self).then_some(left)
    }

    /// Removes the replica on a server, and has another lead if that one did; whether there is one that can.
    ///
    /// Of those that the table is to have the first one that is to vote. If there is none, one of the others that
    /// `votes_with_rows`: what was added may have no rows yet, and who is on its way out may never have had them.
    fn remove_server(&mut self, gone: ServerId, votes_with_rows: impl Fn(&ReplicaConfig) -> bool) -> bool {
        self.replicas.retain(|replica| replica.server != gone);
        self.leaving.retain(|replica| replica.server != gone);
        let own = self.permanent_voters().next().map(|replica| replica.server);
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
    use log::{Lsn, Members, Term};

    use super::*;
    use crate::Temporary;
    use crate::config::fixture::{peer, server, shard, table};
    use crate::membership::fixture;
    use crate::rpc::response::LogPositionResponse;

    /// A shard on 1 and 2, where 2 has no vote, one is added on 3, and 4 is on its way out.
    fn moving() -> ShardConfig {
        let mut config = shard(3, b"", &[1, 2, 4]);
        config.leaving.extend(config.replicas.pop());
        config.replicas[1].voting = false;
        assert!(config.add_temporary(server(3), || peer(3, 3)));
        config
    }

    fn members(voters: &[u64]) -> Members {
        Members::first(voters.iter().map(|n| peer(3, *n)).collect())
    }

    /// How the group of the shard is for the first of those who vote, where these answer.
    fn led(voters: &[u64], answer: &[u64]) -> GroupStatus {
        let numbers: Vec<u64> = voters.iter().map(|n| peer(3, *n).0).collect();
        let known = |n: &u64| fixture::known(peer(3, *n).0, fixture::LAST, answer.contains(n));
        fixture::led(&numbers, &voters[1..].iter().map(known).collect::<Vec<_>>())
    }

    /// The shard without its first server, if those say that they vote and have rows.
    fn without_first(mut config: ShardConfig, those: &[u64]) -> Option<ShardConfig> {
        let votes = |replica: &ReplicaConfig| those.iter().any(|n| replica.peer == peer(3, *n));
        let is_left = config.remove_server(server(1), votes);
        config.prune_temporary();
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
            Some((vec![Temporary::Replica(server(3))], 0)),
            "it is the table's, and the other is not"
        );
    }

    #[test]
    fn a_shard_that_is_being_moved_is_not_spared_by_what_those_say_who_have_gone() {
        // The group has moved from the last two to the first two, and one of those who went has not responses of it.
        let mut moved = shard(3, b"", &[1, 2, 3, 4]);
        moved.leaving = moved.replicas.split_off(2);
        let end = LogPositionResponse {
            own: peer(3, 3),
            last_term: Term(2),
            last: Lsn(9),
            members: members(&[3, 4]),
        };
        let mut ends = LogPositions::default();
        for n in [3, 4] {
            ends.note(
                server(n),
                &[GroupId(3)],
                vec![Some(LogPositionResponse { own: peer(3, n), ..end.clone() })],
            );
        }
        let mut config = table(vec![moved.clone()]);
        config.spare(&[server(1), server(2)], &ends);
        assert_eq!(config.shards, [moved.clone()]);
        moved.replicas.append(&mut moved.leaving);
        let mut config = table(vec![moved]);
        config.spare(&[server(1), server(2)], &ends);
        assert_eq!(
            config.shards[0].permanent_voters().count(),
            2,
            "all are the table's, and most have answered"
        );
    }

    #[test]
    fn who_leads_a_shard_takes_out_replicas_on_servers_that_were_removed() {
        let mut moving = shard(3, b"", &[1, 2, 3]);
        moving.leaving = moving.replicas.split_off(1);
        let left = |gone: &[u64], status: &GroupStatus| {
            let left = moving.without_removed(|id| gone.iter().any(|n| id == server(*n)), status)?;
            let servers = |those: &[ReplicaConfig]| those.iter().map(|r| r.server).collect::<Vec<_>>();
            Some((left.primary, servers(&left.replicas), servers(&left.leaving)))
        };
        let (one, two, three) = (server(1), server(2), server(3));
        let status = led(&[2, 3], &[3]);
        assert_eq!(left(&[], &status), None);
        assert_eq!(left(&[1], &status), Some((two, vec![two], vec![three])), "it had no rows");
        assert_eq!(left(&[1], &led(&[2, 3], &[])), None, "it has no majority");
        let voted = led(&[2, 3, 1], &[1]);
        assert_eq!(left(&[3], &voted), Some((one, vec![one], vec![two])));
        let mut forced = led(&[2], &[]);
        forced.members.removed = vec![peer(3, 1), peer(3, 3)];
        assert_eq!(left(&[1, 3], &forced), None, "a repair takes them out");
    }

    #[test]
    fn one_that_the_table_is_to_have_comes_before_a_vote_that_was_added() {
        let mut config = shard(3, b"", &[1, 2, 3]);
        config.replicas[1].voting = false;
        assert!(config.add_temporary(server(2), || unreachable!("it has one")));
        let left = without_first(config.clone(), &[2]);
        assert_eq!(left.map(|left| (left.primary, left.added)), Some((server(3), config.added.clone())));
        config.replicas.pop();
        assert_eq!(without_first(config.clone(), &[]), None);
        assert_eq!(without_first(config, &[2]).map(|left| left.primary), Some(server(2)));
    }
}
