//! Successive replicas of one group on one server. The catalog may remove a replica and later place another one of the
//! same group on the same server, while the server is disconnected or before it has noticed. The two are different
//! members of the group: the data of the earlier one is discarded, and the later one begins without rows.
//!
//! The catalog determines which of the two is the later one, once it has caught up ([`RestartState`](crate::node::restart_state::RestartState)).

use std::time::Duration;

use io::task;
use log::{GroupId, PeerId};
use storage::TableId;

use super::{ReplicaHost, Superseded};
use crate::catalog::{Catalog, display_names};
use crate::config::TableConfig;
use crate::error::AdminError;
use crate::routing::LocalReplica;

/// How long the catalog may name a removed replica before this node replaces it: a version that no longer names it may be
/// on its way.
const REPLACEMENT_DELAY: Duration = Duration::from_secs(5);

impl ReplicaHost {
    /// Whether an earlier replica of a group of the table is open here, and can be discarded because the catalog has
    /// caught up: `config` names another replica on this server.
    pub(in crate::node) fn has_earlier(&self, config: &TableConfig) -> bool {
        if !self.restart.is_caught_up() {
            return false;
        }
        let open_replicas = self.local.lock();
        config.shards.iter().any(|shard| {
            let named = shard.replicas.iter().chain(&shard.leaving);
            let mut named = named.filter(|replica| replica.server == self.own);
            let open = open_replicas.get(&shard.group);
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
            let mut open_replicas = self.local.lock();
            match open_replicas.get(&group) {
                Some(open) if open.own != named => open_replicas.remove(&group),
                _ => None,
            }
        };
        let Some(LocalReplica { shard, own, gate, .. }) = earlier else { return Ok(()) };
        let of = display_names::group(&self.catalog.shown(), group);
        tracing::info!("The replica of {of} on this server was removed and is replaced by a new one");
        tracing::debug!("group {group}: {own} was removed here and is replaced by {named}");
        gate.close();
        shard.retire();
        self.tombstones.leave(table, group)?;
        Ok(())
    }

    /// Remembers that a replica was removed from its group although the catalog names it here.
    pub(super) fn note_removed(&self, table: TableId, group: GroupId, peer: PeerId) {
        self.removed.lock().insert(group, Superseded { table, peer, since: task::now() });
    }

    /// Replaces the replicas of this server that were removed from their groups and are still named by the newest catalog.
    pub(in crate::node) fn replace_removed(&self, catalog: &Catalog) {
        let is_named = |group: &GroupId, old: &Superseded| {
            let table = catalog.table_by_id(old.table);
            let mut shards = table.iter().flat_map(|table| &table.config.shards);
            shards.any(|shard| {
                shard.group == *group && shard.replicas.iter().any(|replica| replica.peer == old.peer)
            })
        };
        let due: Vec<(GroupId, Superseded)> = {
            let mut removed = self.removed.lock();
            removed.retain(|group, old| is_named(group, old));
            let due = removed.iter().filter(|(_, old)| task::now() - old.since > REPLACEMENT_DELAY);
            due.map(|(group, old)| (*group, *old)).collect()
        };
        if due.is_empty() || !self.catalog.is_latest_version(catalog.version) {
            return;
        }
        for (group, old) in due {
            let of = display_names::group(catalog, group);
            tracing::info!(
                "The replica of {of} on this server was removed before and is replaced by a new one"
            );
            if let Err(error) = self.membership.replace_removed(old.table, group, old.peer) {
                tracing::warn!("could not replace the removed replica of {of} on this server: {error}");
            }
        }
    }
}
