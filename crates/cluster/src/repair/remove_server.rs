//! Removes a server from the cluster if its shards can do without it. Decision 0045.

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

/// How long servers may take to report their log positions, and how long their responses are valid.
const POSITIONS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a removal is retried while other changes are made to the server's tables.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(20);
/// The most tables that an error names.
const NAMED_TABLES_MAX: usize = 10;

/// The responses about the tables that have replicas on a server.
struct Responses {
    /// The time of the last response.
    at: Instant,
    /// The tables when the requests were sent.
    tables: Vec<TableConfig>,
    positions: LogPositions,
    /// The tables whose emergency repair is refused until the server is removed.
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

    /// Removes a server permanently: the cluster does not admit it again, and its replicas leave their groups.
    ///
    /// Fails while the server is connected to this one, or to a server that is connected to this one; a connected
    /// server that does not report its connections counts as such. Fails while a shard needs the server: if the shard's
    /// only voting replica is there, or if no quorum of the present voters of its group responds and has rows. A
    /// removed server learns of its removal when it comes back, so rows that the other replicas lack would be lost
    /// without a request to give them up. Fails at once if the catalog has no quorum.
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
            if !self.catalog.has_quorum(&catalog) {
                return Err(self.catalog.no_leader_error());
            }
            // A server may not respond. No other change waits for it: catalog changes are not locked yet, and the
            // tables are compared later.
            let mut responses = self.request_positions(&catalog, id);
            // After the positions, so that the connections are not older than them.
            self.connectivity.connections().refuse_connected(&catalog, id)?;
            let _one_at_a_time = self.catalog.lock_changes();
            let is_expired = task::now() > responses.at + POSITIONS_TIMEOUT;
            if is_expired && task::now() >= until {
                return Err(AdminError::Refused(
                    "too many other changes are being made; try again".to_owned(),
                ));
            }
            if self.peers.is_connected(id) || is_expired {
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

    /// Asks the connected servers, all at the same time, for their log positions of the shards that have a replica on a
    /// server.
    fn request_positions(&self, catalog: &Catalog, id: ServerId) -> Responses {
        let tables: Vec<TableConfig> =
            tables_on(catalog, id).into_iter().map(|table| table.config.clone()).collect();
        let shards = || tables.iter().flat_map(|table| shards_on(table, id));
        let (mut positions, mut at) = (self.positions.of_shards(shards(), POSITIONS_TIMEOUT), task::now());
        // An emergency repair of these tables is refused until disconnected servers, possibly this one, are removed:
        // decision 0024.
        let waits = |table: &&TableConfig| {
            table.is_founded_on(id)
                && is_needed(table, id, &positions)
                && matches!(
                    self.repair.sealed_to_repair(table, false, POSITIONS_TIMEOUT),
                    Err(AdminError::RowsUnreachable { .. })
                )
        };
        let waiting = tables.iter().filter(waits).map(|table| table.id).collect();
        // If a server did not respond, that took long, and the positions have expired.
        if task::now() > at + POSITIONS_TIMEOUT {
            (positions, at) = (self.positions.of_shards(shards(), POSITIONS_TIMEOUT), task::now());
        }
        Responses { at, tables, positions, waiting }
    }

    /// Removes a server from a catalog, if its tables have not changed since the requests for `responses`.
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
            if let Err(repair) = config.remove_server(id, &responses.positions) {
                let table = format!("{}.{}", table.db.name, config.name);
                return Err(AdminError::OnlyReplica { server: name, table, repair });
            }
            if config != table.config {
                draft.put(CatalogRow::Table(config));
            }
        }
        let needs_server = |table: &&TableHandle| {
            is_needed(&table.config, id, &responses.positions)
                && !responses.waiting.contains(&table.config.id)
        };
        let needing: Vec<&TableHandle> = tables.into_iter().filter(needs_server).collect();
        if !needing.is_empty() {
            return Err(AdminError::NeededForQuorum { server: name, tables: table_names(&needing) });
        }
        draft.delete(server_key(id));
        draft.put(CatalogRow::Removed(RemovedServer { id, name: Some(name) }));
        fill_voters(catalog, draft, &[id], None);
        Ok(Outcome::Removed)
    }

    /// Removes replicas on permanently removed servers from a shard that this node leads. A repair of the catalog
    /// leaves them in a shard that is being moved, since only its leader knows the voters; the move could wait for them
    /// for ever.
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
            tracing::warn!("could not delete replicas on removed servers from the catalog: {error}");
        }
    }
}

