//! The end of a handover: this server has the rows of its new shards durably, and reports that in the catalog. Each server
//! does so by itself. Decision 0024.
//!
//! `node::opening` opens the replica of a new shard, whose record is written to the engine after all rows of the
//! predecessors. A crash leaves a prefix of the engine's writes, so an engine with the record also has the rows. A server
//! needs the predecessors' logs until the record is durable. Then it notes in the catalog that it waits for them no longer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use datum::Bytes;
use io::task;
use log::{GroupId, GroupStatus, Log, PeerId};
use shard::Replicas;

use super::pending_handovers::PendingHandovers;
use crate::catalog::row::CatalogRow;
use crate::catalog::{Catalog, CatalogClient, Handles, table_by_id};
use crate::config::{Ids, ReplicaConfig, ServerId, ShardConfig, TableConfig};
use crate::error::AdminError;
use crate::routing::{LeaderLookup, LocalReplicas, ShardHandle, TableHandle};
use crate::rpc::response::decode_groups;
use crate::rpc::{Peers, Request};

/// How long a founder waits for its rows. After that it begins without them, if another replica has them.
const DEFERRED_TIMEOUT: Duration = Duration::from_secs(5);
/// How long another founder may take to respond.
const FOUNDER_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends the handovers of this node.
pub(crate) struct HandoverEnd {
    own: ServerId,
    peers: Arc<Peers>,
    log: Arc<dyn Log>,
    replicas: Arc<Replicas>,
    local: Arc<LocalReplicas>,
    catalog: Arc<CatalogClient>,
    leaders: Arc<LeaderLookup>,
    pending: Arc<PendingHandovers>,
    ids: Ids,
}

impl HandoverEnd {
    pub(crate) fn new(handles: &Handles, pending: Arc<PendingHandovers>) -> HandoverEnd {
        HandoverEnd {
            own: handles.own,
            peers: handles.peers.clone(),
            log: handles.log.clone(),
            replicas: handles.replicas.clone(),
            local: handles.local.clone(),
            catalog: handles.catalog.clone(),
            leaders: handles.leaders.clone(),
            ids: handles.ids.clone(),
            pending,
        }
    }

    /// Whether the catalog waits for this server to report that it has the rows of the shards that it founds.
    pub(crate) fn is_awaited(&self) -> bool {
        let is_awaited = |table: &&Arc<TableHandle>| table.config.history.waiting.contains(&self.own);
        self.catalog.guard().tables().iter().any(is_awaited)
    }

    /// Notes in the catalog that this server has the rows of the shards that it founds. A shard whose rows it cannot
    /// get may begin here without them. Waits for the disk.
    pub(crate) fn finish(&self, catalog: &Catalog) {
        let mut overdue = Vec::new();
        for table in catalog.tables() {
            if !table.config.history.waiting.contains(&self.own) {
                continue;
            }
            match self.finish_table(&table.config) {
                Ok(more) => overdue.extend(more),
                Err(error) => {
                    tracing::debug!("table {}: the old shards are still needed: {error}", table.config.id);
                }
            }
        }
        self.find_founders_with_rows(&overdue);
    }

