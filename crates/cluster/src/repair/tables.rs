//! Emergency repair of tables: in a shard that has lost its quorum, one live replica becomes the only voter. If the
//! catalog itself has lost its quorum, it is repaired first (`catalog`).
//!
//! This is unsafe: writes that only the lost replicas had are lost, although they may have been acknowledged. All
//! entries in the survivor's log are kept, whether they were committed or not. The group itself lists lost replicas as
//! removed, so that they learn it when they come back.

use std::sync::Arc;
use std::time::Duration;

use log::{GroupId, Members, PeerId};
use shard::SealState;
use storage::TableId;

use super::catalog::{CatalogLoss, CatalogRepair};
use super::force_members::{ForcedMembers, MemberReset};
use super::lost_servers::{LostServerLookup, LostServers};
use super::shard_repair::{ShardRepair, are_as_assessed, keep_survivor, remove_replicas};
use super::survivor::{SHORT_SURVIVOR_TIMEOUT, SURVIVOR_TIMEOUT, Survivors};
use crate::catalog::placement::ShardPlaces;
use crate::catalog::row::CatalogRow;
use crate::catalog::{Catalog, CatalogClient, Draft, Handles, ShardPlacer, display_names, table_by_id};
use crate::config::{ReplicaConfig, SealedShard, ServerId, ShardConfig, TableConfig};
use crate::error::AdminError;
use crate::membership::{Connectivity, Farthest, PositionLookup};
use crate::routing::{LeaderLookup, LocalReplicas, TableHandle};
use crate::rpc::response::decode_number;
use crate::rpc::{Peers, Request};

/// How far an emergency repair goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairMode {
    /// Shards with a live replica continue with it.
    Rollback,
    /// Also, shards without a live replica begin anew, empty.
    RollbackOrErase,
    /// No server is given up: the configuration is written again unchanged.
    Recommit,
}

/// Whether an emergency repair may also change the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairScope {
    /// Only the table: fails with [`AdminError::CatalogFirst`] if the catalog has to be repaired before it.
    Table,
    /// Also the catalog, which removes servers from the cluster.
    Cluster,
}

/// The result of an emergency repair.
#[derive(Clone, Debug, PartialEq)]
pub struct Repaired {
    /// The table after the repair.
    pub table: TableConfig,
    /// The servers that are permanently removed from the cluster, because the catalog had lost its quorum.
    pub removed: Vec<ServerId>,
}

/// The damage of a table and of the catalog, and how to repair it.
struct Damage {
    /// Set if the catalog has lost its quorum. It is repaired first.
    catalog: Option<CatalogLoss>,
    /// The table before the repair.
    config: TableConfig,
    /// Sealed groups that lack a quorum and are still needed, each with its survivor. If there are any, this repair
    /// is only for them, and another one for the shards.
    sealed: Vec<(SealedShard, ReplicaConfig)>,
    shards: Vec<ShardRepair>,
}

impl Damage {
    /// The servers that are permanently removed from the cluster.
    fn removes(&self) -> Vec<ServerId> {
        self.catalog.as_ref().map_or_else(Vec::new, |loss| loss.lost.clone())
    }
}

/// Repairs tables and the catalog in an emergency.
pub struct Repair {
    own: ServerId,
    peers: Arc<Peers>,
    local: Arc<LocalReplicas>,
    catalog: Arc<CatalogClient>,
    placer: Arc<ShardPlacer>,
    leaders: Arc<LeaderLookup>,
    survivors: Arc<Survivors>,
    lost: Arc<LostServerLookup>,
    members: Arc<MemberReset>,
    catalog_repair: CatalogRepair,
}

impl Repair {
    pub(crate) fn new(
        handles: &Handles,
        positions: Arc<PositionLookup>,
        connectivity: Arc<Connectivity>,
    ) -> Repair {
        let (peers, catalog) = (handles.peers.clone(), handles.catalog.clone());
        let survivors = Arc::new(Survivors::new(handles.own, peers.clone(), positions.clone()));
        let lost = Arc::new(LostServerLookup::new(peers.clone(), catalog.clone(), connectivity));
        let members = Arc::new(MemberReset::new(handles, survivors.clone(), lost.clone()));
        let catalog_repair =
            CatalogRepair::new(handles, positions, survivors.clone(), lost.clone(), members.clone());
        Repair {
            own: handles.own,
            peers,
            local: handles.local.clone(),
            catalog,
            placer: handles.placer.clone(),
            leaders: handles.leaders.clone(),
            survivors,
            lost,
            members,
            catalog_repair,
        }
    }

