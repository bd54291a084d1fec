//! Whether the shards of a table have quorums, and which servers are missing. Judged by the members that the replicas
//! know, since the members that the catalog names may not have joined yet (decision 0015).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io::task;
use log::GroupId;
use storage::TableId;

use crate::catalog::placement::{ShardPlaces, places_of};
use crate::catalog::{Catalog, CatalogClient, DesiredShards, ShardPlacer, display_names, table_by_id};
use crate::config::{ReplicaConfig, ServerId, ShardConfig, TableConfig};
use crate::error::AdminError;
use crate::membership::{Farthest, PositionLookup};
use crate::rpc::Peers;

/// How long servers without which a shard has no quorum may be disconnected.
pub(crate) const QUORUM_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a replica may take to report the members of its group.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval between checks whether servers are connected again.
pub(crate) const CONNECTION_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Bounds the wait for servers without which a table has no quorum.
pub(crate) struct QuorumTimeout<'a> {
    quorum: &'a TableQuorum,
    table: TableId,
    quorum_at: Instant,
}

impl<'a> QuorumTimeout<'a> {
    /// Begins now.
    pub(crate) fn new(quorum: &'a TableQuorum, table: TableId) -> QuorumTimeout<'a> {
        QuorumTimeout { quorum, table, quorum_at: task::now() }
    }

    /// Whether the wait may continue. To be polled: each call that finds no server missing restarts the timeout.
    pub(crate) fn is_left(&mut self) -> bool {
        if self.quorum.missing(self.table).is_none() {
            self.quorum_at = task::now();
        }
        task::now() <= self.quorum_at + QUORUM_TIMEOUT
    }
}

/// The shards of a table that have no quorum, and the missing servers of each.
#[derive(Default)]
pub(crate) struct Lacking(Vec<(GroupId, BTreeSet<ServerId>)>);

impl Lacking {
    /// Fails if one of these shards would get other replicas than it has: without a quorum its members cannot change,
    /// so the table's configuration would be wrong.
    pub(crate) fn refuse(
        &self,
        catalog: &Catalog,
        config: &TableConfig,
        desired: &[ShardPlaces],
    ) -> Result<(), AdminError> {
        let present = places_of(&config.shards);
        // Another number of shards changes every shard.
        let is_changed = |nth: usize| present.len() != desired.len() || present[nth] != desired[nth];
        let shards = config.shards.iter().enumerate();
        let changed: BTreeSet<GroupId> =
            shards.filter(|(nth, _)| is_changed(*nth)).map(|(_, shard)| shard.group).collect();
        let lacking = || self.0.iter().filter(|(group, _)| changed.contains(group));
        let away: BTreeSet<ServerId> = lacking().flat_map(|(_, away)| away).copied().collect();
        match lacking().next() {
            Some(_) => Err(AdminError::NoQuorum { servers: display_names::servers(catalog, &away) }),
            None => Ok(()),
        }
    }
}

/// Looks for the quorums of tables.
pub struct TableQuorum {
    peers: Arc<Peers>,
    catalog: Arc<CatalogClient>,
    placer: Arc<ShardPlacer>,
    positions: Arc<PositionLookup>,
}

impl TableQuorum {
    pub(crate) fn new(
        peers: Arc<Peers>,
        catalog: Arc<CatalogClient>,
        placer: Arc<ShardPlacer>,
        positions: Arc<PositionLookup>,
    ) -> TableQuorum {
        TableQuorum { peers, catalog, placer, positions }
    }

    /// Where [`super::Resharder::change_table_while`] would place the shards of a table; changes nothing.
    ///
    /// As the change does, waits for the quorum of a shard that would get other replicas, and fails if there is none.
    pub fn plan_places(
        &self,
        id: TableId,
        desired: &DesiredShards,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<Vec<ShardPlaces>, AdminError> {
        self.await_quorum(id, Some(desired), should_continue)?;
        let catalog = self.catalog.shown();
        self.placer.places(&catalog, desired, Some(table_by_id(&catalog, id)?))
    }

    /// Waits until every shard that is to have other replicas has a quorum to change its members, for
    /// [`QUORUM_TIMEOUT`] at most. Returns the shards without a quorum, which keep their replicas. Asks no server if
    /// `desired` is `None`.
    pub(crate) fn await_quorum(
        &self,
        id: TableId,
        desired: Option<&DesiredShards>,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<Lacking, AdminError> {
        let Some(desired) = desired else { return Ok(Lacking::default()) };
        let until = task::now() + QUORUM_TIMEOUT;
        loop {
            let catalog = self.catalog.shown();
            let handle = table_by_id(&catalog, id)?;
            let places = self.placer.places(&catalog, desired, Some(handle))?;
            if places == places_of(&handle.config.shards) {
                return Ok(Lacking::default());
            }
            let lacking = self.lacking(&handle.config);
            match lacking.refuse(&catalog, &handle.config, &places) {
                Ok(()) => return Ok(lacking),
                Err(_) if should_continue() && task::now() < until => task::sleep(CONNECTION_CHECK_INTERVAL),
                Err(refused) => return Err(refused),
            }
        }
    }

    /// The shards of a table that have no quorum. Asks the connected servers.
    fn lacking(&self, config: &TableConfig) -> Lacking {
        let positions = self.positions.of_shards(config.shards.iter(), MEMBERS_TIMEOUT);
        let lacks = |shard: &ShardConfig| {
            let known: Vec<ReplicaConfig> = shard.all_replicas().copied().collect();
            let voters = match Farthest::of(positions.of_shard(shard)) {
                Some(found) if !found.members.voters.is_empty() => {
                    self.catalog.servers_of(&found.members.voters, &known)
                }
                // The group may not have begun yet, or the replicas that responded do not know the voters yet.
                _ => shard.replicas.iter().filter(|r| r.voting).map(|r| Some(r.server)).collect(),
            };
            let is_connected =
                |server: &Option<ServerId>| server.is_some_and(|server| self.peers.is_connected(server));
            let away = || voters.iter().filter(|server| !is_connected(server));
            (away().count() * 2 >= voters.len()).then(|| (shard.group, away().flatten().copied().collect()))
        };
        Lacking(config.shards.iter().filter_map(lacks).collect())
    }

    /// The error that names the disconnected servers of shards without a quorum, if there are any. Judged by the
    /// catalog: asks no server.
    pub(crate) fn missing(&self, id: TableId) -> Option<AdminError> {
        let catalog = self.catalog.shown();
        let voters = |shard: &ShardConfig| {
            let voters = shard.replicas.iter().filter(|replica| replica.voting);
            voters.map(|replica| replica.server).collect::<Vec<_>>()
        };
        let is_away = |server: &ServerId| !self.peers.is_connected(*server);
        let shards = table_by_id(&catalog, id).ok()?.config.shards.iter().map(voters);
        let lost = shards
            .filter(|voters| voters.iter().filter(|server| !is_away(server)).count() * 2 <= voters.len());
        let away: BTreeSet<ServerId> = lost.flatten().filter(is_away).collect();
        (!away.is_empty()).then(|| AdminError::NoQuorum { servers: display_names::servers(&catalog, &away) })
    }
}
