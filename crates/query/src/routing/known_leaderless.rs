//! Shards that had no leader lately: queries about them fail soon.
//!
//! A shard without a quorum has no leader until it is repaired or its servers are started. The first query that meets
//! it waits for the whole lookup timeout, since an election may be under way. Later queries use a short timeout.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cluster::GroupId;
use parking_lot::Mutex;

/// How long a query looks for the leader of a shard that moves or elects one.
pub(crate) const LEADER_LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a lookup when another one has just failed.
const LEADERLESS_LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a failed lookup shortens the next ones.
const LEADERLESS_MEMORY: Duration = Duration::from_secs(30);

/// The shards whose last lookup failed, and when.
#[derive(Default)]
pub(crate) struct KnownLeaderless(Mutex<BTreeMap<GroupId, Instant>>);

impl KnownLeaderless {
    /// The timeout for a lookup of the leader of `group`; `is_led` says whether a leader is known that can be reached.
    pub fn timeout(&self, group: GroupId, is_led: bool) -> Duration {
        self.timeout_at(group, is_led, Instant::now())
    }

    /// Records that a lookup has reached its timeout, unless a leader is known now.
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
    fn a_leaderless_shard_has_a_short_timeout_until_it_has_a_leader() {
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
