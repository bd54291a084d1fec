//! The layout of the new shards over a table's present ones: their boundaries and places, which servers can found each,
//! and which replicas are missing for that. `plan` acts on it. Decision 0024.

use std::time::{Duration, Instant};

use datum::Bytes;
use io::task;
use log::GroupId;

use crate::catalog::placement::{ShardPlaces, places_of};
use crate::config::{ServerId, ShardConfig};

/// How long the planner waits for lagging voters, if the deadline allows it. After that the other servers found the new
/// shards without them, and they copy rows that they may have already.
const LAGGING_VOTER_TIMEOUT: Duration = Duration::from_secs(5);

/// The new shards over the groups `old`.
pub(crate) struct ShardLayout {
    pub(crate) old: Vec<GroupId>,
    pub(crate) boundaries: Vec<Bytes>,
    pub(crate) places: Vec<ShardPlaces>,
    /// The places of the old groups' replicas when the layout was made, without temporary ones. If they differ later,
    /// another change has moved replicas.
    pub(crate) before: Vec<ShardPlaces>,
    /// The end of the wait for lagging voters.
    pub(crate) lag_until: Instant,
}

/// The state of a layout: its founders, and the replicas that are still missing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// For each new shard the servers that can be its founders.
    pub(crate) founders: Vec<Vec<ServerId>>,
    /// Each number of an old shard with a server that needs a ready replica of that shard, and has none or one that still
    /// copies rows.
    pub(crate) missing: Vec<(usize, ServerId)>,
    /// Whether a connected future voter of a new shard lags behind: it has voted in an old group since before the
    /// layout, and is not ready.
    pub(crate) lags: bool,
}

impl ShardLayout {
    /// The layout of a reshard that is to be ready for the seals at `deadline`.
    pub(crate) fn new(
        old: &[ShardConfig],
        boundaries: Vec<Bytes>,
        places: Vec<ShardPlaces>,
        deadline: Instant,
    ) -> ShardLayout {
        let (before, now) = (places_of(old), task::now());
        // At most half of the time left, so that there is time for the rest.
        let lag_until = now + LAGGING_VOTER_TIMEOUT.min(deadline.saturating_duration_since(now) / 2);
        let groups = old.iter().map(|shard| shard.group).collect();
        ShardLayout { old: groups, boundaries, places, before, lag_until }
    }

    /// Whether the layout was made for these shards, and no other change has moved their replicas.
    pub(crate) fn is_of(&self, old: &[ShardConfig]) -> bool {
        old.iter().map(|shard| shard.group).eq(self.old.iter().copied()) && places_of(old) == self.before
    }

    /// The state of the layout. `ready` lists for each old shard the servers whose voting replicas are up to date.
    pub(crate) fn work(
        &self,
        old: &[ShardConfig],
        ready: &[Vec<ServerId>],
        is_connected: impl Fn(ServerId) -> bool,
    ) -> Work {
        let mut work = Work { founders: Vec::new(), missing: Vec::new(), lags: false };
        for (new, place) in self.places.iter().enumerate() {
            let predecessors = predecessors_of(old, &self.boundaries, new);
            let (everywhere, missing) = founders_of(place, &predecessors, ready);
            let voted =
                |predecessor: usize, server| self.before[predecessor].replicas.contains(&(server, true));
            let late = |predecessor: usize, server| {
                voted(predecessor, server) && !ready[predecessor].contains(&server) && is_connected(server)
            };
            let mut voters = place.replicas.iter().filter(|(_, voting)| *voting);
            work.lags |=
                voters.any(|(server, _)| predecessors.iter().any(|predecessor| late(*predecessor, *server)));
            // A server that votes already needs no new replica: if the shard has other founders, its lag is waited for
            // with `lags` only.
            let can_begin = !everywhere.is_empty();
            let is_wanted = |(predecessor, server): &(usize, ServerId)| {
                is_connected(*server) && !(can_begin && voted(*predecessor, *server))
            };
            work.missing.extend(missing.into_iter().filter(is_wanted));
            work.founders.push(everywhere);
        }
        work
    }
}

