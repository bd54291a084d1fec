//! Decides when a replica of a new shard may be opened on this node: once every predecessor with keys of its range is
//! applied here up to its seal. Decision 0024.

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

/// The time between two founders' first candidacies in a new group.
const ELECTION_ORDER_DELAY: Duration = Duration::from_millis(250);

/// Whether a replica may be opened, and the rows that it begins with.
pub(super) enum Opening {
    /// The replica may be opened now, with the rows of these predecessors.
    Now(Vec<Predecessor>),
    /// The replica may be opened now, without rows: another replica has them and gives a copy.
    Empty,
    /// The predecessors here are not applied up to their seals yet.
    Later,
}

/// Decides when replicas are opened, and prevents their predecessors from writing first.
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
        // The rows in its range may belong to a removed replica whose data is not deleted yet.
        if self.tombstones.has_table(config.id) {
            return Ok(Opening::Later);
        }
        // It was open before, so the rows of its predecessors are in the engine.
        if Applied::read(&**self.replicas.engine(), shard.group)?.is_some() {
            return Ok(Opening::Now(Vec::new()));
        }
        let range = shard_range(&config.shards, at);
        let overlaps = |old: &&SealedShard| !old.range().intersect(&range).is_empty();
        let (mut predecessors, mut is_complete) = (Vec::new(), true);
        for old in config.history.sealed.iter().filter(overlaps) {
            match self.is_applied_to_seal(old)? {
                true => predecessors.push(Predecessor { group: old.group, range: old.range() }),
                false => is_complete = false,
            }
        }
        // No other open replica may write rows into this range here.
        let is_free = self
            .earlier_groups_in(config, &range)
            .iter()
            .all(|group| predecessors.iter().any(|old| old.group == *group));
        let is_founder = shard.founder_on(server).is_some();
        if is_founder && self.pending.lock().without_rows.contains(&shard.group) {
            return Ok(Opening::Empty);
        }
        Ok(match is_free && (is_complete || !is_founder) {
            true => Opening::Now(predecessors),
            false => Opening::Later,
        })
    }

    /// Whether a sealed group is applied here up to its seal, and the seal is committed.
    fn is_applied_to_seal(&self, old: &SealedShard) -> Result<bool, AdminError> {
        let Some(shard) = self.local.shard_of(old.group) else { return Ok(false) };
        #[cfg(feature = "mutants")]
        if log::mutant::is_active(log::mutant::Mutant::OpenEarly) {
            return Ok(true);
        }
        if shard.seal_state() != old.seal_state() {
            return Ok(false);
        }
        // With write_acks "single", a leader may have applied entries that are not committed. The log knows whether the rows
        // here are valid; the shard's own state may only say that reads are to be redirected.
        let applied = shard.applied();
        let is_final = |status: GroupStatus| !status.needs_rows && status.committed >= applied;
        Ok(self.log.group_status(old.group).is_ok_and(is_final))
    }

    /// Prevents writes of earlier groups into the range of shard `at`, before its replica is opened here. False if that
    /// is not possible yet. Adds the groups whose rows the replica will overwrite with a copy to `overwritten`.
    pub(super) fn prepare(
        &self,
        config: &TableConfig,
        at: usize,
        opening: &Opening,
        overwritten: &mut Vec<GroupId>,
    ) -> Result<bool, AdminError> {
        let (shard, server) = (&config.shards[at], self.own);
        if shard.replica_on(server).is_none() || self.local.shard_of(shard.group).is_some() {
            return Ok(true);
        }
        let predecessors = match opening {
            Opening::Now(predecessors) => &predecessors[..],
            Opening::Empty => &[],
            // The gates stay open: it may wait for a copy that a predecessor is receiving.
            Opening::Later => return Ok(false),
        };
        let earlier = self.earlier_groups_in(config, &shard_range(&config.shards, at));
        for group in &earlier {
            let gate = self.local.lock().get(group).map(|open| Arc::clone(&open.gate));
            gate.inspect(|gate| gate.close());
        }
        let is_used = |old: &&SealedShard| predecessors.iter().any(|used| used.group == old.group);
        for old in config.history.sealed.iter().filter(is_used) {
            // A copy may have begun between the first check and the closing of the gate.
            if !self.is_applied_to_seal(old)? {
                return Ok(false);
            }
        }
        if matches!(opening, Opening::Empty) {
            // These groups may still write, and must not do so while the new replica receives its copy.
            earlier.iter().try_for_each(|group| self.abandon(config.id, *group))?;
            return Ok(!self.tombstones.has_table(config.id));
        }
        if shard.founder_on(server).is_none() {
            overwritten.extend(earlier);
        }
        Ok(true)
    }

    /// Leaves an earlier group of a table whose replica here is not needed. Its rows stay until a copy overwrites them.
    /// Rows of shards that are not placed here are deleted once the catalog has dropped the table's sealed groups.
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
    fn earlier_groups_in(&self, config: &TableConfig, range: &KeyRange) -> Vec<GroupId> {
        let is_present = |group: &GroupId| config.shards.iter().any(|shard| shard.group == *group);
        let open_replicas = self.local.lock();
        let earlier = open_replicas.iter().filter(|(group, open)| {
            open.table == config.id && !is_present(group) && !open.range.intersect(range).is_empty()
        });
        earlier.map(|(group, _)| *group).collect()
    }

    /// Starts the election of a leader in a group of several voters whose replica `local` was just opened. The first founder
    /// stands at once. In a new group the others follow in order, [`ELECTION_ORDER_DELAY`] apart, and all stand repeatedly
    /// until there is a leader ([`super::publisher::Publisher::continue_handovers`]).
    pub(super) fn start_election(&self, shard: &ShardConfig, local: &Shard) {
        let order = shard.candidates();
        let Some(position) = order.iter().position(|server| *server == self.own) else { return };
        if order.len() < 2 {
            return;
        }
        if position == 0 {
            // Has no effect if the group has a leader.
            self.log.campaign(shard.group);
        }
        if local.applied() == Lsn(0) {
            let from = task::now() + ELECTION_ORDER_DELAY * u32::try_from(position).unwrap_or(u32::MAX);
            self.pending.lock().starting.insert(shard.group, from);
        }
    }
}
