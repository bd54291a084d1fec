//! The replicas on this node: opened when the catalog places them here, discarded when it no longer does.
//!
//! Opening stands here, the replacement of earlier replicas in `incarnation`, discarding in `discard`.

use std::collections::BTreeMap;
use std::sync::Arc;

use datum::KeyRange;
use log::{GroupId, InitialConfig, Log, LogError, Lsn, PeerId};
use shard::{Predecessor, Replicas, Shard};
use storage::{Applied, TableId};

use super::incarnation::Superseded;
use super::leftover_rows::LeftoverRows;
use super::opening::{Opening, Openings};
use super::restart_state::RestartState;
use super::tombstone::Tombstones;
use crate::catalog::{CatalogClient, Handles};
use crate::config::{ReplicaConfig, ServerId, ShardConfig, TableConfig};
use crate::error::AdminError;
use crate::locks::{Rank, RankedMutex};
use crate::membership::Membership;
use crate::reshard::PendingHandovers;
use crate::routing::readers::readers_of;
use crate::routing::{
    KnownLeader, Leadership, LocalReplica, LocalReplicas, ReplicaTransport, ShardHandle, shard_range,
};

/// Opens and discards the replicas of this node.
pub(super) struct ReplicaHost {
    pub(super) own: ServerId,
    pub(super) log: Arc<dyn Log>,
    pub(super) replicas: Arc<Replicas>,
    pub(super) local: Arc<LocalReplicas>,
    transport: Arc<ReplicaTransport>,
    pub(super) leadership: Arc<Leadership>,
    pub(super) catalog: Arc<CatalogClient>,
    pub(super) membership: Arc<Membership>,
    pub(super) restart: Arc<RestartState>,
    pub(super) tombstones: Arc<Tombstones>,
    pub(super) leftovers: Arc<LeftoverRows>,
    pending: Arc<PendingHandovers>,
    pub(super) openings: Openings,
    /// Replicas that the catalog names here and that can never be opened again.
    pub(super) removed: RankedMutex<BTreeMap<GroupId, Superseded>>,
}

impl ReplicaHost {
    pub(super) fn new(
        handles: &Handles,
        membership: Arc<Membership>,
        pending: Arc<PendingHandovers>,
        restart: Arc<RestartState>,
    ) -> ReplicaHost {
        let (log, replicas, local) = (handles.log.clone(), handles.replicas.clone(), handles.local.clone());
        let tombstones = Arc::new(Tombstones::new(log.clone(), replicas.clone()));
        let leftovers = Arc::new(LeftoverRows::new(
            handles.own,
            replicas.clone(),
            local.clone(),
            tombstones.clone(),
            restart.clone(),
        ));
        let openings = Openings::new(handles, pending.clone(), tombstones.clone(), leftovers.clone());
        ReplicaHost {
            own: handles.own,
            log,
            replicas,
            local,
            transport: handles.transport.clone(),
            leadership: handles.leadership.clone(),
            catalog: handles.catalog.clone(),
            membership,
            restart,
            tombstones,
            leftovers,
            pending,
            openings,
            removed: RankedMutex::new(Rank::RemovedReplicas, BTreeMap::new()),
        }
    }

    /// Handles for the shards of a table, with this node's replicas open.
    ///
    /// A table written before there were several servers has its replicas, which it does not name,
    /// on this one: they are added to `config`.
    pub(super) fn open_shards(&self, config: &mut TableConfig) -> Result<Vec<ShardHandle>, AdminError> {
        self.open_sealed(config)?;
        let openings = (0..config.shards.len()).map(|at| self.openings.opening(config, at));
        let openings = openings.collect::<Result<Vec<Opening>, _>>()?;
        let mut handles = Vec::with_capacity(config.shards.len());
        let readers = readers_of(self.own, &config.shards);
        let (mut is_deferred, mut overwritten) = (false, Vec::new());
        for (i, opening) in openings.into_iter().enumerate() {
            let range = shard_range(&config.shards, i);
            let near = match opening {
                opening if !self.openings.prepare(config, i, &opening, &mut overwritten)? => {
                    is_deferred = true;
                    None
                }
                opening => self.open_replica(config.id, &mut config.shards[i], &range, &opening)?,
            };
            let shard = &config.shards[i];
            is_deferred |= shard.replica_on(self.own).is_some() && self.tombstones.has_group(shard.group);
            if let Some(near) = &near {
                near.set_indexes(config.indexes.defs());
                near.set_acks(config.write_acks.acks());
            }
            let members = shard.replicas.iter().chain(&shard.leaving);
            self.transport.learn(members.map(|replica| (replica.peer, replica.server)));
            let known = self.leadership.known_leader(shard.group);
            self.note_leader(&known, shard, near.as_ref());
            let from = (self.own, readers[i]);
            handles.push(ShardHandle::new(from, shard, config.id, range, near, known));
        }
        // Whoever still reads there looks for the rows again.
        overwritten.into_iter().for_each(|group| self.replicas.mark_recovering(group));
        self.pending.set_deferred(config.id, is_deferred);
        Ok(handles)
    }