    /// Sets how long a repair waits for servers to come back: for tests, which know that they do not.
    #[doc(hidden)]
    pub fn set_return_timeout(&self, timeout: Duration) {
        self.lost.set_return_timeout(timeout);
    }

    /// The servers that [`Repair::repair_catalog`] would remove from the cluster. Changes nothing. Fails as the repair
    /// would before it begins, but does not wait for disconnected servers.
    pub fn plan_catalog_repair(&self) -> Result<Vec<ServerId>, AdminError> {
        self.catalog_repair.plan()
    }

    /// Repairs a catalog that has lost its quorum permanently: one live server's replica becomes the only voter.
    /// Returns the servers that were removed from the cluster: servers that are not connected and did not come back
    /// within a few seconds; or, if an earlier repair was interrupted, the servers that it gave up, connected or not.
    ///
    /// Shards that have a quorum without these servers lose their replicas there; shards that are being moved lose
    /// them a moment later. All other shards keep their replicas. An interrupted repair can be repeated. Fails, among
    /// other reasons, if a server that is not connected here is connected to one that is
    /// ([`AdminError::ConnectedElsewhere`]), and with [`AdminError::RepairBegun`] after members were set by force.
    pub fn repair_catalog(&self) -> Result<Vec<ServerId>, AdminError> {
        self.catalog_repair.repair()
    }

    /// Sets the members of a group on this server, at the request of `from`, which repairs the group.
    pub(crate) fn reset_members_here(
        &self,
        from: ServerId,
        group: GroupId,
        members: Members,
    ) -> Result<Members, String> {
        self.members.reset_members_here(from, group, members)
    }

    /// The result that [`Repair::emergency_repair`] would have. Changes nothing. Fails as the repair would before it
    /// begins, but does not wait for disconnected servers.
    pub fn plan_repair(
        &self,
        id: TableId,
        mode: RepairMode,
        scope: RepairScope,
    ) -> Result<Repaired, AdminError> {
        if mode == RepairMode::Recommit {
            let table = table_by_id(&self.catalog.shown(), id)?.config.clone();
            return Ok(Repaired { table, removed: Vec::new() });
        }
        let (mut damage, lost_servers) = self.lost.assess(|| self.damage(id, mode, scope))?;
        let removed = damage.removes();
        if let Some(loss) = &damage.catalog {
            self.catalog_repair.remove_lost_servers(loss, &mut damage.config);
        }
        if !damage.sealed.is_empty() {
            return Ok(Repaired { table: damage.config, removed });
        }
        let catalog = self.catalog.shown();
        let mut draft = Draft::of(&catalog);
        let table = self.repaired(&catalog, &damage.config, &damage.shards, &lost_servers, &mut draft)?;
        Ok(Repaired { table, removed })
    }

    /// Gives shards that have lost their quorum permanently a quorum again. Waits a few seconds for disconnected
    /// servers first.
    ///
    /// If the catalog has lost its quorum, whether the table has or not, the servers that are not connected are
    /// removed from the cluster permanently ([`Repair::repair_catalog`]), if `scope` allows it. An interrupted repair
    /// can be repeated. Fails, among other reasons, if a server that is not connected here is connected to one that is
    /// ([`AdminError::ConnectedElsewhere`]), and with [`AdminError::RepairBegun`] after members of a group were set by
    /// force.
    pub fn emergency_repair(
        &self,
        id: TableId,
        mode: RepairMode,
        scope: RepairScope,
    ) -> Result<Repaired, AdminError> {
        if mode == RepairMode::Recommit {
            return Ok(Repaired { table: self.recommit(id)?, removed: Vec::new() });
        }
        let (damage, lost_servers) = self.lost.assess_with_timeout(|| self.damage(id, mode, scope))?;
        let (removed, forced) = (damage.removes(), ForcedMembers::default());
        let repaired = self.repair(damage, &lost_servers, &forced);
        let table = repaired.map_err(|cause| forced.error(cause))?;
        Ok(Repaired { table, removed })
    }

