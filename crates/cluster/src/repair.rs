//! Emergency repair: shards whose majority is gone for good go on with what one living replica has,
//! and if the catalog itself has lost its majority, it goes first (`catalog_repair`).
//!
//! All of it is unsafe: what only the lost replicas had is lost, and the promises of durability with it.
//! What the surviving replica has in its log is kept, told to be committed or not. Those who were given
//! up are named as removed in the group itself, so that they find out when they come back.

use std::time::Duration;

use log::{GroupId, Members};
use shard::SealMark;
use storage::TableId;

use crate::answer::{EndAnswer, decode_word};
use crate::catalog_row::CatalogRow;
use crate::change::Draft;
use crate::forced::Forced;
use crate::node::Core;
use crate::question::Question;
use crate::{
    AdminError, Catalog, ReplicaConfig, SealedShard, ServerId, ShardConfig, ShardPlaces, TableConfig,
    TableHandle, words,
};

/// How long a replica may take to say how far its log reaches.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// The replica of a group whose log reaches farthest, of those that answer and have rows.
pub(crate) struct MostComplete {
    pub(crate) replica: ReplicaConfig,
    /// The members that it knows.
    pub(crate) members: Members,
    /// How many of those who vote then answered.
    voters_heard: usize,
}

impl MostComplete {
    /// Of those that said so. Where several reach as far, the first that votes: it is the one that the table is to have.
    pub(crate) fn of(ends: Vec<(ReplicaConfig, EndAnswer)>) -> Option<MostComplete> {
        let reach = |end: &EndAnswer| (end.last_term, end.last, end.members.voters.contains(&end.own));
        let farthest = ends.iter().map(|(_, end)| reach(end)).max()?;
        let (replica, end) = ends.iter().find(|(_, end)| reach(end) == farthest)?;
        let members = end.members.clone();
        let voters_heard = ends.iter().filter(|(replica, _)| members.voters.contains(&replica.peer)).count();
        Some(MostComplete { replica: *replica, members, voters_heard })
    }

    /// Whether those who vote and answered are a majority: whatever was acknowledged is with one of them.
    pub(crate) fn majority_was_heard(&self) -> bool {
        self.voters_heard * 2 > self.members.voters.len()
    }
}

/// What becomes of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// It has a majority.
    Keeps,
    /// It goes on with the replica that has most of its log.
    GoesOn(ReplicaConfig),
    /// No replica can be reached that has rows.
    IsLost,
}

impl Core {
    /// What the table would be after [`Core::emergency_repair`]; nothing is changed.
    ///
    /// Fails as the repair would, before it begins.
    pub fn plan_repair(&self, id: TableId, mode: RepairMode) -> Result<TableConfig, AdminError> {
        let catalog = self.catalog();
        let table = crate::admin::table_by_id(&catalog, id)?;
        if mode != RepairMode::Recommit && !self.sealed_to_repair(&table.config)?.is_empty() {
            return Ok(table.config.clone());
        }
        let fates = self.fates_or_catalog(table, mode)?;
        self.repaired(&catalog, &table.config, &fates, mode, &mut Draft::of(&catalog))
    }

    /// Makes shards whose majority is gone for good live again; returns the table as it is then.
    ///
    /// If the catalog has lost its majority, whether the table has or not, the servers that are not connected are removed
    /// from the cluster for good ([`Core::repair_catalog`]). Interrupted, it can be repeated. [`AdminError::RepairBegun`] where it failed after members
    /// of a group were set by force.
    pub fn emergency_repair(&self, id: TableId, mode: RepairMode) -> Result<TableConfig, AdminError> {
        let forced = Forced::default();
        self.repair(id, mode, &forced).map_err(|cause| forced.error(cause))
    }

    fn repair(&self, id: TableId, mode: RepairMode, forced: &Forced) -> Result<TableConfig, AdminError> {
        let catalog = self.catalog();
        let table = crate::admin::table_by_id(&catalog, id)?;
        let config = table.config.clone();
        if mode != RepairMode::Recommit && self.repair_sealed(&config, forced)? {
            // What they were needed for goes on by itself.
            return Ok(config);
        }
        let fates = self.fates_or_catalog(table, mode)?;
        self.repair_catalog_first(forced)?;
        for (shard, fate) in config.shards.iter().zip(&fates) {
            if let Fate::GoesOn(survivor) = fate {
                let others: Vec<ReplicaConfig> = everyone(shard).copied().collect();
                self.go_on(shard.group, *survivor, &others, forced)?;
            }
        }
        self.change(|catalog, draft| {
            let present = &crate::admin::table_by_id(catalog, id)?.config;
            if present.shards != config.shards {
                return Err(AdminError::Refused("the table was reconfigured meanwhile".to_owned()));
            }
            let after = self.repaired(catalog, present, &fates, mode, draft)?;
            if mode == RepairMode::Recommit || after != *present {
                draft.put(CatalogRow::Table(after.clone()));
            }
            Ok(after)
        })
    }