    /// Opens the groups before the present shards of a table, as far as this server has something of them.
    fn open_sealed(&self, config: &TableConfig) -> Result<(), AdminError> {
        let server = self.own;
        for old in &config.lineage.sealed {
            let Some(own) = old.replica_on(server) else { continue };
            self.transport.learn(old.replicas.iter().map(|replica| (replica.peer, replica.server)));
            let is_known =
                || Ok::<_, AdminError>(Applied::read(&**self.replicas.engine(), old.group)?.is_some());
            if self.local.contains(old.group) || !(config.lineage.waiting.contains(&server) || is_known()?) {
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

    fn note_leader(&self, known: &KnownLeader, shard: &ShardConfig, near: Option<&Arc<Shard>>) {
        if near.is_some_and(|near| near.is_leader()) {
            return known.report(Some(self.own));
        }
        // Nobody here hears of elections, or not yet: a guess, to be corrected by whoever is asked.
        let is_new = near.is_none_or(|near| near.applied() == Lsn(0));
        if known.leader().is_none() && is_new {
            known.set_named(Some(shard.first_candidate().unwrap_or(shard.primary)));
        }
    }

    fn open_replica(
        &self,
        table: TableId,
        config: &mut ShardConfig,
        range: &KeyRange,
        opening: &Opening,
    ) -> Result<Option<Arc<Shard>>, AdminError> {
        let server = self.own;
        let is_old = config.all_replicas().next().is_none();
        let named = config.replica_on(server).map(|own| own.peer);
        let initial = match named {
            None if is_old => InitialConfig::Single,
            None => return Ok(None),
            Some(own) => initial_config_of(config, own, opening),
        };
        if let Some(named) = named
            && self.restart.is_caught_up()
        {
            self.discard_earlier(table, config.group, named)?;
        }
        let group = config.group;
        if self.tombstones.has_group(group) {
            return Ok(None);
        }
        if let Some(open) = self.local.lock().get_mut(&group) {
            open.is_named |= named.is_none_or(|named| named == open.own);
            name_old(config, server, open.own);
            return Ok(Some(Arc::clone(&open.shard)));
        }
        // Opened outside of the lock, which everybody takes: the log is replayed, and rows are counted where they
        // were others' before. Whoever opens replicas has `publishing`, so nobody opens this one meanwhile.
        let Some(shard) = self.open_as(table, group, range, initial, opening)? else { return Ok(None) };
        let own = self.log.group_status(group)?.own;
        name_old(config, server, own);
        self.openings.start_election(config, &shard);
        let (gate, is_named) = (Arc::default(), named.is_none_or(|named| named == own));
        let (near, range) = (Arc::clone(&shard), range.clone());
        let open = LocalReplica { shard: near, table, range, own, is_named, gate };
        self.local.lock().insert(group, open);
        self.pending.lock().without_rows.remove(&group);
        Ok(Some(shard))
    }

    /// Opens a replica as the one that it was before, or as `initial` says; `None` if it was removed from the group
    /// before the catalog here says so.
    fn open_as(
        &self,
        table: TableId,
        group: GroupId,
        range: &KeyRange,
        initial: InitialConfig,
        opening: &Opening,
    ) -> Result<Option<Arc<Shard>>, AdminError> {
        let forerunners: &[Predecessor] = match opening {
            Opening::Now(forerunners) => forerunners,
            Opening::Empty | Opening::Later => &[],
        };
        let open = |initial| {
            let (log, range) = (self.log.clone(), range.clone());
            Shard::open_after(&self.replicas, log, table, group, range, initial, forerunners)
        };
        let opened = match open(initial.clone()) {
            Err(shard::OpenError::Log(LogError::OtherPeer { .. })) => {
                if self.restart.is_caught_up() {
                    if !self.tombstones.leave(table, group)? {
                        return Ok(None);
                    }
                    open(initial)
                } else {
                    // Which of the two is the later one is known when the catalog is: until then it goes on
                    // as who it was, which harms nobody.
                    open(InitialConfig::Single)
                }
            }
            opened => opened,
        };
        match opened {
            Ok(shard) => {
                tracing::debug!(
                    "group {group} of {range:?} is open after {forerunners:?}: {} rows, applied {:?}",
                    shard.count(),
                    shard.applied()
                );
                Ok(Some(shard))
            }
            Err(shard::OpenError::Log(error @ (LogError::Tombstone(_) | LogError::Removed { .. }))) => {
                if let LogError::Removed { peer, .. } = error {
                    self.note_removed(table, group, peer);
                }
                self.tombstones.leave(table, group)?;
                self.leftovers.add(table);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// How replica `own` of a shard begins that is new here.
fn initial_config_of(config: &ShardConfig, own: PeerId, opening: &Opening) -> InitialConfig {
    let voters = || config.founders.clone();
    match opening {
        _ if !config.founders.contains(&own) => InitialConfig::Joining { own },
        Opening::Empty => InitialConfig::BootstrapEmpty { own, voters: voters() },
        Opening::Now(_) | Opening::Later => InitialConfig::Bootstrap { own, voters: voters() },
    }
}

fn name_old(config: &mut ShardConfig, server: ServerId, own: PeerId) {
    if config.replicas.is_empty() {
        config.replicas = vec![ReplicaConfig { server, peer: own, voting: true }];
        config.founders = vec![own];
        config.primary = server;
    }
}
