//! Emergency repair: shards that have lost their majority go on with what one living replica has. If the catalog itself has lost
//! its majority, it is repaired first (`catalog`).
//!
//! All of it is unsafe: what only the lost replicas had is lost, and the promises of durability with it. What the surviving
//! replica has in its log is kept, whether it was committed or not. Lost replicas are named as removed in the group itself, so
//! that they learn it when they come back.

use std::sync::Arc;
use std::time::Duration;

use log::{GroupId, Members, PeerId};
use shard::SealState;
use storage::TableId;

use super::catalog::{CatalogRepair, Loss};
use super::force_members::{ForcedMembers, MemberReset};
use super::lost_servers::{LostServerLookup, LostServers};
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
    /// Shards that have a living replica go on with it.
    Rollback,
    /// Also, shards that have none begin anew, empty.
    RollbackOrErase,
    /// Nothing is given up: the configuration is written again as it is.
    Recommit,
}

/// What may be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairScope {
    /// The table alone: [`AdminError::CatalogFirst`] where the catalog has to be repaired before it.
    Table,
    /// The catalog too, from which servers are removed for that.
    Cluster,
}

/// What comes of an emergency repair.
#[derive(Clone, Debug, PartialEq)]
pub struct Repaired {
    /// The table as it is then.
    pub table: TableConfig,
    /// The servers that are removed from the cluster for good, since the catalog has lost its majority.
    pub removed: Vec<ServerId>,
}

/// What becomes of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// It stays as it is.
    Keeps,
    /// It goes on with the replica that has most of its log.
    GoesOn(ReplicaConfig),
    /// It does already, because a repair was interrupted: these were given up, and the table names them still.
    WentOn(ReplicaConfig, Vec<PeerId>),
    /// No replica can be reached that has rows: it begins anew.
    IsLost,
}

impl Fate {
    /// The same where nothing may begin anew.
    fn without_erasing(self) -> Fate {
        if self == Fate::IsLost { Fate::Keeps } else { self }
    }
}

/// What is wrong with a table and with the catalog, and what becomes of that.
struct Damage {
    /// The catalog, if it has lost its majority: it goes first.
    catalog: Option<Loss>,
    /// The table as it was.
    config: TableConfig,
    /// Groups before the present shards that lack a majority and are still needed, and who goes on with each. Where there
    /// are any they come first, and the shards another time.
    sealed: Vec<(SealedShard, ReplicaConfig)>,
    /// What becomes of each shard.
    fates: Vec<Fate>,
}

impl Damage {
    /// Who is removed from the cluster for good.
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
        let survivors = Arc::new(Survivors::new(handles, positions.clone()));
        let lost = Arc::new(LostServerLookup::new(handles, connectivity));
        let members = Arc::new(MemberReset::new(handles, survivors.clone(), lost.clone()));
        let catalog_repair =
            CatalogRepair::new(handles, positions, survivors.clone(), lost.clone(), members.clone());
        Repair {
            own: handles.own,
            peers: handles.peers.clone(),
            local: handles.local.clone(),
            catalog: handles.catalog.clone(),
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

    /// The servers that [`Repair::repair_catalog`] would remove from the cluster; changes nothing.
    ///
    /// Fails as the repair would before it begins; does not wait for disconnected servers.
    pub fn plan_catalog_repair(&self) -> Result<Vec<ServerId>, AdminError> {
        self.catalog_repair.plan()
    }

    /// Makes the catalog go on with what one living server has, when its majority is lost. Returns the servers that were
    /// removed from the cluster for that: those that are not connected and did not come back within a few seconds; or, after
    /// an interrupted repair, those that it gave up, connected or not.
    ///
    /// Shards that have a majority without those servers lose their replicas there, those that are being moved a moment later;
    /// all others stay as they are. If it is interrupted it can be repeated. Fails, among other reasons, if a server that is not
    /// connected here is connected to one that is ([`AdminError::ConnectedElsewhere`]), and with [`AdminError::RepairBegun`] after members were
    /// set by force.
    pub fn repair_catalog(&self) -> Result<Vec<ServerId>, AdminError> {
        self.catalog_repair.repair()
    }

    /// Sets the members of a group here, because `from` asks for it in a repair.
    pub(crate) fn reset_members_here(
        &self,
        from: ServerId,
        group: GroupId,
        members: Members,
    ) -> Result<Members, String> {
        self.members.reset_members_here(from, group, members)
    }

    /// What would come of [`Repair::emergency_repair`]; nothing is changed.
    ///
    /// Fails as the repair would, before it begins; those who are away are not waited for.
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
        let (mut damage, lost_servers) = self.lost.judge(|| self.damage(id, mode, scope))?;
        let removed = damage.removes();
        if let Some(loss) = &damage.catalog {
            self.catalog_repair.spare_lost(loss, &mut damage.config);
        }
        if !damage.sealed.is_empty() {
            return Ok(Repaired { table: damage.config, removed });
        }
        let catalog = self.catalog.shown();
        let mut draft = Draft::of(&catalog);
        let table = self.repaired(&catalog, &damage.config, &damage.fates, &lost_servers, &mut draft)?;
        Ok(Repaired { table, removed })
    }