    /// Notes a table's handover as finished here, if all shards that this server founds are open. Otherwise returns the
    /// shards that it could not open for too long and that may not begin without rows yet.
    fn finish_table<'a>(&self, config: &'a TableConfig) -> Result<Vec<&'a ShardConfig>, AdminError> {
        let own = self.own;
        // Read before `local`: a group that is opened in between is in one of the two.
        let without_rows = self.pending.lock().without_rows.clone();
        let open_replicas: BTreeSet<GroupId> = self.local.lock().keys().copied().collect();
        let founded = || config.shards.iter().filter(|shard| shard.founder_on(own).is_some());
        if founded().all(|shard| open_replicas.contains(&shard.group)) {
            self.replicas.engine().flush()?;
            self.catalog.change(|catalog, draft| {
                let mut after = table_by_id(catalog, config.id)?.config.clone();
                if after.history.sealed == config.history.sealed {
                    after.history.waiting.retain(|server| *server != own);
                    draft.put(CatalogRow::Table(after));
                }
                Ok(())
            })?;
            return Ok(Vec::new());
        }
        let since = self.pending.lock().deferred.get(&config.id).copied();
        if since.is_none_or(|since| task::now() - since < DEFERRED_TIMEOUT) {
            return Ok(Vec::new());
        }
        let is_missing = |shard: &&ShardConfig| {
            !open_replicas.contains(&shard.group) && !without_rows.contains(&shard.group)
        };
        Ok(founded().filter(is_missing).collect())
    }

    /// Lets this server begin a shard without its rows, if another replica has the shard with rows: a founder, or a
    /// replica that joined since. Then the local rows are not needed. This server cannot have them
    /// if the log of a predecessor is trimmed too far, or if its rows are invalid.
    ///
    /// Asks each server once about all its shards, all servers at the same time. Stops waiting as soon as every shard
    /// is confirmed.
    fn find_founders_with_rows(&self, shards: &[&ShardConfig]) {
        let mut places: BTreeMap<ServerId, Vec<GroupId>> = BTreeMap::new();
        for shard in shards {
            let all = shard.replicas.iter().chain(&shard.leaving);
            for other in all.filter(|replica| replica.server != self.own) {
                places.entry(other.server).or_default().push(shard.group);
            }
        }
        let (sender, responses) = task::channel();
        for (server, groups) in places {
            let sender = sender.clone();
            let on_response = Box::new(move |groups: Result<Bytes, _>| drop(sender.send(groups.ok())));
            self.peers.send(
                server,
                Request::GroupsWithRows { groups }.encode(),
                FOUNDER_TIMEOUT,
                on_response,
            );
        }
        drop(sender);
        let mut left: BTreeSet<GroupId> = shards.iter().map(|shard| shard.group).collect();
        while !left.is_empty()
            && let Ok(groups) = responses.recv()
        {
            let with_rows = groups.as_ref().and_then(decode_groups).unwrap_or_default();
            // Groups in a response that were not in the request are ignored.
            let confirmed = with_rows.into_iter().filter(|group| left.remove(group));
            self.pending.lock().without_rows.extend(confirmed);
        }
    }

    /// Returns the groups that this server has with their rows. The rows are durable in its engine on return, so the
    /// requesting server does not need the predecessors' logs for them.
    pub(crate) fn groups_with_rows_here(&self, groups: &[GroupId]) -> Result<Vec<GroupId>, AdminError> {
        let statuses = self.log.group_statuses(groups)?;
        let has_rows = |status: &Option<GroupStatus>| status.as_ref().is_some_and(|is| !is.needs_rows);
        let with_rows = groups.iter().zip(statuses).filter(|(_, status)| has_rows(status));
        let with_rows: Vec<GroupId> = with_rows.map(|(group, _)| *group).collect();
        if !with_rows.is_empty() {
            self.replicas.engine().flush()?;
        }
        Ok(with_rows)
    }

    /// Replaces the replicas of founders that have not opened their shards by new ones, which join and copy the rows;
    /// only in shards where a quorum of the founders is ready without them. A server that learns of its new replica
    /// removes the old one from the group at once.
    pub(crate) fn replace_missing_founders(
        &self,
        config: &TableConfig,
        is_missing: impl Fn(ServerId) -> bool,
    ) -> Result<(), AdminError> {
        let own = self.own;
        let catalog = self.catalog.shown();
        let handle = table_by_id(&catalog, config.id)?;
        let missing: Vec<ServerId> =
            config.history.waiting.iter().copied().filter(|server| is_missing(*server)).collect();
        let handles: Vec<&ShardHandle> = handle.shards().iter().collect();
        let led: BTreeMap<GroupId, Vec<PeerId>> = handles
            .iter()
            .zip(self.leaders.leaders(&handles))
            .filter_map(|(shard, led)| led.map(|(_, state)| (shard.group(), state.ready)))
            .collect();
        let is_open_here = |group: &GroupId| self.local.contains(*group);
        self.catalog.change(|catalog, draft| {
            let present = &table_by_id(catalog, config.id)?.config;
            if present.history.sealed != config.history.sealed {
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
                let goes = |replica: &ReplicaConfig| {
                    missing.contains(&replica.server)
                        && founders.contains(&replica.peer)
                        && !ready.contains(&replica.peer)
                        && !(replica.server == own && is_open_here(group))
                };
                for replica in replicas.iter_mut().filter(|replica| goes(replica)) {
                    replica.peer = self.ids.new_peer();
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