    /// Gives groups before the present shards a majority again, which lack one and are still needed; whether
    /// there were any.
    fn repair_sealed(&self, config: &TableConfig, forced: &Forced) -> Result<bool, AdminError> {
        let mut lacking = self.sealed_to_repair(config)?;
        if !lacking.is_empty() {
            self.repair_catalog_first(forced)?;
            // Somebody may have come back before anybody was removed.
            lacking = self.sealed_to_repair(config)?;
        }
        for (old, survivor) in &lacking {
            self.go_on(old.group, *survivor, &old.replicas, forced)?;
        }
        Ok(!lacking.is_empty())
    }

    /// The groups before the present shards that lack a majority and are still needed, and who goes on with each.
    ///
    /// Fails if one may end earlier so than it did for somebody who can come back: decision 0024.
    pub(crate) fn sealed_to_repair<'a>(
        &self,
        config: &'a TableConfig,
    ) -> Result<Vec<(&'a SealedShard, ReplicaConfig)>, AdminError> {
        // Where only those wait who are gone, nobody needs them who is left.
        let waits_here = |server: &ServerId| self.is_connected(*server);
        let mut lacking = Vec::new();
        if !config.lineage.waiting.iter().any(waits_here) {
            return Ok(lacking);
        }
        for old in &config.lineage.sealed {
            let living = old.replicas.iter().filter(|replica| self.is_connected(replica.server));
            if let Some(found) = self.most_complete(old.group, living)
                && !self.has_majority(&found.members, &old.replicas)
            {
                self.keeps_end(config, old, &found)?;
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
        found: &MostComplete,
    ) -> Result<(), AdminError> {
        let catalog = self.catalog();
        if self.catalog_is_lost(&catalog) {
            // Whoever is away is removed from the cluster for good, before anything goes on.
            return Ok(());
        }
        // A majority has the seal, and so has one of any half.
        let voters = old.replicas.iter().filter(|replica| replica.voting).count();
        if found.voters_heard * 2 >= voters.max(found.members.voters.len())
            || self.mark_on(found.replica.server, old.group) == Some(old.mark())
        {
            return Ok(());
        }
        let may_come_back =
            |server: &&ServerId| !self.is_connected(**server) && catalog.server(**server).is_some();
        // Also one that waits no more: it has the new shards.
        let founders =
            old.replicas.iter().map(|replica| &replica.server).filter(|server| config.founds(**server));
        let away: Vec<String> =
            founders.filter(may_come_back).map(|server| words::server(&catalog, *server)).collect();
        match away.is_empty() {
            true => Ok(()),
            false => Err(AdminError::RowsAway { servers: away.join(", ") }),
        }
    }

    /// The mark of a group as far as it was applied on a server; none if that does not say.
    fn mark_on(&self, server: ServerId, group: GroupId) -> Option<SealMark> {
        if server == self.identity.server {
            return self.shard_of(group).map(|shard| shard.mark());
        }
        let answer = self.ask(server, Question::Mark { group }.encode(), PATIENCE).ok()?;
        decode_word(answer).map(SealMark::of_number)
    }

    /// What becomes of each shard. Fails as [`Core::fates`] does, but not where each keeps its majority and the catalog
    /// has none: nothing of the table can be changed then.
    fn fates_or_catalog(&self, table: &TableHandle, mode: RepairMode) -> Result<Vec<Fate>, AdminError> {
        match self.fates(table, mode) {
            Err(AdminError::NothingToRepair) if self.catalog_is_lost(&self.catalog()) => {
                Ok(vec![Fate::Keeps; table.config.shards.len()])
            }
            fates => fates,
        }
    }

    /// What becomes of each shard; fails if that is nothing, or too much for the mode.
    fn fates(&self, table: &TableHandle, mode: RepairMode) -> Result<Vec<Fate>, AdminError> {
        let config = &table.config;
        if mode == RepairMode::Recommit {
            return Ok(vec![Fate::Keeps; config.shards.len()]);
        }
        let led = self.ask_leaders(&table.shards().iter().collect::<Vec<_>>());
        let shards = config.shards.iter().zip(led);
        let fates: Vec<Fate> = shards.map(|(shard, led)| self.fate(shard, led.is_some())).collect();
        let goes_on = fates.iter().any(|fate| matches!(fate, Fate::GoesOn(_)));
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
            _ => Ok(fates),
        }
    }

    /// Those who are to vote need not be those who do: new ones have not joined yet, old ones not gone.
    fn fate(&self, shard: &ShardConfig, is_led: bool) -> Fate {
        let voters = || shard.replicas.iter().filter(|replica| replica.voting);
        let living = voters().filter(|replica| self.is_connected(replica.server)).count();
        let most_live = living * 2 > voters().count();
        // A leader whose majority went just now has not noticed yet.
        if is_led && most_live {
            return Fate::Keeps;
        }
        let everyone: Vec<ReplicaConfig> = everyone(shard).copied().collect();
        let living = everyone.iter().filter(|replica| self.is_connected(replica.server));
        match self.most_complete(shard.group, living) {
            Some(found) if self.has_majority(&found.members, &everyone) => Fate::Keeps,
            Some(found) => Fate::GoesOn(found.replica),
            // Not begun yet perhaps.
            None if most_live => Fate::Keeps,
            None => Fate::IsLost,
        }
    }

    /// Asks each of `replicas`, all at the same time, how far its log of a group reaches.
    pub(crate) fn most_complete<'a>(
        &self,
        group: GroupId,
        replicas: impl Iterator<Item = &'a ReplicaConfig>,
    ) -> Option<MostComplete> {
        let (own, replicas) = (self.identity.server, replicas.collect::<Vec<_>>());
        let far = replicas.iter().map(|replica| replica.server).filter(|server| *server != own);
        let questions = far.map(|server| (server, Question::End { group }.encode())).collect();
        let mut answers = self.ask_all(questions, PATIENCE).into_iter();
        let end = |replica: &'a ReplicaConfig| {
            let end = match replica.server == own {
                true => self.end_here(group),
                false => answers.next()?.and_then(EndAnswer::decode),
            };
            end.filter(|end| end.own == replica.peer).map(|end| (*replica, end))
        };
        MostComplete::of(replicas.into_iter().filter_map(end).collect())
    }

    /// The table after the repair.
    fn repaired(
        &self,
        catalog: &Catalog,
        config: &TableConfig,
        fates: &[Fate],
        mode: RepairMode,
        draft: &mut Draft,
    ) -> Result<TableConfig, AdminError> {
        let mut after = config.clone();
        for (shard, fate) in after.shards.iter_mut().zip(fates) {
            match fate {
                Fate::Keeps => {}
                Fate::GoesOn(survivor) => self.without_lost(shard, survivor),
                Fate::IsLost if mode != RepairMode::RollbackOrErase => {}
                Fate::IsLost => {
                    let primary = self.home_for(catalog, shard).ok_or(AdminError::NoCopies)?;
                    let place = ShardPlaces { primary, replicas: vec![(primary, true)] };
                    let mut new = self.founded(draft, vec![shard.start.clone()], &[place]);
                    shard.clone_from(&new.remove(0));
                }
            }
        }
        Ok(after)
    }

    /// A server that is connected and no proxy, for a shard that begins anew: one that had it, if there is one.
    fn home_for(&self, catalog: &Catalog, shard: &ShardConfig) -> Option<ServerId> {
        let had_it = everyone(shard).map(|replica| replica.server);
        let others = catalog.servers().into_iter().map(|server| server.id);
        let can_have = |server: &ServerId| {
            catalog.server(*server).is_some_and(|known| !known.is_proxy) && self.is_connected(*server)
        };
        had_it.chain([self.identity.server]).chain(others).find(can_have)
    }

    /// The shard without the replicas that are not connected; if no voter is left, all others vote. What was added
    /// may be all that is left.
    fn without_lost(&self, shard: &mut ShardConfig, survivor: &ReplicaConfig) {
        shard.added.clear();
        shard.replicas.retain(|replica| self.is_connected(replica.server));
        shard.leaving.retain(|replica| self.is_connected(replica.server) && replica.peer != survivor.peer);
        if !shard.replicas.iter().any(|replica| replica.peer == survivor.peer) {
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
}

/// The replicas of a shard, those on their way out too.
pub(crate) fn everyone(shard: &ShardConfig) -> impl Iterator<Item = &ReplicaConfig> {
    shard.replicas.iter().chain(&shard.leaving)
}
