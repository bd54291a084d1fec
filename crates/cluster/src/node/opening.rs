//! Decides when a new shard's replica may be opened on this node: once every predecessor that has keys of it is applied here up
//! to its seal. Decision 0024.

use std::sync::Arc;
use std::time::Duration;

use datum::KeyRange;
use io::task;
use log::{GroupId, GroupStatus, Log, Lsn};
use shard::{Predecessor, Replicas, Shard};
use storage::{Applied, TableId};

use super::leftover_rows::LeftoverRows;
use super::tombstone::Tombstones;
use crate::catalog::Handles;
use crate::config::{SealedShard, ServerId, ShardConfig, TableConfig};
use crate::error::AdminError;
use crate::reshard::PendingHandovers;
use crate::routing::{LocalReplicas, shard_range};

/// How much later each founder stands for the first election than the one before it.
const ELECTION_ORDER_DELAY: Duration = Duration::from_millis(250);

/// Whether a replica may be opened, and what it begins with.
pub(super) enum Opening {
    /// Now.
    Now(Vec<Predecessor>),
    /// Now, and without the rows: another replica has them.
    Empty,
    /// When the groups before have come so far.
    Later,
}

/// Decides about openings, and closes the predecessors that must not write any more.
pub(super) struct Openings {
    own: ServerId,
    log: Arc<dyn Log>,
    replicas: Arc<Replicas>,
    local: Arc<LocalReplicas>,
    pending: Arc<PendingHandovers>,
    tombstones: Arc<Tombstones>,
    leftovers: Arc<LeftoverRows>,
}

impl Openings {
    pub(super) fn new(
        handles: &Handles,
        pending: Arc<PendingHandovers>,
        tombstones: Arc<Tombstones>,
        leftovers: Arc<LeftoverRows>,
    ) -> Openings {
        Openings {
            own: handles.own,
            log: handles.log.clone(),
            replicas: handles.replicas.clone(),
            local: handles.local.clone(),
            pending,
            tombstones,
            leftovers,
        }
    }

    /// Whether this server's replica of shard `at` of a table may be opened now.
    pub(super) fn opening(&self, config: &TableConfig, at: usize) -> Result<Opening, AdminError> {
        let (shard, server) = (&config.shards[at], self.own);
        let is_open = || self.local.contains(shard.group);
        if shard.replica_on(server).is_none() || is_open() {
            return Ok(Opening::Now(Vec::new()));
        }
        // Its rows may be those of one that has gone.
        if self.tombstones.has_table(config.id) {
            return Ok(Opening::Later);
        }
        // It was open before, so everything that it came after is in the engine.
        if Applied::read(&**self.replicas.engine(), shard.group)?.is_some() {
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
        if founds && self.pending.lock().without_rows.contains(&shard.group) {
            return Ok(Opening::Empty);
        }
        Ok(match is_free && (is_complete || !founds) {
            true => Opening::Now(forerunners),
            false => Opening::Later,
        })
    }

    /// Whether a sealed group is applied here up to its seal, for good.
    fn stands_still(&self, old: &SealedShard) -> Result<bool, AdminError> {
        let Some(shard) = self.local.shard_of(old.group) else { return Ok(false) };
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
    pub(super) fn prepare(
        &self,
        config: &TableConfig,
        at: usize,
        opening: &Opening,
        overrun: &mut Vec<GroupId>,
    ) -> Result<bool, AdminError> {
        let (shard, server) = (&config.shards[at], self.own);
        if shard.replica_on(server).is_none() || self.local.shard_of(shard.group).is_some() {
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
            let gate = self.local.lock().get(group).map(|open| Arc::clone(&open.gate));
            gate.inspect(|gate| gate.close());
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
            return Ok(!self.tombstones.has_table(config.id));
        }
        if shard.founder_on(server).is_none() {
            overrun.extend(others);
        }
        Ok(true)
    }

    /// Takes leave of a group before the present shards that is of no use here. Its rows stay until a copy
    /// takes their place; those of shards that are not placed here go when nobody needs the groups before.
    fn abandon(&self, table: TableId, group: GroupId) -> Result<(), AdminError> {
        let Some(open) = self.local.lock().remove(&group) else { return Ok(()) };
        open.gate.close();
        open.shard.retire();
        self.replicas.mark_recovering(group);
        self.leftovers.add(table);
        self.tombstones.leave(table, group)?;
        Ok(())
    }

    /// The open groups of a table's earlier shards with keys in `range`.
    fn others_in(&self, config: &TableConfig, range: &KeyRange) -> Vec<GroupId> {
        let is_present = |group: &GroupId| config.shards.iter().any(|shard| shard.group == *group);
        let hosted = self.local.lock();
        let others = hosted.iter().filter(|(group, open)| {
            open.table == config.id && !is_present(group) && !open.range.intersect(range).is_empty()
        });
        others.map(|(group, _)| *group).collect()
    }

    /// Sees to it that a group of several gets a leader, of which `near` was opened just now; a new one gets its
    /// first: who has opened it stands when it is its turn, again and again.
    pub(super) fn start_election(&self, shard: &ShardConfig, near: &Shard) {
        let order = shard.candidates();
        let Some(turn) = order.iter().position(|server| *server == self.own) else { return };
        if order.len() < 2 {
            return;
        }
        if turn == 0 {
            // Nothing happens if somebody leads already.
            self.log.campaign(shard.group);
        }
        if near.applied() == Lsn(0) {
            let from = task::now() + ELECTION_ORDER_DELAY * u32::try_from(turn).unwrap_or(u32::MAX);
            self.pending.lock().starting.insert(shard.group, from);
        }
    }
}
