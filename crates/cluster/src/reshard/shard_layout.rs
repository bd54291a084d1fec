//! Which shards there are to be over those that a table has: where they are cut and placed, who can begin each, and
//! what is missing for that. What is done about it is a `plan`. Decision 0024.

use std::time::{Duration, Instant};

use datum::Bytes;
use io::task;
use log::GroupId;

use crate::catalog::placement::{ShardPlaces, places_of};
use crate::config::{ServerId, ShardConfig};

/// How long voters that lag are waited for, if there is as much time. After that the others begin the new shards
/// without them, and they copy what they may well have.
const LAGGING_VOTER_TIMEOUT: Duration = Duration::from_secs(5);

/// Which shards there are to be over those groups.
pub(crate) struct ShardLayout {
    pub(crate) old: Vec<GroupId>,
    pub(crate) starts: Vec<Bytes>,
    pub(crate) places: Vec<ShardPlaces>,
    /// Where the replicas were when it was made, without those that are added for it: who finds others had somebody
    /// move them meanwhile.
    pub(crate) before: Vec<ShardPlaces>,
    /// Until then voters that lag are waited for.
    pub(crate) lag_until: Instant,
}

/// What is still missing for a layout.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// For each new shard who can begin it.
    pub(crate) founders: Vec<Vec<ServerId>>,
    /// By the numbers of old shards, servers that need a replica of them, or that the one they get becomes ready.
    pub(crate) missing: Vec<(usize, ServerId)>,
    /// Whether somebody who is to have a shard has voted on its rows all the time and is not ready.
    pub(crate) lags: bool,
}

impl ShardLayout {
    /// For something to be done until `deadline`.
    pub(crate) fn new(
        old: &[ShardConfig],
        starts: Vec<Bytes>,
        places: Vec<ShardPlaces>,
        deadline: Instant,
    ) -> ShardLayout {
        let (before, now) = (places_of(old), task::now());
        // Short of the deadline, so that something comes of it.
        let lag_until = now + LAGGING_VOTER_TIMEOUT.min(deadline.saturating_duration_since(now) / 2);
        let groups = old.iter().map(|shard| shard.group).collect();
        ShardLayout { old: groups, starts, places, before, lag_until }
    }

    /// Whether it was made on these shards, and nobody else has moved their replicas.
    pub(crate) fn is_of(&self, old: &[ShardConfig]) -> bool {
        old.iter().map(|shard| shard.group).eq(self.old.iter().copied()) && places_of(old) == self.before
    }

    /// What is to be done for it, where `ready` tells for each old shard whose voting replicas have everything.
    pub(crate) fn work(
        &self,
        old: &[ShardConfig],
        ready: &[Vec<ServerId>],
        is_connected: impl Fn(ServerId) -> bool,
    ) -> Work {
        let mut work = Work { founders: Vec::new(), missing: Vec::new(), lags: false };
        for (new, place) in self.places.iter().enumerate() {
            let predecessors = predecessors_of(old, &self.starts, new);
            let (everywhere, missing) = founders_of(place, &predecessors, ready);
            let voted =
                |predecessor: usize, server| self.before[predecessor].replicas.contains(&(server, true));
            let late = |predecessor: usize, server| {
                voted(predecessor, server) && !ready[predecessor].contains(&server) && is_connected(server)
            };
            let mut voters = place.replicas.iter().filter(|(_, voting)| *voting);
            work.lags |=
                voters.any(|(server, _)| predecessors.iter().any(|predecessor| late(*predecessor, *server)));
            // With others to begin it, nobody waits for long for who votes already.
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
pub(crate) fn predecessors_of(old: &[ShardConfig], starts: &[Bytes], new: usize) -> Vec<usize> {
    let (start, end) = (&starts[new], starts.get(new + 1));
    let has_keys = |i: &usize| {
        end.is_none_or(|end| old[*i].start < *end) && old.get(i + 1).is_none_or(|next| next.start > *start)
    };
    (0..old.len()).filter(has_keys).collect()
}

/// Who can found a shard at `place` over those of `predecessors`, of which `ready` tells who has everything;
/// and which replicas of those are missing so that more can.
///
/// Where all predecessors have the same replicas, nobody need copy anything first. Where they have not, those who
/// are to have the new shard get all of it before.
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
    fn voters_that_lag_are_waited_for_and_hold_nobody_up_for_long() {
        let place = |voters: &[u64]| ShardPlaces {
            primary: server(voters[0]),
            replicas: voters.iter().map(|n| (server(*n), true)).collect(),
        };
        let servers = |those: &[u64]| those.iter().map(|n| server(*n)).collect::<Vec<_>>();
        let mut old = [shard(3, b"", &[1, 2, 3]), shard(4, b"m", &[1, 2, 3])];
        old[1].replicas[2].voting = false;
        // Of one new shard for both: who is to have it, who is ready in each, who is connected.
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
            "nobody has both"
        );
        // 3 does not vote on the second yet, nor 4 on anything.
        assert_eq!(work(&old, &[1, 3], [&all, &[1, 2]], &all), done(&[1, 2], &[(1, 3)], false));
        assert_eq!(work(&old, &[1, 4], [&all, &all], &[1, 4]), done(&all, &[], false), "4 copies later");
    }
}
