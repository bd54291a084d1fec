//! The part of a table that one shard answers for.

use datum::KeyRange;
use log::GroupId;

/// A range of a table's keys and the group that orders its writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardRange {
    /// The keys. Nothing outside is shown, whatever lies there.
    pub range: KeyRange,
    /// The group, under which the rows are counted.
    pub group: GroupId,
}