/// The old shards that have keys of new shard `new`.
pub(crate) fn predecessors_of(old: &[ShardConfig], boundaries: &[Bytes], new: usize) -> Vec<usize> {
    let (start, end) = (&boundaries[new], boundaries.get(new + 1));
    let has_keys = |i: &usize| {
        end.is_none_or(|end| old[*i].start < *end) && old.get(i + 1).is_none_or(|next| next.start > *start)
    };
    (0..old.len()).filter(has_keys).collect()
}

/// The servers that can found a shard at `place` over these predecessors, and the replicas of predecessors that are
/// missing before more servers can. `ready` lists for each old shard the servers whose voting replicas are up to date.
///
/// If all predecessors have the same ready servers, nothing has to be copied first. Otherwise each future voter of the
/// new shard first gets replicas of all predecessors.
fn founders_of(
    place: &ShardPlaces,
    predecessors: &[usize],
    ready: &[Vec<ServerId>],
) -> (Vec<ServerId>, Vec<(usize, ServerId)>) {
    let Some((first, others)) = predecessors.split_first() else { return (Vec::new(), Vec::new()) };
    let has = |predecessor: &usize, server: &ServerId| ready[*predecessor].contains(server);
    let placed_without_vote = |server: &ServerId| place.replicas.contains(&(*server, false));
    let everywhere = ready[*first].iter().filter(|server| others.iter().all(|other| has(other, server)));
    let everywhere: Vec<ServerId> =
        everywhere.filter(|server| !placed_without_vote(server)).copied().collect();
    let same = others.iter().all(|other| {
        ready[*other].len() == ready[*first].len() && ready[*other].iter().all(|server| has(first, server))
    });
    let voters = place.replicas.iter().filter(|(_, voting)| *voting).map(|(server, _)| *server);
    let lacking =
        voters.flat_map(|server| predecessors.iter().map(move |predecessor| (*predecessor, server)));
    let missing = match same && !everywhere.is_empty() {
        true => Vec::new(),
        false => lacking.filter(|(predecessor, server)| !has(predecessor, server)).collect(),
    };
    (everywhere, missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::{server, shard};

    #[test]
    fn lagging_voters_are_waited_for_and_then_left_out() {
        let place = |voters: &[u64]| ShardPlaces {
            primary: server(voters[0]),
            replicas: voters.iter().map(|n| (server(*n), true)).collect(),
        };
        let servers = |those: &[u64]| those.iter().map(|n| server(*n)).collect::<Vec<_>>();
        let mut old = [shard(3, b"", &[1, 2, 3]), shard(4, b"m", &[1, 2, 3])];
        old[1].replicas[2].voting = false;
        // Merges both shards. Arguments: the future voters, the ready servers of each old shard, the connected servers.
        let work = |old: &[ShardConfig], wanted: &[u64], ready: [&[u64]; 2], connected: &[u64]| {
            let layout = ShardLayout::new(old, vec![Bytes::new()], vec![place(wanted)], task::now());
            let connected = servers(connected);
            layout.work(old, &ready.map(servers), |server| connected.contains(&server))
        };
        let done = |founders: &[u64], missing: &[(usize, u64)], lags: bool| Work {
            founders: vec![servers(founders)],
            missing: missing.iter().map(|(predecessor, n)| (*predecessor, server(*n))).collect(),
            lags,
        };
        let all = [1, 2, 3];
        assert_eq!(work(&old, &[1, 2], [&all, &all], &all), done(&all, &[], false));
        assert_eq!(work(&old, &[1, 2], [&[1], &[1]], &all), done(&[1], &[], true), "2 lags in both");
        assert_eq!(work(&old, &[1, 2], [&[1, 2], &[1]], &all), done(&[1], &[], true), "2 lags in one");
        assert_eq!(work(&old, &[1, 2], [&[1, 2], &[1]], &[1, 3]), done(&[1], &[], false), "2 is away");
        assert_eq!(work(&old, &[1], [&[1, 2], &[1]], &all), done(&[1], &[], false), "2 is not wanted");
        assert_eq!(
            work(&old, &[1, 2], [&[1], &[2]], &all),
            done(&[], &[(1, 1), (0, 2)], true),
            "no server has both"
        );
        // 3 does not vote in the second group yet, and 4 in none.
        assert_eq!(work(&old, &[1, 3], [&all, &[1, 2]], &all), done(&[1, 2], &[(1, 3)], false));
        assert_eq!(work(&old, &[1, 4], [&all, &all], &[1, 4]), done(&all, &[], false), "4 copies later");
    }
}