/// The result of one attempt.
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

/// Whether a shard with a replica on a disconnected server has no quorum without it.
fn is_needed(table: &TableConfig, away: ServerId, positions: &LogPositions) -> bool {
    shards_on(table, away).any(|shard| !has_quorum_by(shard, positions))
}

/// Whether a quorum of the present voters of a shard's group has responded and has rows.
fn has_quorum_by(shard: &ShardConfig, positions: &LogPositions) -> bool {
    Farthest::of(positions.of_shard(shard)).is_some_and(|found| found.has_quorum())
}

/// Whether a replica votes and has rows, as it reported itself.
fn votes_with_rows(group: GroupId, replica: &ReplicaConfig, positions: &LogPositions) -> bool {
    let position = positions.of(group, replica.server, replica.peer);
    position.is_some_and(|at| at.members.voters.contains(&at.own))
}

/// The names of the first tables, and how many more there are.
fn table_names(tables: &[&TableHandle]) -> String {
    let name = |table: &&TableHandle| format!("`{}.{}`", table.db.name, table.config.name);
    let names: Vec<String> = tables.iter().take(NAMED_TABLES_MAX).map(name).collect();
    match tables.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

impl TableConfig {
    /// Removes the replicas on a server. Fails if a shard has no other replica that can lead, with the repair that it
    /// needs.
    fn remove_server(&mut self, removed: ServerId, positions: &LogPositions) -> Result<(), RepairNeeded> {
        let mut outcome = Ok(());
        for shard in &mut self.shards {
            // A temporary or leaving replica counts as another one if it votes and has rows.
            let group = shard.group;
            let votes_with_rows = |replica: &ReplicaConfig| votes_with_rows(group, replica, positions);
            if !shard.remove_server(removed, votes_with_rows) && outcome != Err(RepairNeeded::Rollback) {
                let is_empty = shard.all_replicas().next().is_none();
                outcome = Err(if is_empty { RepairNeeded::Erase } else { RepairNeeded::Rollback });
            }
        }
        outcome
    }

    /// Removes the replicas on `lost` servers from those shards that can do without all of them. A shard that is being
    /// moved stays unchanged: its leaving replicas may be the only ones with its rows.
    pub(crate) fn remove_lost_servers(&mut self, lost: &[ServerId], positions: &LogPositions) {
        for shard in self.shards.iter_mut().filter(|shard| shard.leaving.is_empty()) {
            let mut left = shard.clone();
            let votes_with_rows = |replica: &ReplicaConfig| votes_with_rows(shard.group, replica, positions);
            let mut hosts = lost.iter().filter(|server| shard.replica_on(**server).is_some());
            if has_quorum_by(shard, positions)
                && hosts.all(|server| left.remove_server(*server, votes_with_rows))
            {
                *shard = left;
            }
        }
    }
}

impl ShardConfig {
    /// The shard without its replicas on permanently removed servers, judged by the `status` of its leader; `None` if
    /// the leader has no quorum, or if nothing changes.
    ///
    /// Replicas that the group itself has removed stay: an emergency repair, or the end of the move, deletes them.
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
        let can_do_without = has_quorum(status)
            && self
                .all_replicas()
                .filter(is_gone)
                .all(|gone| left.remove_server(gone.server, votes_with_rows));
        (can_do_without && left != *self).then_some(left)
    }

    /// Removes the replica on a server, and chooses another primary if it was the primary. Returns whether another
    /// replica can lead.
    ///
    /// The successor is the first permanent voter. If there is none, it is a temporary or leaving replica that
    /// `votes_with_rows`: a temporary one may have no rows yet, and a leaving one may never have had them.
    fn remove_server(&mut self, removed: ServerId, votes_with_rows: impl Fn(&ReplicaConfig) -> bool) -> bool {
        self.replicas.retain(|replica| replica.server != removed);
        self.leaving.retain(|replica| replica.server != removed);
        let own = self.permanent_voters().next().map(|replica| replica.server);
        if let Some(own) = own {
            if self.primary == removed {
                self.primary = own;
            }
            return true;
        }
        let can_lead = |replica: &ReplicaConfig| replica.voting && votes_with_rows(replica);
        let added = self.replicas.iter().find(|replica| can_lead(replica)).map(|replica| replica.server);
        let Some(successor) = added.or_else(|| {
            let leaving = self.leaving.iter().position(can_lead)?;
            self.replicas.push(self.leaving.remove(leaving));
            self.replicas.last().map(|replica| replica.server)
        }) else {
            return false;
        };
        self.primary = successor;
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

    /// A shard on 1 and 2, where 2 has no vote, with a temporary replica on 3 and a leaving one on 4.
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

    /// The status of the shard's group on its leader, the first voter, if these replicas respond.
    fn led(voters: &[u64], responding: &[u64]) -> GroupStatus {
        let numbers: Vec<u64> = voters.iter().map(|n| peer(3, *n).0).collect();
        let known = |n: &u64| fixture::known(peer(3, *n).0, fixture::LAST, responding.contains(n));
        fixture::led(&numbers, &voters[1..].iter().map(known).collect::<Vec<_>>())
    }

    /// The shard without its first server, if `those` report that they vote and have rows.
    fn without_first(mut config: ShardConfig, those: &[u64]) -> Option<ShardConfig> {
        let votes = |replica: &ReplicaConfig| those.iter().any(|n| replica.peer == peer(3, *n));
        let is_left = config.remove_server(server(1), votes);
        config.prune_temporary();
        is_left.then_some(config)
    }

    #[test]
    fn only_a_voter_with_rows_replaces_the_only_replica() {
        let primary = |those: &[u64]| without_first(moving(), those).map(|left| left.primary);
        assert_eq!(primary(&[]), None);
        assert_eq!(primary(&[2]), None, "it is to have no vote");
        assert_eq!(primary(&[3, 4]), Some(server(3)));
        assert_eq!(primary(&[4]), Some(server(4)));
        let (added, left) = (without_first(moving(), &[3]), without_first(moving(), &[4]));
        assert_eq!(added.map(|config| (config.temporary, config.leaving.len())), Some((vec![], 1)));
        let which = left.map(|config| (config.temporary, config.leaving.len()));
        assert_eq!(
            which,
            Some((vec![Temporary::Replica(server(3))], 0)),
            "it is permanent now, and the other is temporary"
        );
    }

    #[test]
    fn responses_of_removed_members_do_not_decide_about_a_shard_that_is_being_moved() {
        // The group has moved from the last two to the first two, and the last two do not know it yet.
        let mut moved = shard(3, b"", &[1, 2, 3, 4]);
        moved.leaving = moved.replicas.split_off(2);
        let position = LogPositionResponse {
            own: peer(3, 3),
            last_term: Term(2),
            last: Lsn(9),
            members: members(&[3, 4]),
        };
        let mut positions = LogPositions::default();
        for n in [3, 4] {
            let response = LogPositionResponse { own: peer(3, n), ..position.clone() };
            positions.note(server(n), &[GroupId(3)], vec![Some(response)]);
        }
        let mut config = table(vec![moved.clone()]);
        config.remove_lost_servers(&[server(1), server(2)], &positions);
        assert_eq!(config.shards, [moved.clone()]);
        moved.replicas.append(&mut moved.leaving);
        let mut config = table(vec![moved]);
        config.remove_lost_servers(&[server(1), server(2)], &positions);
        assert_eq!(
            config.shards[0].permanent_voters().count(),
            2,
            "all are permanent, and most have responded"
        );
    }

    #[test]
    fn the_leader_of_a_shard_drops_replicas_on_removed_servers() {
        let mut moving = shard(3, b"", &[1, 2, 3]);
        moving.leaving = moving.replicas.split_off(1);
        let left = |removed: &[u64], status: &GroupStatus| {
            let left = moving.without_removed(|id| removed.iter().any(|n| id == server(*n)), status)?;
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
        assert_eq!(left(&[1, 3], &forced), None, "an emergency repair removes them");
    }

    #[test]
    fn a_permanent_voter_comes_before_a_temporary_vote() {
        let mut config = shard(3, b"", &[1, 2, 3]);
        config.replicas[1].voting = false;
        assert!(config.add_temporary(server(2), || unreachable!("it has one")));
        let left = without_first(config.clone(), &[2]);
        assert_eq!(
            left.map(|left| (left.primary, left.temporary)),
            Some((server(3), config.temporary.clone()))
        );
        config.replicas.pop();
        assert_eq!(without_first(config.clone(), &[]), None);
        assert_eq!(without_first(config, &[2]).map(|left| left.primary), Some(server(2)));
    }
}