    /// Writes the configuration of a table again, unchanged.
    fn recommit(&self, id: TableId) -> Result<TableConfig, AdminError> {
        self.catalog.change(|catalog, draft| {
            let config = table_by_id(catalog, id)?.config.clone();
            draft.put(CatalogRow::Table(config.clone()));
            Ok(config)
        })
    }

    fn repair(
        &self,
        damage: Damage,
        lost_servers: &LostServers,
        forced: &ForcedMembers,
    ) -> Result<TableConfig, AdminError> {
        let Damage { catalog, mut config, sealed, shards } = damage;
        if let Some(loss) = catalog {
            self.catalog_repair.restore_quorum(&loss, lost_servers, forced)?;
            // Shards that have a quorum have lost their replicas on the removed servers.
            let catalog = self.catalog.shown();
            let present = &table_by_id(&catalog, config.id)?.config.shards;
            for shard in &mut config.shards {
                if let Some(known) = present.iter().find(|known| known.group == shard.group) {
                    shard.clone_from(known);
                }
            }
        }
        if !sealed.is_empty() {
            for (old, survivor) in &sealed {
                self.members.force_survivor(old.group, *survivor, &old.replicas, lost_servers, forced)?;
            }
            // The handover that needs these groups continues without further help.
            return Ok(config);
        }
        for (shard, repair) in config.shards.iter().zip(&shards) {
            if let ShardRepair::ForceSurvivor(survivor) = repair {
                let others: Vec<ReplicaConfig> = shard.all_replicas().copied().collect();
                self.members.force_survivor(shard.group, *survivor, &others, lost_servers, forced)?;
            }
        }
        let erased = config.shards.iter().zip(&shards).filter(|(_, repair)| **repair == ShardRepair::Erase);
        self.lost.check(lost_servers, erased.clone().flat_map(|(shard, _)| shard.all_replicas()))?;
        let present = self.catalog.shown();
        let erased: Vec<String> =
            erased.map(|(shard, _)| display_names::group(&present, shard.group)).collect();
        let after = self.catalog.change(|catalog, draft| {
            let present = &table_by_id(catalog, config.id)?.config;
            if !are_as_assessed(&present.shards, &config.shards, &shards) {
                return Err(AdminError::Refused("the table was reconfigured meanwhile".to_owned()));
            }
            let after = self.repaired(catalog, present, &shards, lost_servers, draft)?;
            if after != *present {
                draft.put(CatalogRow::Table(after.clone()));
            }
            Ok(after)
        })?;
        for shard in erased {
            tracing::warn!("Emergency repair: {shard} begins anew, empty: no connected server has its rows");
        }
        Ok(after)
    }

    /// The damage of a table and of the catalog. Fails if there is none, or more than `mode` and `scope` allow to
    /// repair.
    fn damage(&self, id: TableId, mode: RepairMode, scope: RepairScope) -> Result<Damage, AdminError> {
        let present = self.catalog.shown();
        let table = table_by_id(&present, id)?;
        let config = table.config.clone();
        let catalog = self.catalog_repair.loss(&present)?;
        if catalog.is_some() && scope == RepairScope::Table {
            return Err(AdminError::CatalogFirst);
        }
        let lacking = self.sealed_to_repair(&config, catalog.is_some(), SURVIVOR_TIMEOUT)?;
        let sealed: Vec<_> = lacking.into_iter().map(|(old, survivor)| (old.clone(), survivor)).collect();
        if !sealed.is_empty() {
            return Ok(Damage { catalog, config, sealed, shards: Vec::new() });
        }
        let shards = match self.assess_shards(table, mode) {
            // Each shard has a quorum, and only the catalog is repaired.
            Err(AdminError::NothingToRepair) if catalog.is_some() => {
                vec![ShardRepair::Keep; config.shards.len()]
            }
            shards => shards?,
        };
        Ok(Damage { catalog, config, sealed, shards })
    }

