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
pub(crate) const LEADER_LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long when somebody has just looked for it in vain.
const LEADERLESS_LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// For so long after that.
const LEADERLESS_MEMORY: Duration = Duration::from_secs(30);

/// The shards of a node that were looked for in vain, and when last.
#[derive(Default)]
pub(crate) struct KnownLeaderless(Mutex<BTreeMap<GroupId, Instant>>);

impl KnownLeaderless {
    /// How long it is worth looking for who leads `group`; `is_led` says whether somebody does who can be asked.
    pub fn timeout(&self, group: GroupId, is_led: bool) -> Duration {
        self.timeout_at(group, is_led, Instant::now())
    }

    /// It was looked for as long as that, in vain.
    pub fn note_failed_lookup(&self, group: GroupId, is_led: bool) {
        if !is_led {
            self.0.lock().insert(group, Instant::now());
        }
    }

    fn timeout_at(&self, group: GroupId, is_led: bool, now: Instant) -> Duration {
        let mut known = self.0.lock();
        match known.get(&group) {
            Some(at) if !is_led && now.duration_since(*at) < LEADERLESS_MEMORY => {
                return LEADERLESS_LOOKUP_TIMEOUT;
            }
            Some(_) => known.remove(&group),
            None => None,
        };
        LEADER_LOOKUP_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_looked_for_shortly_until_somebody_leads_it() {
        let (known, group, now) = (KnownLeaderless::default(), GroupId(7), Instant::now());
        assert_eq!(known.timeout_at(group, false, now), LEADER_LOOKUP_TIMEOUT);
        known.0.lock().insert(group, now);
        assert_eq!(known.timeout_at(group, false, now), LEADERLESS_LOOKUP_TIMEOUT);
        assert_eq!(known.timeout_at(GroupId(8), false, now), LEADER_LOOKUP_TIMEOUT);
        assert_eq!(known.timeout_at(group, true, now), LEADER_LOOKUP_TIMEOUT);
        assert_eq!(known.timeout_at(group, false, now), LEADER_LOOKUP_TIMEOUT, "it was led meanwhile");
        known.0.lock().insert(group, now);
        assert_eq!(
            known.timeout_at(group, false, now + LEADERLESS_MEMORY),
            LEADER_LOOKUP_TIMEOUT,
            "that is long ago"
        );
    }
}
