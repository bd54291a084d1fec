//! Chooses the servers from which a node reads the shards that it has no replica of, for reads that any replica can serve.
//!
//! Each node reads from few servers, and prefers servers that read from it, so that few links carry all requests and
//! responses. All replicas are read about equally often. To get there, a node also computes the choices of the servers
//! before it, in a pseudorandom order of the table's servers that is the same on every node.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{ServerId, ShardConfig};

/// The server that `own` reads each of `shards` from; `None` for a shard that it has a replica of.
///
/// On a fast core this takes 5 ms for 256 shards of three replicas on 64 servers, and less than 0.1 ms for 32 shards on
/// 16 servers.
pub(crate) fn readers_of(own: ServerId, shards: &[ShardConfig]) -> Vec<Option<ServerId>> {
    if shards.iter().all(|shard| replicas(shard).any(|server| server == own)) {
        return vec![None; shards.len()];
    }
    let servers: BTreeSet<ServerId> = shards.iter().flat_map(replicas).collect();
    let has_replica = servers.contains(&own);
    let table = shards.first().map(|shard| shard.group);
    let mut servers: Vec<ServerId> = servers.into_iter().collect();
    // The number of servers without replicas is unknown here, so each of them uses a different order.
    servers.sort_by_cached_key(|server| hash_of((table, (!has_replica).then_some(own), server)));
    let mut assignments = Assignments::new(&servers, shards);
    let at = servers.iter().position(|server| *server == own);
    // The choices of servers after `own` in the order do not affect its choice.
    (0..at.unwrap_or(0)).for_each(|earlier| drop(assignments.assign(Some(earlier))));
    let readers = assignments.assign(at);
    readers.into_iter().map(|reader| reader.map(|reader| servers[reader])).collect()
}

/// A hash that is the same on every node.
fn hash_of(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn replicas(shard: &ShardConfig) -> impl Iterator<Item = ServerId> + '_ {
    shard.replicas.iter().map(|replica| replica.server)
}

/// The choices computed so far. Servers and shards are identified by index.
struct Assignments {
    /// For each shard, the servers with a replica.
    holders: Vec<Vec<usize>>,
    /// For each server, the shards that it has a replica of.
    held: Vec<Vec<usize>>,
    /// For each server, how many reads of a shard were assigned to it.
    reads: Vec<usize>,
    /// For each server, the servers that it reads from.
    reads_from: Vec<BTreeSet<usize>>,
}

/// The state of the choice for one server.
struct Choice {
    /// For each shard, whether no server was chosen for it yet.
    open: Vec<bool>,
    /// For each server, how many open shards it has a replica of.
    left: Vec<usize>,
}

impl Assignments {
    fn new(servers: &[ServerId], shards: &[ShardConfig]) -> Assignments {
        let places: BTreeMap<ServerId, usize> = servers.iter().copied().zip(0..).collect();
        let place = |server: ServerId| places.get(&server).copied();
        let holders_of = |shard| replicas(shard).filter_map(place).collect::<BTreeSet<usize>>();
        let holders: Vec<Vec<usize>> =
            shards.iter().map(|shard| holders_of(shard).into_iter().collect()).collect();
        let mut held = vec![Vec::new(); servers.len()];
        for (shard, holders) in holders.iter().enumerate() {
            holders.iter().for_each(|holder| held[*holder].push(shard));
        }
        let (reads, reads_from) = (vec![0; servers.len()], vec![BTreeSet::new(); servers.len()]);
        Assignments { holders, held, reads, reads_from }
    }

    /// Chooses the server that `own` reads each shard from; `own` is `None` for a server without replicas.
    ///
    /// Greedy: repeatedly chooses the server with a replica of the most open shards. Ties are broken by the fewest open
    /// shards that the other holders would keep, then by the fewest reads so far, then in favor of a server that reads
    /// from `own`.
    fn assign(&mut self, own: Option<usize>) -> Vec<Option<usize>> {
        let mut readers = vec![None; self.holders.len()];
        let is_open = |holders: &Vec<usize>| own.is_none_or(|own| !holders.contains(&own));
        let open: Vec<bool> = self.holders.iter().map(is_open).collect();
        let left = self.held.iter().map(|held| held.iter().filter(|shard| open[**shard]).count()).collect();
        let mut choice = Choice { open, left };
        while let Some(chosen) = self.next(own, &choice) {
            let shards: Vec<usize> =
                self.held[chosen].iter().copied().filter(|shard| choice.open[*shard]).collect();
            self.reads[chosen] += shards.len();
            for shard in shards {
                readers[shard] = Some(chosen);
                choice.open[shard] = false;
                self.holders[shard].iter().for_each(|holder| choice.left[*holder] -= 1);
            }
            if let Some(own) = own {
                self.reads_from[own].insert(chosen);
            }
        }
        readers
    }

    fn next(&self, own: Option<usize>, choice: &Choice) -> Option<usize> {
        let most = choice.left.iter().copied().max().filter(|most| *most > 0)?;
        let candidates = (0..choice.left.len()).filter(|server| choice.left[*server] == most);
        candidates.min_by_key(|server| {
            let is_mutual = own.is_some_and(|own| self.reads_from[*server].contains(&own));
            (self.alternatives_left(*server, choice), self.reads[*server], !is_mutual)
        })
    }

