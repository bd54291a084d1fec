//! The shards that a table had before a reshard. Decision 0024.
//!
//! The groups of the previous shards are kept until every founder of a new shard has their rows
//! durably in its engine. After that no server needs the logs of the old groups.

use datum::{KeyBound, KeyRange, PrimaryKey};
use shard::SealState;

use super::{ReplicaConfig, SealedShard, ServerId, ShardConfig, TableConfig};

/// The most past groups that the catalog lists for a table.
const PAST_MAX: usize = 256;

impl SealedShard {
    pub(crate) fn range(&self) -> KeyRange {
        let start = match self.start.is_empty() {
            true => KeyBound::Unbounded,
            false => KeyBound::Included(PrimaryKey(self.start.clone())),
        };
        let end = self.end.clone().map_or(KeyBound::Unbounded, |end| KeyBound::Excluded(PrimaryKey(end)));
        KeyRange { start, end }
    }

    /// The seal state that its group ended with.
    pub(crate) fn seal_state(&self) -> SealState {
        SealState::sealed(self.epoch)
    }

    pub(crate) fn replica_on(&self, server: ServerId) -> Option<&ReplicaConfig> {
        self.replicas.iter().find(|replica| replica.server == server)
    }
}

impl TableConfig {
    /// Whether `server` is a founder of a shard: its replica begins the shard with rows that it already holds.
    pub(crate) fn is_founded_on(&self, server: ServerId) -> bool {
        self.shards.iter().any(|shard| shard.founder_on(server).is_some())
    }

    /// Removes entries that are no longer needed: from `waiting` the servers that are no founder any more, the sealed
    /// groups once no server waits (they become past ones), and temporary replicas that no longer exist.
    pub(crate) fn prune_history(&mut self) {
        self.shards.iter_mut().for_each(ShardConfig::prune_temporary);
        if self.history.sealed.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.history.waiting);
        waiting.retain(|server| self.is_founded_on(*server));
        if waiting.is_empty() {
            self.history.past.append(&mut self.history.sealed);
            let dropped = self.history.past.len().saturating_sub(PAST_MAX);
            self.history.past.drain(..dropped);
        }
        self.history.waiting = waiting;
    }
}

#[cfg(test)]
mod tests {
    use datum::Bytes;
    use log::{GroupId, PeerId};

    use super::*;
    use crate::catalog::row::CatalogRow;
    use crate::config::ShardHistory;
    use crate::config::fixture::{server, shard, table};

    #[test]
    fn sealed_groups_are_forgotten_once_no_server_waits() {
        let mut table = table(vec![shard(9, b"", &[1, 2])]);
        let old =
            SealedShard { group: GroupId(3), start: Bytes::new(), end: None, replicas: Vec::new(), epoch: 0 };
        let waiting = vec![server(1), server(2)];
        table.history = ShardHistory { epoch: 1, sealed: vec![old.clone()], waiting, past: Vec::new() };
        let mut after = table.clone();
        after.prune_history();
        assert_eq!(after, table, "both servers found the shard");
        // The first server joins the shard instead, because it could not found it.
        after.shards[0].replicas[0].peer = PeerId(99);
        after.prune_history();
        assert_eq!((&after.history.waiting[..], after.history.sealed.len()), (&[server(2)][..], 1));
        after.history.waiting.clear();
        after.prune_history();
        assert_eq!(
            after.history,
            ShardHistory { epoch: 1, past: vec![old.clone()], ..ShardHistory::default() }
        );
        let read = CatalogRow::from_object(&CatalogRow::Table(after.clone()).to_object()).unwrap();
        assert_eq!(read, CatalogRow::Table(after.clone()));
        // The oldest are forgotten.
        after.history.past = (0..PAST_MAX as u64).map(|n| SealedShard { epoch: n, ..old.clone() }).collect();
        after.history.sealed = vec![SealedShard { epoch: 999, ..old }];
        after.prune_history();
        let epochs: Vec<u64> = after.history.past.iter().map(|old| old.epoch).collect();
        assert_eq!((epochs.len(), epochs[0], epochs[PAST_MAX - 1]), (PAST_MAX, 1, 999));
    }

    #[test]
    fn an_epoch_beyond_the_largest_seal_state_is_refused() {
        let mut table = table(vec![shard(9, b"", &[1])]);
        for epoch in [SealState::EPOCH_MAX, SealState::EPOCH_MAX + 1] {
            table.history.epoch = epoch;
            let read = CatalogRow::from_object(&CatalogRow::Table(table.clone()).to_object());
            assert_eq!(read.is_ok(), epoch == SealState::EPOCH_MAX, "{read:?}");
        }
    }
}
