//! Positions of feeds.

use datum::KeyRange;
use log::GroupId;
use shard::HistoryPosition;

/// How far a feed has come in the history of one group: everything before this position is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FeedPosition {
    /// All entries up to this one.
    pub entry: HistoryPosition,
    /// And this many changed rows of the entry after it.
    pub rows: u32,
}

impl FeedPosition {
    /// The position just after an entry.
    #[must_use]
    pub fn after(entry: HistoryPosition) -> FeedPosition {
        FeedPosition { entry, rows: 0 }
    }
}

/// Where a feed begins in one group.
#[derive(Clone, Debug)]
pub struct FeedStart {
    pub group: GroupId,
    /// The rows of the group that may be of interest.
    pub range: KeyRange,
    pub position: FeedPosition,
}
