//! One handle for a shard, wherever it lives.

use std::ops::Deref;
use std::sync::Arc;

use shard::Shard;

/// How to reach a shard. Nearby shards are called; those of other nodes will be asked
/// over the cluster's network with the same verbs.
#[derive(Clone)]
pub enum ShardHandle {
    /// A replica in this process.
    Near(Arc<Shard>),
}

impl ShardHandle {
    /// This node's own replica, if it has one.
    #[must_use]
    pub fn near(&self) -> Option<&Arc<Shard>> {
        match self {
            ShardHandle::Near(shard) => Some(shard),
        }
    }
}

impl Deref for ShardHandle {
    type Target = Shard;
    fn deref(&self) -> &Shard {
        match self {
            ShardHandle::Near(shard) => shard,
        }
    }
}
