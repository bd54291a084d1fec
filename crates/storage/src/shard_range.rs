//! The key range of a shard.

use datum::KeyRange;
use log::GroupId;

/// A range of a table's keys, and the group that orders its writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardRange {
    /// The keys. Rows outside are never returned, even if the engine has them.
    pub range: KeyRange,
    /// The group. Rows are counted per group.
    pub group: GroupId,
}
