//! The replicas on this node: opened when the catalog places them here, discarded when it no longer does.
//!
//! This file opens replicas. `incarnation` replaces earlier replicas of the same group, `discard` discards replicas and
//! deletes their data.

mod discard;
mod incarnation;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use datum::KeyRange;
use log::{GroupId, InitialConfig, Log, LogError, Lsn, PeerId};
use shard::{Predecessor, Replicas, Shard};
use storage::{Applied, TableId};

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

/// A replica of this server that was removed from its group, and that the catalog named when it was to be opened.
#[derive(Clone, Copy)]
struct Superseded {
    table: TableId,
    peer: PeerId,
    since: Instant,
}

/// Opens and discards the replicas of this node.
pub(super) struct ReplicaHost {
    own: ServerId,
    log: Arc<dyn Log>,
    replicas: Arc<Replicas>,
    local: Arc<LocalReplicas>,
    transport: Arc<ReplicaTransport>,
    leadership: Arc<Leadership>,
    catalog: Arc<CatalogClient>,
    membership: Arc<Membership>,
    restart: Arc<RestartState>,
    tombstones: Arc<Tombstones>,
    leftovers: Arc<LeftoverRows>,
    pending: Arc<PendingHandovers>,
    openings: Openings,
    /// Replicas that the catalog names here although they were removed from their groups and cannot be opened again.
    removed: RankedMutex<BTreeMap<GroupId, Superseded>>,
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

    /// Whether this server's replica of shard `at` of a table may be opened now.
    pub(super) fn may_open(&self, config: &TableConfig, at: usize) -> Result<bool, AdminError> {
        Ok(!matches!(self.openings.opening(config, at)?, Opening::Later))
    }

    /// Opens this node's replicas of a table, and returns handles for all of its shards.
    ///
    /// The row of a table that was created before clusters existed names no replicas. They are on this node, and are
    /// added to `config`.
    pub(super) fn open_shards(&self, config: &mut TableConfig) -> Result<Vec<ShardHandle>, AdminError> {
        self.open_sealed(config)?;
        let openings = (0..config.shards.len()).map(|at| self.openings.opening(config, at));
        let openings = openings.collect::<Result<Vec<Opening>, _>>()?;
        let mut handles = Vec::with_capacity(config.shards.len());
        let readers = readers_of(self.own, &config.shards);
        let (mut is_deferred, mut overwritten) = (false, Vec::new());
        for (i, opening) in openings.into_iter().enumerate() {
            let range = shard_range(&config.shards, i);
            let local = match opening {
                opening if !self.openings.prepare(config, i, &opening, &mut overwritten)? => {
                    is_deferred = true;
                    None
                }
                opening => self.open_replica(config.id, &mut config.shards[i], &range, &opening)?,
            };
            let shard = &config.shards[i];
            is_deferred |= shard.replica_on(self.own).is_some() && self.tombstones.has_group(shard.group);
            if let Some(local) = &local {
                local.set_indexes(config.indexes.defs());
                local.set_acks(config.write_acks.acks());
            }
            let members = shard.replicas.iter().chain(&shard.leaving);
            self.transport.learn(members.map(|replica| (replica.peer, replica.server)));
            let known = self.leadership.known_leader(shard.group);
            self.note_leader(&known, shard, local.as_ref());
            let from = (self.own, readers[i]);
            handles.push(ShardHandle::new(from, shard, config.id, range, local, known));
        }
        // Readers with an older handle look up the shard again.
        overwritten.into_iter().for_each(|group| self.replicas.mark_recovering(group));
        self.pending.set_deferred(config.id, is_deferred);
        Ok(handles)
    }

    /// Opens this server's replicas of the sealed groups of a table, if its new replicas wait for them or it has their rows.
    fn open_sealed(&self, config: &TableConfig) -> Result<(), AdminError> {
        let server = self.own;
        for old in &config.history.sealed {
            let Some(own) = old.replica_on(server) else { continue };
            self.transport.learn(old.replicas.iter().map(|replica| (replica.peer, replica.server)));
            let is_known =
                || Ok::<_, AdminError>(Applied::read(&**self.replicas.engine(), old.group)?.is_some());
            if self.local.contains(old.group) || !(config.history.waiting.contains(&server) || is_known()?) {
                continue;
            }
            // The founders are not needed: the log knows how the group began.
            let mut sealed = ShardConfig {
                group: old.group,
                start: old.start.clone(),
                replicas: vec![*own],
                leaving: Vec::new(),
                temporary: Vec::new(),
                primary: server,
                founders: Vec::new(),
            };
            let opening = Opening::Now(Vec::new());
            let local = self.open_replica(config.id, &mut sealed, &old.range(), &opening)?;
            local.inspect(|local| local.set_indexes(config.indexes.defs()));
        }
        Ok(())
    }