    /// Makes shards whose majority is gone for good live again. Waits a few seconds for those who are away.
    ///
    /// If the catalog has lost its majority, whether the table has or not, the servers that are not connected are removed
    /// from the cluster for good ([`Repair::repair_catalog`]), where `scope` lets it. Interrupted, it can be repeated. Fails,
    /// among other reasons, where a server that is not connected is seen by one that is ([`AdminError::ConnectedElsewhere`]), and with
    /// [`AdminError::RepairBegun`] after members of a group were set by force.
    pub fn emergency_repair(
        &self,
        id: TableId,
        mode: RepairMode,
        scope: RepairScope,
    ) -> Result<Repaired, AdminError> {
        if mode == RepairMode::Recommit {
            return Ok(Repaired { table: self.recommit(id)?, removed: Vec::new() });
        }
        let (damage, lost_servers) = self.lost.judge_with_timeout(|| self.damage(id, mode, scope))?;
        let (removed, forced) = (damage.removes(), ForcedMembers::default());
        let mended = self.mend(damage, &lost_servers, &forced);
        let table = mended.map_err(|cause| forced.error(cause))?;
        Ok(Repaired { table, removed })
    }

    /// Writes the configuration of a table again as it is.
    fn recommit(&self, id: TableId) -> Result<TableConfig, AdminError> {
        self.catalog.change(|catalog, draft| {
            let config = table_by_id(catalog, id)?.config.clone();
            draft.put(CatalogRow::Table(config.clone()));
            Ok(config)
        })
    }

