//! New shards take over the rows of sealed ones, on each server by itself: a replica opens here when every
//! group before that has keys of it was applied here up to its seal. Decision 0024.
//!
//! What is in the engine stands in the order in which it was put there, also after a crash. So the record
//! of a new group in the engine proves that the rows of those before were there, and the old groups' logs
//! are needed until the engine has that record durably: the server says so in the catalog then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use datum::{Bytes, KeyRange};
use io::task;
use log::{GroupId, GroupStatus, Lsn, PeerId};
use shard::{Predecessor, Shard};
use storage::{Applied, TableId};

use crate::admin::table_by_id;
use crate::answer::decode_begun;
use crate::catalog_row::CatalogRow;
use crate::node::Core;
use crate::request::Request;
use crate::router::shard_range;
use crate::{AdminError, Catalog, SealedShard, ServerId, ShardConfig, ShardHandle, TableConfig};

/// So long a new shard is helped to its first leader.
const START: Duration = Duration::from_secs(5);
/// Who stands for its first election waits for so long, for each of those before.
const TURN: Duration = Duration::from_millis(250);
/// A founder that could not open its replica for so long begins without its rows, if another replica has them.
const OVERDUE: Duration = Duration::from_secs(5);
/// How long another founder may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether a replica may be opened, and what it begins with.
pub(crate) enum Opening {
    /// Now.
    Now(Vec<Predecessor>),
    /// Now, and without the rows: another replica has them.
    Empty,
    /// When the groups before have come so far.
    Later,
}

impl Core {
    /// Opens the groups before the present shards of a table, as far as this server has something of them.
    pub(crate) fn open_sealed(&self, config: &TableConfig) -> Result<(), AdminError> {
        let server = self.identity.server;
        for old in &config.lineage.sealed {
            let Some(own) = old.replica_on(server) else { continue };
            self.post.learn(old.replicas.iter().map(|replica| (replica.peer, replica.server)));
            let is_known = || Ok::<_, AdminError>(Applied::read(&**self.engine(), old.group)?.is_some());
            if task::lock(&self.hosted).contains_key(&old.group)
                || !(config.lineage.waiting.contains(&server) || is_known()?)
            {
                continue;
            }
            // The log knows how it was born.
            let mut as_it_was = ShardConfig {
                group: old.group,
                start: old.start.clone(),
                replicas: vec![*own],
                leaving: Vec::new(),
                added: Vec::new(),
                primary: server,
                founders: Vec::new(),
            };
            let near =
                self.open_replica(config.id, &mut as_it_was, &old.range(), &Opening::Now(Vec::new()))?;
            near.inspect(|near| near.set_indexes(config.indexes.defs()));
        }
        Ok(())
    }

    /// Whether this server's replica of shard `at` of a table may be opened now.
    pub(crate) fn opening(&self, config: &TableConfig, at: usize) -> Result<Opening, AdminError> {
        let (shard, server) = (&config.shards[at], self.identity.server);
        let is_open = || task::lock(&self.hosted).contains_key(&shard.group);
        if shard.replica_on(server).is_none() || is_open() {
            return Ok(Opening::Now(Vec::new()));
        }
        // Its rows may be those of one that has gone.
        if self.has_departing(config.id) {
            return Ok(Opening::Later);
        }
        // It was open before, so everything that it came after is in the engine.
        if Applied::read(&**self.engine(), shard.group)?.is_some() {
            return Ok(Opening::Now(Vec::new()));
        }
        let range = shard_range(&config.shards, at);
        let before = config.lineage.sealed.iter().filter(|old| !old.range().intersect(&range).is_empty());
        let before: Vec<&SealedShard> = before.collect();
        let (mut forerunners, mut is_complete) = (Vec::new(), true);
        for old in &before {
            match self.stands_still(old)? {
                true => forerunners.push(Predecessor { group: old.group, range: old.range() }),
                false => is_complete = false,
            }
        }
        // Nobody else may put rows into this range here.
        let is_free = self
            .others_in(config, &range)
            .iter()
            .all(|group| forerunners.iter().any(|old| old.group == *group));
        let founds = shard.founder_on(server).is_some();
        if founds && task::lock(&self.pending).heirs.contains(&shard.group) {
            return Ok(Opening::Empty);
        }
        Ok(match is_free && (is_complete || !founds) {
            true => Opening::Now(forerunners),
            false => Opening::Later,
        })
    }