    /// The sealed groups that lack a quorum and are still needed, each with its survivor.
    ///
    /// Fails if the repair could take the seal from a group while a disconnected founder may have begun a new shard with
    /// that seal: decision 0024.
    pub(crate) fn sealed_to_repair<'a>(
        &self,
        config: &'a TableConfig,
        catalog_is_lost: bool,
        timeout: Duration,
    ) -> Result<Vec<(&'a SealedShard, ReplicaConfig)>, AdminError> {
        // If only lost servers wait for the sealed groups, no live server needs them.
        let is_connected = |server: &ServerId| self.peers.is_connected(*server);
        let mut lacking = Vec::new();
        if !config.history.waiting.iter().any(is_connected) {
            return Ok(lacking);
        }
        for old in &config.history.sealed {
            let live = old.replicas.iter().filter(|replica| self.peers.is_connected(replica.server));
            if let Some(found) = self.survivors.survivor(old.group, live, timeout)
                && !self.catalog.is_quorum_connected(&found.members, &old.replicas)
            {
                // If the catalog is lost, its repair comes first and permanently removes every disconnected server.
                if !catalog_is_lost {
                    self.check_seal_kept(config, old, &found, timeout)?;
                }
                lacking.push((old, found.replica));
            }
        }
        Ok(lacking)
    }

    /// Fails unless the survivor of a sealed group has its seal, or no disconnected founder of the new shards can come
    /// back.
    fn check_seal_kept(
        &self,
        config: &TableConfig,
        old: &SealedShard,
        found: &Farthest,
        timeout: Duration,
    ) -> Result<(), AdminError> {
        let catalog = self.catalog.shown();
        // A quorum of the voters has the seal, so at least one of any half has it.
        let voters = old.replicas.iter().filter(|replica| replica.voting).count();
        if found.voters_responded * 2 >= voters.max(found.members.voters.len())
            || self.seal_state_on(found.replica.server, old.group, timeout) == Some(old.seal_state())
        {
            return Ok(());
        }
        let may_come_back =
            |server: &&ServerId| !self.peers.is_connected(**server) && catalog.server(**server).is_some();
        // Includes founders that do not wait any more: they have the new shards.
        let founders = old
            .replicas
            .iter()
            .map(|replica| &replica.server)
            .filter(|server| config.is_founded_on(**server));
        let away: Vec<String> =
            founders.filter(may_come_back).map(|server| display_names::server(&catalog, *server)).collect();
        match away.is_empty() {
            true => Ok(()),
            false => Err(AdminError::RowsUnreachable { servers: away.join(", ") }),
        }
    }

    /// The applied seal state of a group on a server; `None` if the server does not respond.
    fn seal_state_on(&self, server: ServerId, group: GroupId, timeout: Duration) -> Option<SealState> {
        if server == self.own {
            return self.local.shard_of(group).map(|shard| shard.seal_state());
        }
        let response = self.peers.call(server, Request::SealNumber { group }.encode(), timeout).ok()?;
        decode_number(response).map(SealState::of_number)
    }

    /// The repair of each shard. Fails if no shard needs one, or if the mode does not allow it.
    fn assess_shards(&self, table: &TableHandle, mode: RepairMode) -> Result<Vec<ShardRepair>, AdminError> {
        let config = &table.config;
        let led = self.leaders.leaders(&table.shards().iter().collect::<Vec<_>>());
        let shards = config.shards.iter().zip(led);
        let repairs: Vec<ShardRepair> =
            shards.map(|(shard, led)| self.assess_shard(shard, led.map(|(server, _)| server))).collect();
        let has_survivor = repairs
            .iter()
            .any(|repair| matches!(repair, ShardRepair::ForceSurvivor(_) | ShardRepair::AlreadyForced(..)));
        let is_lost = repairs.contains(&ShardRepair::Erase);
        if is_lost && !config.history.sealed.is_empty() {
            // Its rows may be there all the same, under the sealed groups.
            return Err(AdminError::Refused(
                "new shards of this table are still being opened; connect more of its servers".to_owned(),
            ));
        }
        match (has_survivor, is_lost) {
            (false, false) => Err(AdminError::NothingToRepair),
            (false, true) if mode != RepairMode::RollbackOrErase => Err(AdminError::NoCopies),
            _ if mode == RepairMode::RollbackOrErase => Ok(repairs),
            _ => Ok(repairs.into_iter().map(ShardRepair::without_erasing).collect()),
        }
    }

    /// The repair of one shard. Judged by the members that its replicas know: of the voters in the catalog, new ones
    /// may not have joined yet, and old ones may still vote.
    fn assess_shard(&self, shard: &ShardConfig, leader: Option<ServerId>) -> ShardRepair {
        let voters = || shard.replicas.iter().filter(|replica| replica.voting);
        let live = voters().filter(|replica| self.peers.is_connected(replica.server)).count();
        let most_live = live * 2 > voters().count();
        // A leader that lost its quorum just now has not stepped down yet.
        let leader = leader.filter(|_| most_live);
        let all: Vec<ReplicaConfig> = shard.all_replicas().copied().collect();
        let (live, away): (Vec<ReplicaConfig>, Vec<ReplicaConfig>) =
            all.iter().partition(|replica| self.peers.is_connected(replica.server));
        let forced_before = |found: &Farthest| {
            let away = away.iter().map(|replica| replica.peer);
            let removed: Vec<PeerId> = away.filter(|peer| found.members.removed.contains(peer)).collect();
            match removed.is_empty() {
                true => ShardRepair::Keep,
                false => ShardRepair::AlreadyForced(found.replica, removed),
            }
        };
        if let Some(leader) = leader {
            // The leader has just responded, and knows which replicas an interrupted repair has removed.
            let led = live.iter().filter(|replica| replica.server == leader && !away.is_empty());
            let found = self.survivors.survivor(shard.group, led, SHORT_SURVIVOR_TIMEOUT);
            return found.as_ref().map_or(ShardRepair::Keep, forced_before);
        }
        match self.survivors.survivor(shard.group, live.iter(), SURVIVOR_TIMEOUT) {
            Some(found) if self.catalog.is_quorum_connected(&found.members, &all) => forced_before(&found),
            Some(found) => ShardRepair::ForceSurvivor(found.replica),
            // The group may not have begun yet.
            None if most_live => ShardRepair::Keep,
            None => ShardRepair::Erase,
        }
    }

    /// The table after the repair.
    fn repaired(
        &self,
        catalog: &Catalog,
        config: &TableConfig,
        repairs: &[ShardRepair],
        lost_servers: &LostServers,
        draft: &mut Draft,
    ) -> Result<TableConfig, AdminError> {
        let mut after = config.clone();
        for (shard, repair) in after.shards.iter_mut().zip(repairs) {
            match repair {
                ShardRepair::Keep => {}
                ShardRepair::ForceSurvivor(survivor) => {
                    keep_survivor(shard, survivor, |lost| lost_servers.has(lost.server));
                }
                ShardRepair::AlreadyForced(survivor, removed) => {
                    remove_replicas(shard, survivor, |lost| removed.contains(&lost.peer));
                }
                ShardRepair::Erase => {
                    let primary = self.server_for_empty(catalog, shard).ok_or(AdminError::NoCopies)?;
                    let place = ShardPlaces { primary, replicas: vec![(primary, true)] };
                    let mut new = self.placer.founded(draft, vec![shard.start.clone()], &[place]);
                    shard.clone_from(&new.remove(0));
                }
            }
        }
        Ok(after)
    }

    /// A connected server, no proxy, for a shard that begins anew: preferably one that had a replica of it.
    fn server_for_empty(&self, catalog: &Catalog, shard: &ShardConfig) -> Option<ServerId> {
        let had_it = shard.all_replicas().map(|replica| replica.server);
        let others = catalog.servers().into_iter().map(|server| server.id);
        let can_have = |server: &ServerId| {
            catalog.server(*server).is_some_and(|known| !known.is_proxy) && self.peers.is_connected(*server)
        };
        had_it.chain([self.own]).chain(others).find(can_have)
    }
}
