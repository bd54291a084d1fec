//! A table on its way from its old shards to new ones, and groups that are left alone meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use datum::Bytes;
use io::task;
use log::GroupId;
use parking_lot::Mutex;

use crate::ShardConfig;
use crate::placement::ShardPlaces;

/// The groups whose members are not brought to what the catalog says.
pub(crate) type LeftAlone = Arc<Mutex<BTreeSet<GroupId>>>;

/// Keeps groups left alone until it is dropped.
pub(crate) struct Alone {
    pub(crate) groups: Vec<GroupId>,
    pub(crate) left_alone: LeftAlone,
}

impl Drop for Alone {
    fn drop(&mut self) {
        let mut left_alone = task::lock(&self.left_alone);
        left_alone.retain(|group| !self.groups.contains(group));
    }
}

/// A table whose old shards take no more writes, and what its new ones are to be.
pub(crate) struct Division {
    pub(crate) old: Vec<ShardConfig>,
    pub(crate) starts: Vec<Bytes>,
    pub(crate) places: Vec<ShardPlaces>,
    pub(crate) retired: Vec<Arc<shard::Shard>>,
    /// Its end gives the old groups their members again.
    #[expect(dead_code, reason = "held, not read")]
    pub(crate) alone: Alone,
    pub(crate) built: Vec<shard::IndexId>,
}

impl Division {
    /// Nothing came of it: the old shards go on.
    pub(crate) fn undo(self) {
        self.retired.iter().for_each(|shard| shard.reinstate());
    }

    /// Whether it ends that group.
    pub(crate) fn has(&self, group: GroupId) -> bool {
        self.old.iter().any(|shard| shard.group == group)
    }
}
