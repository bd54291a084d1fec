//! Removes temporary replicas of a reshard that was aborted, or whose server takes too long. Decision 0044.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{GroupId, Log, Role};
use storage::TableId;

use super::preparation::preparation_timeout;
use crate::catalog::row::CatalogRow;
use crate::catalog::{CatalogClient, Handles};
use crate::config::{ReplicaConfig, ServerId, ShardConfig, Temporary};
use crate::routing::lag::{Lag, is_within};
use crate::routing::{LocalReplicas, ReplicaTransport};
use crate::rpc::Peers;

/// How long a reshard of a table with this many shards needs its temporary replicas at most. After that its server has
/// stopped.
fn lifetime(shards: usize) -> Duration {
    preparation_timeout(shards).saturating_mul(2)
}

/// Since when the leader of a shard has known each of its temporary replicas and votes.
#[derive(Default)]
pub(crate) struct TemporarySince(HashMap<(GroupId, Temporary), Instant>);

impl TemporarySince {
    /// The servers with a temporary replica or vote of a shard that is older than any reshard of its table, which has
    /// `shards` shards, can need.
    pub(crate) fn overdue(&mut self, shard: &ShardConfig, shards: usize, now: Instant) -> Vec<ServerId> {
        self.0.retain(|(group, added), _| *group != shard.group || shard.temporary.contains(added));
        let mut since = |added: &Temporary| *self.0.entry((shard.group, *added)).or_insert(now);
        let overdue = shard.temporary.iter().filter(|added| now - since(added) > lifetime(shards));
        overdue.map(|added| added.server()).collect()
    }

    /// Restarts the time of a shard's temporary replicas and votes on these servers.
    pub(crate) fn restart(&mut self, group: GroupId, servers: &[ServerId]) {
        self.0.retain(|(of, added), _| *of != group || !servers.contains(&added.server()));
    }

    /// Forgets a shard, which this node does not lead any more.
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.0.retain(|(of, _), _| *of != group);
    }
}

/// Removes temporary replicas.
pub(crate) struct TemporaryReplicas {
    peers: Arc<Peers>,
    transport: Arc<ReplicaTransport>,
    log: Arc<dyn Log>,
    local: Arc<LocalReplicas>,
    catalog: Arc<CatalogClient>,
}

impl TemporaryReplicas {
    pub(crate) fn new(handles: &Handles) -> TemporaryReplicas {
        TemporaryReplicas {
            peers: handles.peers.clone(),
            transport: handles.transport.clone(),
            log: handles.log.clone(),
            local: handles.local.clone(),
            catalog: handles.catalog.clone(),
        }
    }

    /// Removes the temporary replicas of a table whose reshard is aborted. If this fails, the leaders of its shards do
    /// it.
    pub(crate) fn remove(&self, id: TableId, added: &[(GroupId, ServerId)]) {
        if !added.is_empty() {
            let _one_at_a_time = self.catalog.lock_changes();
            self.remove_locked(id, added);
        }
    }

    /// As [`TemporaryReplicas::remove`], for a caller that holds `CatalogClient::lock_changes`.
    pub(crate) fn remove_locked(&self, id: TableId, added: &[(GroupId, ServerId)]) {
        if added.is_empty() {
            return;
        }
        let removed = self.catalog.change_locked(|catalog, draft| {
            let Some(handle) = catalog.table_by_id(id) else { return Ok(()) };
            let mut after = handle.config.clone();
            after.remove_temporary(added, |group, replica| self.is_up_to_date(group, replica));
            if after != handle.config {
                draft.put(CatalogRow::Table(after));
            }
            Ok(())
        });
        if let Err(error) = removed {
            tracing::warn!(
                "could not remove temporary replicas of a reshard, their leaders do it after a minute or more: {error}"
            );
        }
    }

    /// Whether a replica is connected and, if this node leads its group, up to date.
    pub(crate) fn is_up_to_date(&self, group: GroupId, replica: &ReplicaConfig) -> bool {
        let led = self.local.shard_of(group).filter(|shard| shard.leads());
        let status = led.and_then(|_| self.log.group_status(group).ok());
        let led = status.filter(|status| matches!(status.role, Role::Leader { .. }));
        self.peers.is_connected(replica.server)
            && led.is_none_or(|status| {
                is_within(&self.transport.with_connected(status), replica.peer, Lag::Ready)
            })
    }
}

#[cfg(test)]
mod tests {
    use io::task;

    use super::*;
    use crate::config::fixture::{peer, server, shard};

    /// A shard on 1, 2 and 3, where 3 has no vote; and the same with a temporary vote of 3 and a temporary replica on
    /// 4.
    fn added() -> (ShardConfig, ShardConfig) {
        let mut before = shard(3, b"", &[1, 2, 3]);
        before.replicas[2].voting = false;
        let mut after = before.clone();
        assert!(after.add_temporary(server(3), || unreachable!("it has one")));
        assert!(after.add_temporary(server(4), || peer(3, 4)));
        (before, after)
    }

    #[test]
    fn each_temporary_replica_expires_at_its_own_time() {
        let (before, both) = added();
        let (mut since, begin, needed) = (TemporarySince::default(), task::now(), lifetime(1));
        let mut one = before.clone();
        one.add_temporary(server(4), || peer(3, 4));
        let late = begin + needed + Duration::from_secs(1);
        assert_eq!(since.overdue(&one, 1, begin), []);
        assert_eq!(since.overdue(&both, 1, late), [server(4)], "the other one is new");
        since.restart(GroupId(3), &[server(4)]);
        assert_eq!(since.overdue(&both, 1, late), []);
        assert_eq!(since.overdue(&both, 1, late + needed + Duration::from_secs(1)), [server(3), server(4)]);
        // Another shard has none. A removed one is forgotten.
        assert_eq!(since.overdue(&shard(4, b"", &[1, 2]), 1, late), []);
        assert_eq!(since.overdue(&before, 1, late + 2 * needed), []);
        assert_eq!(since.overdue(&both, 1, late + 3 * needed), []);
        since.forget(GroupId(3));
        assert_eq!(since.overdue(&both, 1, late + 5 * needed), []);
    }
}
