//! Followers of a stream that begin at a position to which the stream has not come yet.
//!
//! Most of them begin at the leader's end of the history and follow a replica that is a moment behind. But the entry at such
//! a position may also have been taken by a power loss. Then other entries come in its place, or none.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use shard::HistoryPosition;

use super::followers::{Follower, Followers};

/// How long a follower waits until the stream comes to its position.
const AHEAD_MAX: Duration = Duration::from_secs(1);

/// The positions at which such followers begin.
#[derive(Default)]
pub(super) struct Ahead {
    /// Each with the time since which a follower waits there.
    starts: BTreeMap<HistoryPosition, Instant>,
    /// Followers at whose position the stream has another entry. They receive no changes of it.
    misplaced: Vec<Follower>,
}

impl Ahead {
    /// Notes that a follower begins at `start`.
    pub(super) fn add(&mut self, start: HistoryPosition, now: Instant) {
        self.starts.entry(start).or_insert(now);
    }

    /// Notes that the stream comes to `at`, before the entry there is passed to followers. Followers whose position the stream
    /// has left behind are removed from them.
    pub(super) fn come_to(&mut self, at: HistoryPosition, followers: &mut Followers) {
        while let Some(first) = self.starts.first_entry().filter(|first| first.key().lsn <= at.lsn) {
            let (start, _) = first.remove_entry();
            if start != at {
                self.misplaced.extend(followers.extract(|follower| follower.start.entry == start));
            }
        }
    }

    /// Removes and returns the followers at whose position the stream has another entry.
    pub(super) fn take_misplaced(&mut self) -> Vec<Follower> {
        std::mem::take(&mut self.misplaced)
    }

    /// Removes and returns the followers that have waited too long.
    pub(super) fn take_late(&mut self, followers: &mut Followers, now: Instant) -> Vec<Follower> {
        let has_waited = |since: &Instant| now - *since > AHEAD_MAX;
        if !self.starts.values().any(has_waited) {
            return Vec::new();
        }
        let starts = std::mem::take(&mut self.starts);
        let (late, others): (BTreeMap<_, _>, _) =
            starts.into_iter().partition(|(_, since)| has_waited(since));
        self.starts = others;
        followers.extract(|follower| late.contains_key(&follower.start.entry))
    }
}
