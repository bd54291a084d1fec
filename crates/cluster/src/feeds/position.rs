//! Positions of feeds.

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
