//! Numbers of a node's feeds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Numbers of a node's feeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedsStats {
    /// Segments that are followed: a subscription has one for each group of its table.
    pub subscriptions: u64,
    /// Groups that are followed.
    pub groups: u64,
    /// Changes passed to subscribers so far.
    pub events: u64,
    /// How often a subscription went on in the successors of sealed groups.
    pub moves: u64,
    /// Log positions that a feed is behind its shard: the most of all feeds.
    pub lag_positions: u64,
    /// The time since a change waits for its client, or since a feed is behind its shard: the longest of all feeds.
    pub lag: Duration,
}

/// The same numbers, as the thread counts them.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) subscriptions: AtomicU64,
    pub(super) streams: AtomicU64,
    pub(super) events: AtomicU64,
    pub(super) moves: AtomicU64,
    pub(super) lag_positions: AtomicU64,
    pub(super) lag_us: AtomicU64,
}

impl Counters {
    pub(super) fn stats(&self) -> FeedsStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FeedsStats {
            subscriptions: read(&self.subscriptions),
            groups: read(&self.streams),
            events: read(&self.events),
            moves: read(&self.moves),
            lag_positions: read(&self.lag_positions),
            lag: Duration::from_micros(read(&self.lag_us)),
        }
    }
}
