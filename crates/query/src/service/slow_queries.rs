//! The slowest queries of the last hour that have ended, as the system table `_slow_queries` shows them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use datum::{Datum, Text};
use parking_lot::Mutex;
use uuid::Uuid;

use super::client::Client;

/// Queries that took less are not listed.
pub(crate) const SLOW_MIN: Duration = Duration::from_millis(10);
/// How long queries are listed.
const LISTED: Duration = Duration::from_secs(3600);
/// The hour is divided into parts of this length; the slowest queries of each are kept.
const PART: Duration = Duration::from_secs(300);
/// Queries that are kept of each part.
const OF_A_PART_MAX: usize = 20;

/// A query that has ended.
#[derive(Clone, Debug)]
pub(crate) struct SlowQuery {
    pub id: Uuid,
    pub client: Arc<Client>,
    pub query: Text,
    /// When it ended, since 1970.
    pub ended: Duration,
    /// How long it ran, without the time in which its cursor waited for the client.
    pub took: Duration,
    /// The result of `explain`.
    pub plan: Datum,
}

/// The slowest queries of a node.
#[derive(Debug, Default)]
pub(crate) struct SlowQueries {
    parts: Mutex<VecDeque<Part>>,
    /// A query of the present part that took less is not kept, in nanoseconds.
    fastest_kept: AtomicU64,
}

#[derive(Debug)]
struct Part {
    began: Duration,
    /// The slowest first.
    queries: Vec<SlowQuery>,
}

impl SlowQueries {
    /// Whether a query that took this long may be kept. Reads one number.
    pub fn may_keep(&self, took: Duration) -> bool {
        took >= SLOW_MIN && nanos(took) >= self.fastest_kept.load(Ordering::Relaxed)
    }

    /// Keeps a query if it is one of the slowest of its part of the hour.
    pub fn add(&self, query: SlowQuery) {
        let mut parts = self.parts.lock();
        if parts.back().is_none_or(|part| query.ended >= part.began + PART) {
            parts.push_back(Part { began: query.ended, queries: Vec::new() });
        }
        parts.retain(|part| part.began + PART + LISTED > query.ended);
        let Some(part) = parts.back_mut() else { return };
        let place = part.queries.partition_point(|known| known.took >= query.took);
        part.queries.insert(place, query);
        part.queries.truncate(OF_A_PART_MAX);
        let is_full = part.queries.len() == OF_A_PART_MAX;
        let fastest = part.queries.last().filter(|_| is_full).map_or(0, |query| nanos(query.took));
        self.fastest_kept.store(fastest, Ordering::Relaxed);
    }

    /// The kept queries that ended in the hour before `now`, in no order. A later part begins with an empty list.
    pub fn list(&self, now: Duration) -> Vec<SlowQuery> {
        let parts = self.parts.lock();
        if parts.back().is_none_or(|part| now >= part.began + PART) {
            self.fastest_kept.store(0, Ordering::Relaxed);
        }
        let queries = parts.iter().flat_map(|part| &part.queries);
        queries.filter(|query| query.ended + LISTED > now).cloned().collect()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    fn query(ended_secs: u64, took_ms: u64) -> SlowQuery {
        let client = Client { user: "bob".into(), address: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1) };
        SlowQuery {
            id: Uuid::nil(),
            client: Arc::new(client),
            query: "r(1)".into(),
            ended: Duration::from_secs(ended_secs),
            took: Duration::from_millis(took_ms),
            plan: Datum::Null,
        }
    }

    fn listed(queries: &SlowQueries, now: u64) -> Vec<u128> {
        let mut times: Vec<u128> =
            queries.list(Duration::from_secs(now)).iter().map(|query| query.took.as_millis()).collect();
        times.sort_unstable();
        times
    }

    #[test]
    fn the_slowest_of_each_part_are_kept_for_an_hour() {
        let queries = SlowQueries::default();
        assert!(!queries.may_keep(Duration::from_millis(9)) && queries.may_keep(Duration::from_millis(10)));
        (1..=30).for_each(|n| queries.add(query(100, n * 10)));
        assert_eq!(listed(&queries, 101), (11..=30).map(|n| n * 10).collect::<Vec<_>>());
        assert!(!queries.may_keep(Duration::from_millis(100)));
        assert!(queries.may_keep(Duration::from_millis(111)));
        queries.add(query(500, 10));
        assert!(queries.may_keep(Duration::from_millis(10)), "another part has room");
        assert_eq!(listed(&queries, 501).len(), 21);
        assert_eq!(listed(&queries, 3_701), [10]);
        queries.add(query(10_000, 20));
        assert_eq!(listed(&queries, 10_000), [20]);
    }

    #[test]
    fn another_part_begins_without_a_bound() {
        let queries = SlowQueries::default();
        (0..20).for_each(|_| queries.add(query(100, 1_000)));
        assert!(!queries.may_keep(Duration::from_millis(500)));
        assert_eq!(queries.list(Duration::from_secs(500)).len(), 20);
        assert!(queries.may_keep(Duration::from_millis(500)));
    }
}
