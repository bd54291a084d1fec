//! Replicas of one group on one server, one after the other. A server may hold a replica, lose it and be given another of the
//! same group, while it is away or only slow to notice. The two are different members of the group: the data of the earlier one is
//! discarded, and the later one begins without rows.
//!
//! The catalog says which of two is the later one, if it has caught up ([`super::restart_state::RestartState`]).

use std::time::{Duration, Instant};

use io::task;
use log::{GroupId, PeerId};
use storage::TableId;

use super::replica_host::ReplicaHost;
use crate::catalog::{Catalog, display_names};
use crate::config::TableConfig;
use crate::error::AdminError;
use crate::routing::LocalReplica;

/// How long a removed replica stays named before another takes its place: a change of the catalog that no longer names it may be
/// on its way.
const REPLACEMENT_DELAY: Duration = Duration::from_secs(5);

/// A replica of this server that was removed from its group, and that the catalog named when it was to be opened.
#[derive(Clone, Copy)]
pub(super) struct Superseded {
    table: TableId,
    peer: PeerId,
    since: Instant,
}

impl ReplicaHost {
    /// Whether a replica of the table is open here under a name that `config` does not know, and it is
    /// time to do something about it.
    pub(super) fn has_earlier(&self, config: &TableConfig) -> bool {
        if !self.restart.is_caught_up() {
            return false;
        }
        let hosted = self.local.lock();
        config.shards.iter().any(|shard| {
            let named = shard.replicas.iter().chain(&shard.leaving);
            let mut named = named.filter(|replica| replica.server == self.own);
            let open = hosted.get(&shard.group);
            open.is_some_and(|open| named.next().is_some_and(|replica| replica.peer != open.own))
        })
    }

    /// Discards the replica of `group` that is open here, if it is not `named`.
    pub(super) fn discard_earlier(
        &self,
        table: TableId,
        group: GroupId,
        named: PeerId,
    ) -> Result<(), AdminError> {
        let earlier = {
            let mut hosted = self.local.lock();
            match hosted.get(&group) {
                Some(open) if open.own != named => hosted.remove(&group),
                _ => None,
            }
        };
        let Some(LocalReplica { shard, own, gate, .. }) = earlier else { return Ok(()) };
        let of = display_names::group(&self.catalog.shown(), group);
        tracing::info!("The replica of {of} on this server was removed; a new one takes its place");
        tracing::debug!("group {group}: {own} was removed here, {named} takes its place");
        gate.close();
        shard.retire();
        self.tombstones.leave(table, group)?;
        Ok(())
    }

    /// Notes that a replica that the catalog names here was removed from its group.
    pub(super) fn note_removed(&self, table: TableId, group: GroupId, peer: PeerId) {
        self.removed.lock().insert(group, Superseded { table, peer, since: task::now() });
    }

    /// Gives this server new replicas in place of those that were removed from their groups and are still named by the newest
    /// catalog.
    pub(super) fn replace_removed(&self, catalog: &Catalog) {
        let is_named = |group: &GroupId, gone: &Superseded| {
            let table = catalog.table_by_id(gone.table);
            let mut shards = table.iter().flat_map(|table| &table.config.shards);
            shards.any(|shard| {
                shard.group == *group && shard.replicas.iter().any(|replica| replica.peer == gone.peer)
            })
        };
        let due: Vec<(GroupId, Superseded)> = {
            let mut removed = self.removed.lock();
            removed.retain(|group, gone| is_named(group, gone));
            let due = removed.iter().filter(|(_, gone)| task::now() - gone.since > REPLACEMENT_DELAY);
            due.map(|(group, gone)| (*group, *gone)).collect()
        };
        if due.is_empty() || !self.catalog.is_latest_version(catalog.version) {
            return;
        }
        for (group, gone) in due {
            let of = display_names::group(catalog, group);
            tracing::info!("The replica of {of} on this server had been removed; a new one takes its place");
            if let Err(error) = self.membership.replace_removed(gone.table, group, gone.peer) {
                tracing::warn!("No new replica of {of} for this server, whose old one was removed: {error}");
            }
        }
    }
}
