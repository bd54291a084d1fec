//! Removes temporary replicas of a reshard that was given up, or whose server takes too long. Decision 0024.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{GroupId, Log, Role};
use storage::TableId;

use super::plan::preparation_timeout;
use crate::catalog::row::CatalogRow;
use crate::catalog::{CatalogClient, Handles};
use crate::config::{ReplicaConfig, ServerId, ShardConfig, Temporary};
use crate::routing::lag::{Lag, is_within};
use crate::routing::{LocalReplicas, ReplicaTransport};
use crate::rpc::Peers;

/// How long a reshard of a table of so many shards needs its temporary replicas at most. After that its server has stopped.
fn lifetime(shards: usize) -> Duration {
    preparation_timeout(shards).saturating_mul(2)
}

/// Since when what was added is there, as the leaders of its shards have seen it.
#[derive(Default)]
pub(crate) struct TemporarySince(HashMap<(GroupId, Temporary), Instant>);

impl TemporarySince {
    /// Where a shard has had something added for longer than anybody needs it who divides its table of so many
    /// shards.
    pub(crate) fn overdue(&mut self, shard: &ShardConfig, shards: usize, now: Instant) -> Vec<ServerId> {
        self.0.retain(|(group, added), _| *group != shard.group || shard.added.contains(added));
        let mut since = |added: &Temporary| *self.0.entry((shard.group, *added)).or_insert(now);
        let overdue = shard.added.iter().filter(|added| now - since(added) > lifetime(shards));
        overdue.map(|added| added.server()).collect()
    }

    /// There is as much time again for what was added to a shard on those servers.
    pub(crate) fn begin_anew(&mut self, group: GroupId, servers: &[ServerId]) {
        self.0.retain(|(of, added), _| *of != group || !servers.contains(&added.server()));
    }

    /// The shard is led from elsewhere.
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

    /// Removes the temporary replicas of a table whose reshard is given up. If this fails, the leaders of its shards do it.
    pub(crate) fn remove(&self, id: TableId, added: &[(GroupId, ServerId)]) {
        if !added.is_empty() {
            let _one_at_a_time = self.catalog.lock_changes();
            self.remove_held(id, added);
        }
    }

    /// As [`TemporaryReplicas::remove`], while the catalog is held.
    pub(crate) fn remove_held(&self, id: TableId, added: &[(GroupId, ServerId)]) {
        if added.is_empty() {
            return;
        }
        let taken = self.catalog.change_locked(|catalog, draft| {
            let Some(handle) = catalog.table_by_id(id) else { return Ok(()) };
            let mut after = handle.config.clone();
            after.remove_temporary(added, |group, replica| self.is_up_to_date(group, replica));
            if after != handle.config {
                draft.put(CatalogRow::Table(after));
            }
            Ok(())
        });
        if let Err(error) = taken {
            tracing::warn!(
                "could not remove temporary replicas of a reshard, their leaders will within a minute or longer: {error}"
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

    /// A shard on 1 and 2, where 3 has no vote, and what is added on 3 and 4.
    fn added() -> (ShardConfig, ShardConfig) {
        let mut before = shard(3, b"", &[1, 2, 3]);
        before.replicas[2].voting = false;
        let mut after = before.clone();
        assert!(after.add_temporary(server(3), || unreachable!("it has one")));
        assert!(after.add_temporary(server(4), || peer(3, 4)));
        (before, after)
    }

    #[test]
    fn each_of_what_was_added_is_there_for_its_own_time() {
        let (before, both) = added();
        let (mut since, begin, needed) = (TemporarySince::default(), task::now(), lifetime(1));
        let mut one = before.clone();
        one.add_temporary(server(4), || peer(3, 4));
        let late = begin + needed + Duration::from_secs(1);
        assert_eq!(since.overdue(&one, 1, begin), []);
        assert_eq!(since.overdue(&both, 1, late), [server(4)], "the other one is new");
        since.begin_anew(GroupId(3), &[server(4)]);
        assert_eq!(since.overdue(&both, 1, late), []);
        assert_eq!(since.overdue(&both, 1, late + needed + Duration::from_secs(1)), [server(3), server(4)]);
        // Another shard has nothing to do with it; what is gone is not remembered.
        assert_eq!(since.overdue(&shard(4, b"", &[1, 2]), 1, late), []);
        assert_eq!(since.overdue(&before, 1, late + 2 * needed), []);
        assert_eq!(since.overdue(&both, 1, late + 3 * needed), []);
        since.forget(GroupId(3));
        assert_eq!(since.overdue(&both, 1, late + 5 * needed), []);
    }
}