    /// Whether a sealed group is applied here up to its seal, for good.
    fn stands_still(&self, old: &SealedShard) -> Result<bool, AdminError> {
        let Some(shard) = self.shard_of(old.group) else { return Ok(false) };
        #[cfg(feature = "mutants")]
        if log::mutant::is_active(log::mutant::Mutant::OpenEarly) {
            return Ok(true);
        }
        if shard.seal_state() != old.seal_state() {
            return Ok(false);
        }
        // Where one replica is enough for an acknowledgement a leader may have applied what the others
        // have not. The log says whether the rows are good: who reads here may be sent elsewhere before.
        let applied = shard.applied();
        let stands = |status: GroupStatus| !status.needs_rows && status.committed >= applied;
        Ok(self.log.group_status(old.group).is_ok_and(stands))
    }

    /// Makes certain that nobody puts rows into the range of shard `at` any more, before it is opened here;
    /// false if that cannot be yet. The groups whose rows it will take away, because it gets a copy, are
    /// added to `overrun`.
    pub(crate) fn make_way(
        &self,
        config: &TableConfig,
        at: usize,
        opening: &Opening,
        overrun: &mut Vec<GroupId>,
    ) -> Result<bool, AdminError> {
        let (shard, server) = (&config.shards[at], self.identity.server);
        if shard.replica_on(server).is_none() || self.shard_of(shard.group).is_some() {
            return Ok(true);
        }
        let forerunners = match opening {
            Opening::Now(forerunners) => &forerunners[..],
            Opening::Empty => &[],
            // A copy that is under way may be what it waits for.
            Opening::Later => return Ok(false),
        };
        let others = self.others_in(config, &shard_range(&config.shards, at));
        for group in &others {
            let gate = task::lock(&self.hosted).get(group).map(|open| std::sync::Arc::clone(&open.gate));
            gate.inspect(|gate| gate.shut());
        }
        let is_used = |old: &&SealedShard| forerunners.iter().any(|used| used.group == old.group);
        for old in config.lineage.sealed.iter().filter(is_used) {
            // A copy may have been begun since this was looked at.
            if !self.stands_still(old)? {
                return Ok(false);
            }
        }
        if matches!(opening, Opening::Empty) {
            // They do not stand still, and must not go on under a copy.
            others.iter().try_for_each(|group| self.abandon(config.id, *group))?;
            return Ok(!self.has_departing(config.id));
        }
        if shard.founder_on(server).is_none() {
            overrun.extend(others);
        }
        Ok(true)
    }

    /// Takes leave of a group before the present shards that is of no use here. Its rows stay until a copy
    /// takes their place; those of shards that are not placed here go when nobody needs the groups before.
    fn abandon(&self, table: TableId, group: GroupId) -> Result<(), AdminError> {
        let Some(open) = task::lock(&self.hosted).remove(&group) else { return Ok(()) };
        open.gate.shut();
        open.shard.retire();
        self.replicas.mark_recovering(group);
        self.owe_clearing(table);
        self.leave_as(table, group)?;
        Ok(())
    }

    /// The open groups of a table's earlier shards with keys in `range`.
    fn others_in(&self, config: &TableConfig, range: &KeyRange) -> Vec<GroupId> {
        let is_present = |group: &GroupId| config.shards.iter().any(|shard| shard.group == *group);
        let hosted = task::lock(&self.hosted);
        let others = hosted.iter().filter(|(group, open)| {
            open.table == config.id && !is_present(group) && !open.range.intersect(range).is_empty()
        });
        others.map(|(group, _)| *group).collect()
    }

    /// Notes which tables have replicas here that are put off.
    pub(crate) fn note_put_off(&self, table: TableId, is_put_off: bool) {
        let mut pending = task::lock(&self.pending);
        match is_put_off {
            true => drop(pending.put_off.entry(table).or_insert_with(task::now)),
            false => drop(pending.put_off.remove(&table)),
        }
    }

    /// Whether some replica of the table here is put off.
    pub(crate) fn is_put_off(&self, table: TableId) -> bool {
        task::lock(&self.pending).put_off.contains_key(&table)
    }