    fn mend(
        &self,
        damage: Damage,
        lost_servers: &LostServers,
        forced: &ForcedMembers,
    ) -> Result<TableConfig, AdminError> {
        let Damage { catalog, mut config, sealed, fates } = damage;
        if let Some(loss) = catalog {
            self.catalog_repair.mend(&loss, lost_servers, forced)?;
            // Shards that keep their majority have lost replicas with that.
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
                self.members.go_on(old.group, *survivor, &old.replicas, lost_servers, forced)?;
            }
            // What they were needed for goes on by itself.
            return Ok(config);
        }
        for (shard, fate) in config.shards.iter().zip(&fates) {
            if let Fate::GoesOn(survivor) = fate {
                let others: Vec<ReplicaConfig> = shard.all_replicas().copied().collect();
                self.members.go_on(shard.group, *survivor, &others, lost_servers, forced)?;
            }
        }
        let begins_anew = config.shards.iter().zip(&fates).filter(|(_, fate)| **fate == Fate::IsLost);
        self.lost.check(lost_servers, begins_anew.clone().flat_map(|(shard, _)| shard.all_replicas()))?;
        let present = self.catalog.shown();
        let begins_anew: Vec<String> =
            begins_anew.map(|(shard, _)| display_names::group(&present, shard.group)).collect();
        let after = self.catalog.change(|catalog, draft| {
            let present = &table_by_id(catalog, config.id)?.config;
            if !are_as_judged(&present.shards, &config.shards, &fates) {
                return Err(AdminError::Refused("the table was reconfigured meanwhile".to_owned()));
            }
            let after = self.repaired(catalog, present, &fates, lost_servers, draft)?;
            if after != *present {
                draft.put(CatalogRow::Table(after.clone()));
            }
            Ok(after)
        })?;
        for shard in begins_anew {
            tracing::warn!(
                "Emergency repair: {shard} begins anew, empty: nobody who is connected has its rows"
            );
        }
        Ok(after)
    }

    /// What is wrong with a table, and with the catalog. Fails if that is nothing, or more than may be repaired.
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
            return Ok(Damage { catalog, config, sealed, fates: Vec::new() });
        }
        let fates = match self.fates(table, mode) {
            // Each shard keeps its majority, and nothing of the table can be changed.
            Err(AdminError::NothingToRepair) if catalog.is_some() => vec![Fate::Keeps; config.shards.len()],
            fates => fates?,
        };
        Ok(Damage { catalog, config, sealed, fates })
    }

    /// The groups before the present shards that lack a majority and are still needed, and who goes on with each.
    ///
    /// Fails if one may end earlier so than it did for somebody who can come back: decision 0024.
    pub(crate) fn sealed_to_repair<'a>(
        &self,
        config: &'a TableConfig,
        catalog_is_lost: bool,
        timeout: Duration,
    ) -> Result<Vec<(&'a SealedShard, ReplicaConfig)>, AdminError> {
        // Where only those wait who are gone, nobody needs them who is left.
        let waits_here = |server: &ServerId| self.peers.is_connected(*server);
        let mut lacking = Vec::new();
        if !config.lineage.waiting.iter().any(waits_here) {
            return Ok(lacking);
        }
        for old in &config.lineage.sealed {
            let living = old.replicas.iter().filter(|replica| self.peers.is_connected(replica.server));
            if let Some(found) = self.survivors.survivor(old.group, living, timeout)
                && !self.catalog.is_quorum_connected(&found.members, &old.replicas)
            {
                // Whoever is away is removed from the cluster for good otherwise, before anything goes on.
                if !catalog_is_lost {
                    self.keeps_end(config, old, &found, timeout)?;
                }
                lacking.push((old, found.replica));
            }
        }
        Ok(lacking)
    }

    /// Fails unless a group goes on with its seal where it was, or nobody can come back for whom it was there.
    fn keeps_end(
        &self,
        config: &TableConfig,
        old: &SealedShard,
        found: &Farthest,
        timeout: Duration,
    ) -> Result<(), AdminError> {
        let catalog = self.catalog.shown();
        // A majority has the seal, and so has one of any half.
        let voters = old.replicas.iter().filter(|replica| replica.voting).count();
        if found.voters_responded * 2 >= voters.max(found.members.voters.len())
            || self.mark_on(found.replica.server, old.group, timeout) == Some(old.seal_state())
        {
            return Ok(());
        }
        let may_come_back =
            |server: &&ServerId| !self.peers.is_connected(**server) && catalog.server(**server).is_some();
        // Also one that waits no more: it has the new shards.
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

    /// The mark of a group as far as it was applied on a server; none if that does not say.
    fn mark_on(&self, server: ServerId, group: GroupId, timeout: Duration) -> Option<SealState> {
        if server == self.own {
            return self.local.shard_of(group).map(|shard| shard.seal_state());
        }
        let answer = self.peers.call(server, Request::SealNumber { group }.encode(), timeout).ok()?;
        decode_number(answer).map(SealState::of_number)
    }

    /// What becomes of each shard; fails if that is nothing, or too much for the mode.
    fn fates(&self, table: &TableHandle, mode: RepairMode) -> Result<Vec<Fate>, AdminError> {
        let config = &table.config;
        let led = self.leaders.leaders(&table.shards().iter().collect::<Vec<_>>());
        let shards = config.shards.iter().zip(led);
        let fates: Vec<Fate> =
            shards.map(|(shard, led)| self.fate(shard, led.map(|(server, _)| server))).collect();
        let goes_on = fates.iter().any(|fate| matches!(fate, Fate::GoesOn(_) | Fate::WentOn(..)));
        let is_lost = fates.contains(&Fate::IsLost);
        if is_lost && !config.lineage.sealed.is_empty() {
            // Its rows may be there, under the groups before.
            return Err(AdminError::Refused(
                "new shards of this table are still on their way; connect more of its servers".to_owned(),
            ));
        }
        match (goes_on, is_lost) {
            (false, false) => Err(AdminError::NothingToRepair),
            (false, true) if mode != RepairMode::RollbackOrErase => Err(AdminError::NoCopies),
            _ if mode == RepairMode::RollbackOrErase => Ok(fates),
            _ => Ok(fates.into_iter().map(Fate::without_erasing).collect()),
        }
    }

    /// Those who are to vote need not be those who do: new ones have not joined yet, old ones not gone.
    fn fate(&self, shard: &ShardConfig, leader: Option<ServerId>) -> Fate {
        let voters = || shard.replicas.iter().filter(|replica| replica.voting);
        let living = voters().filter(|replica| self.peers.is_connected(replica.server)).count();
        let most_live = living * 2 > voters().count();
        // A leader whose majority went just now has not noticed yet.
        let leader = leader.filter(|_| most_live);
        let everyone: Vec<ReplicaConfig> = shard.all_replicas().copied().collect();
        let (living, away): (Vec<ReplicaConfig>, Vec<ReplicaConfig>) =
            everyone.iter().partition(|replica| self.peers.is_connected(replica.server));
        let went_on = |found: &Farthest| {
            let away = away.iter().map(|replica| replica.peer);
            let removed: Vec<PeerId> = away.filter(|peer| found.members.removed.contains(peer)).collect();
            if removed.is_empty() { Fate::Keeps } else { Fate::WentOn(found.replica, removed) }
        };
        if let Some(leader) = leader {
            // It has just answered, and knows who was given up.
            let led = living.iter().filter(|replica| replica.server == leader && !away.is_empty());
            let found = self.survivors.survivor(shard.group, led, SHORT_SURVIVOR_TIMEOUT);
            return found.as_ref().map_or(Fate::Keeps, went_on);
        }
        match self.survivors.survivor(shard.group, living.iter(), SURVIVOR_TIMEOUT) {
            Some(found) if self.catalog.is_quorum_connected(&found.members, &everyone) => went_on(&found),
            Some(found) => Fate::GoesOn(found.replica),
            // Not begun yet perhaps.
            None if most_live => Fate::Keeps,
            None => Fate::IsLost,
        }
    }

    /// The table after the repair.
    fn repaired(
        &self,
        catalog: &Catalog,
        config: &TableConfig,
        fates: &[Fate],
        lost_servers: &LostServers,
        draft: &mut Draft,
    ) -> Result<TableConfig, AdminError> {
        let mut after = config.clone();
        for (shard, fate) in after.shards.iter_mut().zip(fates) {
            match fate {
                Fate::Keeps => {}
                Fate::GoesOn(survivor) => without_lost(shard, survivor, |lost| lost_servers.has(lost.server)),
                Fate::WentOn(survivor, removed) => {
                    take_out(shard, survivor, |lost| removed.contains(&lost.peer));
                }
                Fate::IsLost => {
                    let primary = self.home_for(catalog, shard).ok_or(AdminError::NoCopies)?;
                    let place = ShardPlaces { primary, replicas: vec![(primary, true)] };
                    let mut new = self.placer.founded(draft, vec![shard.start.clone()], &[place]);
                    shard.clone_from(&new.remove(0));
                }
            }
        }
        Ok(after)
    }

    /// A server that is connected and no proxy, for a shard that begins anew: one that had it, if there is one.
    fn home_for(&self, catalog: &Catalog, shard: &ShardConfig) -> Option<ServerId> {
        let had_it = shard.all_replicas().map(|replica| replica.server);
        let others = catalog.servers().into_iter().map(|server| server.id);
        let can_have = |server: &ServerId| {
            catalog.server(*server).is_some_and(|known| !known.is_proxy) && self.peers.is_connected(*server)
        };
        had_it.chain([self.own]).chain(others).find(can_have)
    }
}

