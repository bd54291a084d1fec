//! Shards that nobody has led for so long that a query need not find it out again.
//!
//! A shard without a majority has no leader until somebody repairs it or starts the servers that are away.
//! The first query that meets it looks for the leader as long as any, since an election may be under way;
//! those that come after it are told much sooner.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cluster::GroupId;
use parking_lot::Mutex;

/// How long a query looks for a shard that is moving or between two leaders.
pub(crate) const SEARCH: Duration = Duration::from_secs(10);
/// How long when somebody has just looked for it in vain.
const SEARCH_AGAIN: Duration = Duration::from_secs(1);
/// For so long after that.
const JUST: Duration = Duration::from_secs(30);

/// The shards of a node that were looked for in vain, and when last.
#[derive(Default)]
pub(crate) struct Lost(Mutex<BTreeMap<GroupId, Instant>>);

impl Lost {
    /// How long it is worth looking for who leads `group`; `is_led` says whether somebody does who can be asked.
    pub fn search(&self, group: GroupId, is_led: bool) -> Duration {
        self.search_at(group, is_led, Instant::now())
    }

    /// It was looked for as long as that, in vain.
    pub fn give_up(&self, group: GroupId, is_led: bool) {
        if !is_led {
            self.0.lock().insert(group, Instant::now());
        }
    }

    fn search_at(&self, group: GroupId, is_led: bool, now: Instant) -> Duration {
        let mut lost = self.0.lock();
        match lost.get(&group) {
            Some(at) if !is_led && now.duration_since(*at) < JUST => return SEARCH_AGAIN,
            Some(_) => lost.remove(&group),
            None => None,
        };
        SEARCH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_looked_for_shortly_until_somebody_leads_it() {
        let (lost, group, now) = (Lost::default(), GroupId(7), Instant::now());
        assert_eq!(lost.search_at(group, false, now), SEARCH);
        lost.0.lock().insert(group, now);
        assert_eq!(lost.search_at(group, false, now), SEARCH_AGAIN);
        assert_eq!(lost.search_at(GroupId(8), false, now), SEARCH);
        assert_eq!(lost.search_at(group, true, now), SEARCH);
        assert_eq!(lost.search_at(group, false, now), SEARCH, "it was led meanwhile");
        lost.0.lock().insert(group, now);
        assert_eq!(lost.search_at(group, false, now + JUST), SEARCH, "that is long ago");
    }
}