    /// Sees to it that a group of several gets a leader, of which `near` was opened just now; a new one gets its
    /// first: who has opened it stands when it is its turn, again and again.
    pub(crate) fn stand_first(&self, shard: &ShardConfig, near: &Shard) {
        let order = shard.order_of_standing();
        let Some(turn) = order.iter().position(|server| *server == self.identity.server) else { return };
        if order.len() < 2 {
            return;
        }
        if turn == 0 {
            // Nothing happens if somebody leads already.
            self.log.campaign(shard.group);
        }
        if near.applied() == Lsn(0) {
            let from = task::now() + TURN * u32::try_from(turn).unwrap_or(u32::MAX);
            task::lock(&self.pending).starting.insert(shard.group, from);
        }
    }

    /// Opens what was put off and can be opened now, and asks for elections that are still to be won.
    pub(crate) fn go_on_with_succession(&self) -> Result<(), AdminError> {
        let (put_off, starting) = {
            let pending = task::lock(&self.pending);
            let starting: Vec<_> = pending.starting.iter().map(|(group, from)| (*group, *from)).collect();
            (pending.put_off.keys().copied().collect::<Vec<_>>(), starting)
        };
        for table in put_off {
            self.republish_if_possible(table)?;
        }
        for (group, from) in starting {
            // What the shard's handle says may be a guess.
            let near = self.shard_of(group);
            let is_led = near.is_none_or(|near| near.leads() || near.leader().is_some());
            if is_led || task::now() > from + START {
                task::lock(&self.pending).starting.remove(&group);
            } else if task::now() >= from {
                // Those who had not opened theirs did not hear it the first time.
                self.log.campaign(group);
            }
        }
        Ok(())
    }

    fn republish_if_possible(&self, table: TableId) -> Result<(), AdminError> {
        let catalog = self.catalog();
        let Some(handle) = catalog.table_by_id(table) else {
            self.note_put_off(table, false);
            return Ok(());
        };
        let config = &handle.config;
        for (at, shard) in config.shards.iter().enumerate() {
            let is_here = task::lock(&self.hosted).contains_key(&shard.group);
            let is_wanted = !is_here && shard.replica_on(self.identity.server).is_some();
            if is_wanted && !matches!(self.opening(config, at)?, Opening::Later) {
                return self.republish(table);
            }
        }
        Ok(())
    }

    /// Whether this server has yet to say that it has what it founds shards with.
    pub(crate) fn awaits_succession(&self) -> bool {
        let is_awaited = |table: &&std::sync::Arc<crate::TableHandle>| {
            table.config.lineage.waiting.contains(&self.identity.server)
        };
        self.catalog_guard().tables().iter().any(is_awaited)
    }

    /// Says in the catalog that this server has what it founds shards with; and where it cannot get that, lets
    /// it begin without. Waits for the disk.
    pub(crate) fn end_succession(&self, catalog: &Catalog) {
        let mut overdue = Vec::new();
        for table in catalog.tables() {
            if !table.config.lineage.waiting.contains(&self.identity.server) {
                continue;
            }
            match self.end_succession_of(&table.config) {
                Ok(more) => overdue.extend(more),
                Err(error) => {
                    tracing::debug!("table {}: the shards before are still needed: {error}", table.config.id);
                }
            }
        }
        self.find_heirs(&overdue);
    }