    fn note_leader(&self, known: &KnownLeader, shard: &ShardConfig, local: Option<&Arc<Shard>>) {
        if local.is_some_and(|local| local.is_leader()) {
            return known.report(Some(self.own));
        }
        // Without a replica here, or with a new one, this node does not learn of elections (yet). It guesses the leader; a
        // server that receives a request in error names the right one.
        let is_new = local.is_none_or(|local| local.applied() == Lsn(0));
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
        let names_no_replicas = config.all_replicas().next().is_none();
        let named = config.replica_on(server).map(|own| own.peer);
        let initial = match named {
            None if names_no_replicas => InitialConfig::Single,
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
            add_unnamed_replica(config, server, open.own);
            return Ok(Some(Arc::clone(&open.shard)));
        }
        // Opened without the lock of `local`, which every query takes: opening replays the log, and counts rows that
        // belonged to other groups before. The publisher's `publishing` lock, held here, keeps others from opening the
        // same replica.
        let Some(shard) = self.open_as(table, group, range, initial, opening)? else { return Ok(None) };
        let own = self.log.group_status(group)?.own;
        add_unnamed_replica(config, server, own);
        self.openings.start_election(config, &shard);
        let (gate, is_named) = (Arc::default(), named.is_none_or(|named| named == own));
        let range = range.clone();
        let open = LocalReplica { shard: Arc::clone(&shard), table, range, own, is_named, gate };
        self.local.lock().insert(group, open);
        self.pending.lock().without_rows.remove(&group);
        Ok(Some(shard))
    }

    /// Opens a replica: an existing one as the peer that it was before, a new one as `initial`. `None` if the replica was
    /// removed from its group although the catalog here still names it.
    fn open_as(
        &self,
        table: TableId,
        group: GroupId,
        range: &KeyRange,
        initial: InitialConfig,
        opening: &Opening,
    ) -> Result<Option<Arc<Shard>>, AdminError> {
        let predecessors: &[Predecessor] = match opening {
            Opening::Now(predecessors) => predecessors,
            Opening::Empty | Opening::Later => &[],
        };
        let open = |initial| {
            let (log, range) = (self.log.clone(), range.clone());
            Shard::open_after(&self.replicas, log, table, group, range, initial, predecessors)
        };
        let opened = match open(initial.clone()) {
            Err(shard::OpenError::Log(LogError::OtherPeer { .. })) => {
                if self.restart.is_caught_up() {
                    if !self.tombstones.leave(table, group)? {
                        return Ok(None);
                    }
                    open(initial)
                } else {
                    // Until the catalog has caught up, this node does not know which of the two peers is the later one. It
                    // opens the existing replica, which is safe in either case.
                    open(InitialConfig::Single)
                }
            }
            opened => opened,
        };
        match opened {
            Ok(shard) => {
                tracing::debug!(
                    "group {group} of {range:?} is open after {predecessors:?}: {} rows, applied {:?}",
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

/// The initial configuration of replica `own` of a shard, if it is new here.
fn initial_config_of(config: &ShardConfig, own: PeerId, opening: &Opening) -> InitialConfig {
    let voters = || config.founders.clone();
    match opening {
        _ if !config.founders.contains(&own) => InitialConfig::Joining { own },
        Opening::Empty => InitialConfig::BootstrapEmpty { own, voters: voters() },
        Opening::Now(_) | Opening::Later => InitialConfig::Bootstrap { own, voters: voters() },
    }
}

/// Adds the replica on `server` to a shard whose row names no replicas.
fn add_unnamed_replica(config: &mut ShardConfig, server: ServerId, own: PeerId) {
    if config.replicas.is_empty() {
        config.replicas = vec![ReplicaConfig { server, peer: own, voting: true }];
        config.founders = vec![own];
        config.primary = server;
    }
}