/// Whether shards are still those whose fates these are. One that keeps what it has may be moved meanwhile.
fn are_as_judged(present: &[ShardConfig], judged: &[ShardConfig], fates: &[Fate]) -> bool {
    let is_as_judged = |((now, then), fate): ((&ShardConfig, &ShardConfig), &Fate)| {
        now == then || *fate == Fate::Keeps && now.group == then.group
    };
    present.len() == judged.len() && present.iter().zip(judged).zip(fates).all(is_as_judged)
}

/// The shard without the replicas that are lost; if no voter is left, all others vote. What was added may be all that
/// is left.
fn without_lost(shard: &mut ShardConfig, survivor: &ReplicaConfig, is_lost: impl Fn(&ReplicaConfig) -> bool) {
    shard.added.clear();
    shard.leaving.retain(|replica| replica.peer != survivor.peer);
    if !shard.replicas.iter().any(|replica| replica.peer == survivor.peer) {
        shard.replicas.push(*survivor);
    }
    take_out(shard, survivor, is_lost);
}

/// Takes replicas out of a shard; if no voter is left, all others vote. One that has most of the log stays, where nobody
/// else does.
fn take_out(shard: &mut ShardConfig, survivor: &ReplicaConfig, is_lost: impl Fn(&ReplicaConfig) -> bool) {
    shard.replicas.retain(|replica| !is_lost(replica));
    shard.leaving.retain(|replica| !is_lost(replica));
    if shard.replicas.is_empty() {
        shard.leaving.retain(|replica| replica.peer != survivor.peer);
        shard.replicas.push(*survivor);
    }
    if !shard.replicas.iter().any(|replica| replica.voting) {
        shard.replicas.iter_mut().for_each(|replica| replica.voting = true);
    }
    let is_primary = |replica: &ReplicaConfig| replica.server == shard.primary && replica.voting;
    if !shard.replicas.iter().any(is_primary) {
        let voter = shard.replicas.iter().find(|replica| replica.voting);
        shard.primary = voter.map_or(survivor.server, |voter| voter.server);
    }
}