    /// The shards that this server founds, could not open for too long, and may not begin without rows yet.
    fn end_succession_of<'a>(&self, config: &'a TableConfig) -> Result<Vec<&'a ShardConfig>, AdminError> {
        let own = self.identity.server;
        // First those: a group that is opened meanwhile is in one or the other.
        let heirs = task::lock(&self.pending).heirs.clone();
        let hosted: BTreeSet<GroupId> = task::lock(&self.hosted).keys().copied().collect();
        let founded = || config.shards.iter().filter(|shard| shard.founder_on(own).is_some());
        if founded().all(|shard| hosted.contains(&shard.group)) {
            self.engine().flush()?;
            self.change(|catalog, draft| {
                let mut after = table_by_id(catalog, config.id)?.config.clone();
                if after.lineage.sealed == config.lineage.sealed {
                    after.lineage.waiting.retain(|server| *server != own);
                    draft.put(CatalogRow::Table(after));
                }
                Ok(())
            })?;
            return Ok(Vec::new());
        }
        let since = task::lock(&self.pending).put_off.get(&config.id).copied();
        if since.is_none_or(|since| task::now() - since < OVERDUE) {
            return Ok(Vec::new());
        }
        let is_missing =
            |shard: &&ShardConfig| !hosted.contains(&shard.group) && !heirs.contains(&shard.group);
        Ok(founded().filter(is_missing).collect())
    }

    /// Lets this server begin those shards without their rows that another replica has with them: a founder,
    /// or who joined since. Then this server's are not missed where they do not come to be: its log was
    /// trimmed, or its rows are void.
    ///
    /// Each server is asked once about all of them, everybody at the same time. Who says nothing is waited for
    /// only while something is left that nobody has allowed.
    fn find_heirs(&self, shards: &[&ShardConfig]) {
        let Some(wire) = self.post.wire() else { return };
        let mut places: BTreeMap<ServerId, Vec<GroupId>> = BTreeMap::new();
        for shard in shards {
            let all = shard.replicas.iter().chain(&shard.leaving);
            for other in all.filter(|replica| replica.server != self.identity.server) {
                places.entry(other.server).or_default().push(shard.group);
            }
        }
        let (sender, answers) = task::channel();
        for (server, groups) in places {
            let sender = sender.clone();
            let told = Box::new(move |begun: Result<Bytes, _>| drop(sender.send(begun.ok())));
            wire.ask(server, Request::Begun { groups }.encode(), PATIENCE, told);
        }
        drop(sender);
        let mut left: BTreeSet<GroupId> = shards.iter().map(|shard| shard.group).collect();
        while !left.is_empty()
            && let Ok(begun) = answers.recv()
        {
            let begun = begun.as_ref().and_then(decode_begun).unwrap_or_default();
            // Nobody allows what was not asked about.
            let allowed = begun.into_iter().filter(|group| left.remove(group));
            task::lock(&self.pending).heirs.extend(allowed);
        }
    }

    /// Those of the groups that this server has with their rows, which its engine has durably then: who asks may
    /// let go of what the rows came from.
    pub(crate) fn begun_here(&self, groups: &[GroupId]) -> Result<Vec<GroupId>, AdminError> {
        let statuses = self.log.group_statuses(groups)?;
        let has_rows = |status: &Option<GroupStatus>| status.as_ref().is_some_and(|is| !is.needs_rows);
        let begun = groups.iter().zip(statuses).filter(|(_, status)| has_rows(status));
        let begun: Vec<GroupId> = begun.map(|(group, _)| *group).collect();
        if !begun.is_empty() {
            self.engine().flush()?;
        }
        Ok(begun)
    }

    /// Gives servers that have not opened what they found new replicas, which join: where a majority of the
    /// founders is ready without them. Who hears of its new replica leaves the group with the old one at once.
    pub(crate) fn replace_missing_founders(
        &self,
        config: &TableConfig,
        is_missing: impl Fn(ServerId) -> bool,
    ) -> Result<(), AdminError> {
        let own = self.identity.server;
        let catalog = self.catalog();
        let handle = table_by_id(&catalog, config.id)?;
        let missing: Vec<ServerId> =
            config.lineage.waiting.iter().copied().filter(|server| is_missing(*server)).collect();
        let handles: Vec<&ShardHandle> = handle.shards().iter().collect();
        let led: BTreeMap<GroupId, Vec<PeerId>> = handles
            .iter()
            .zip(self.ask_leaders(&handles))
            .filter_map(|(shard, led)| led.map(|(_, state)| (shard.group(), state.ready)))
            .collect();
        let is_open_here = |group: &GroupId| task::lock(&self.hosted).contains_key(group);
        self.change(|catalog, draft| {
            let present = &table_by_id(catalog, config.id)?.config;
            if present.lineage.sealed != config.lineage.sealed {
                return Ok(());
            }
            let mut after = present.clone();
            for shard in &mut after.shards {
                let ShardConfig { group, replicas, leaving, founders, .. } = shard;
                let Some(ready) = led.get(group) else { continue };
                let ready_founders = founders.iter().filter(|peer| ready.contains(peer)).count();
                if ready_founders * 2 <= founders.len() {
                    continue;
                }
                let goes = |replica: &crate::ReplicaConfig| {
                    missing.contains(&replica.server)
                        && founders.contains(&replica.peer)
                        && !ready.contains(&replica.peer)
                        && !(replica.server == own && is_open_here(group))
                };
                for replica in replicas.iter_mut().filter(|replica| goes(replica)) {
                    replica.peer = self.new_peer();
                }
                leaving.retain(|replica| !goes(replica));
            }
            if after != *present {
                draft.put(CatalogRow::Table(after));
            }
            Ok(())
        })
    }
}