    /// How many open shards would be left at the other servers with replicas of the open shards of `server`.
    fn alternatives_left(&self, server: usize, choice: &Choice) -> usize {
        let shards = self.held[server].iter().filter(|shard| choice.open[**shard]);
        let others = shards.flat_map(|shard| &self.holders[*shard]).filter(|other| **other != server);
        others.map(|other| choice.left[*other] - 1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::{server, shard};

    fn read_from(servers: u64, shards: &[ShardConfig]) -> Vec<BTreeSet<ServerId>> {
        let read_from =
            (0..servers).map(|own| readers_of(server(own), shards).into_iter().flatten().collect());
        read_from.collect()
    }

    /// The number of shards that the other servers read from each of `servers`.
    fn reads(servers: u64, shards: &[ShardConfig]) -> Vec<usize> {
        reads_by(servers, servers, &[shards.to_vec()])
    }

    fn is_mutual(read_from: &[BTreeSet<ServerId>]) -> bool {
        let all = || (0_u64..).zip(read_from);
        all().all(|(own, of)| {
            all().all(|(other, by)| of.contains(&server(other)) == by.contains(&server(own)))
        })
    }

    /// A table with one shard for each of `servers`, each with a second replica on the next server in the ring. The
    /// ring has another order than the ids.
    fn ring(servers: u64) -> Vec<ShardConfig> {
        let place = |nth: u64| nth * 11 % servers;
        let shards = (0..servers).map(|nth| shard(nth, b"", &[place(nth), place((nth + 1) % servers)]));
        shards.collect()
    }

    #[test]
    fn a_node_reads_only_shards_that_it_has_no_replica_of_and_only_from_holders() {
        for shards in [ring(16), ring(5), ring(3)] {
            for own in 0..16 {
                for (shard, reader) in shards.iter().zip(readers_of(server(own), &shards)) {
                    let is_here = shard.replica_on(server(own)).is_some();
                    assert_eq!(reader.is_none(), is_here);
                    assert!(reader.is_none_or(|reader| shard.replica_on(reader).is_some()));
                }
            }
        }
    }

    #[test]
    fn in_a_ring_each_server_reads_from_about_half_of_the_servers_and_mutually() {
        for servers in [4, 8, 12, 16] {
            let shards = ring(servers);
            let read_from = read_from(servers, &shards);
            assert!(read_from.iter().all(|of| of.len() as u64 == servers / 2 - 1), "{read_from:?}");
            assert!(is_mutual(&read_from), "{read_from:?}");
            assert!(reads(servers, &shards).iter().all(|times| *times as u64 == servers - 2));
        }
    }

    #[test]
    fn of_two_servers_with_the_same_shards_one_is_read() {
        let pair = |nth: u64| [nth & !1, nth | 1];
        let shards: Vec<ShardConfig> = (0..16).map(|nth| shard(nth, b"", &pair(nth))).collect();
        let read_from = read_from(16, &shards);
        assert!(read_from.iter().all(|of| of.len() == 7), "{read_from:?}");
        assert_eq!(reads(16, &shards), [14; 16]);
    }

    #[test]
    fn an_uneven_ring_is_read_almost_evenly() {
        for servers in [3, 5, 7, 9] {
            let reads = reads(servers, &ring(servers));
            let spread = reads.iter().max().unwrap() - reads.iter().min().unwrap();
            assert!(spread <= 2, "{servers}: {reads:?}");
        }
    }

    /// The number of shards that the servers below `readers` read from each of the servers below `servers`.
    fn reads_by(readers: u64, servers: u64, tables: &[Vec<ShardConfig>]) -> Vec<usize> {
        let by = |shards: &Vec<ShardConfig>| {
            (0..readers).flat_map(|own| readers_of(server(own), shards)).collect()
        };
        let all: Vec<Option<ServerId>> = tables.iter().flat_map(|shards| -> Vec<_> { by(shards) }).collect();
        (0..servers).map(|nth| all.iter().filter(|reader| **reader == Some(server(nth))).count()).collect()
    }

    #[test]
    fn servers_without_replicas_spread_their_reads() {
        let one = vec![shard(1, b"", &[0, 1, 2])];
        let reads = reads_by(200, 3, &[one]);
        assert!(reads.iter().all(|times| (40..=90).contains(times)), "{reads:?}");
        let reads = reads_by(200, 8, &[ring(8)]);
        assert!(reads.iter().all(|times| (150..=250).contains(times)), "{reads:?}");
    }

    #[test]
    fn reads_of_many_tables_are_spread_over_all_servers() {
        let table = |nth: u64| (0..3).map(move |at| shard(10 * nth + at, b"", &[at, at + 1, (at + 2) % 4]));
        let tables: Vec<Vec<ShardConfig>> = (0..100).map(|nth| table(nth).collect()).collect();
        let one: Vec<Vec<ShardConfig>> = (0..100).map(|nth| vec![shard(nth, b"", &[0, 1, 2])]).collect();
        let [several, one] = [tables, one].map(|tables| reads_by(4, 4, &tables));
        let bounds = |reads: &[usize]| (*reads.iter().min().unwrap(), *reads.iter().max().unwrap());
        assert_eq!(several.iter().sum::<usize>(), 300);
        assert!(bounds(&several).0 >= 40, "{several:?}");
        assert!(bounds(&one[..3]).0 >= 20 && one[3] == 0, "{one:?}");
    }

    #[test]
    fn a_server_that_is_listed_twice_is_handled() {
        let shards = [shard(1, b"", &[1, 1]), shard(2, b"", &[1, 2])];
        assert_eq!(readers_of(server(3), &shards), [Some(server(1)), Some(server(1))]);
        assert_eq!(readers_of(server(2), &shards), [Some(server(1)), None]);
    }

    #[test]
    fn a_server_without_replicas_reads_every_shard() {
        let readers = readers_of(server(99), &ring(5));
        assert!(readers.iter().all(Option::is_some));
        assert!(readers_of(server(99), &[shard(1, b"", &[4])]) == [Some(server(4))]);
        // A table row of a version that had only one server.
        let mut old = shard(1, b"", &[4]);
        old.replicas.clear();
        assert_eq!(readers_of(server(99), &[old]), [None]);
    }
}
