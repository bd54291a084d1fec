//! Of which server a node reads shards that it has no replica of, where any replica will do.
//!
//! Each node asks few servers, those that ask it where it has the choice, so that few links carry all requests and
//! answers, and all replicas are read about as much. For that a node works out what those before it choose, too, in an
//! order that chance gives to the servers of a table and that is the same everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{ServerId, ShardConfig};

/// For each of `shards` the server that `own` reads it from; none where it has one of the replicas itself.
///
/// Takes, on a fast core, 5 ms for 256 shards of three replicas on 64 servers and less than 0.1 ms for 32 on 16.
pub(crate) fn readers_of(own: ServerId, shards: &[ShardConfig]) -> Vec<Option<ServerId>> {
    if shards.iter().all(|shard| replicas(shard).any(|server| server == own)) {
        return vec![None; shards.len()];
    }
    let servers: BTreeSet<ServerId> = shards.iter().flat_map(replicas).collect();
    let is_among = servers.contains(&own);
    let table = shards.first().map(|shard| shard.group);
    let mut servers: Vec<ServerId> = servers.into_iter().collect();
    // How many there are without replicas is not known here: each has an order of its own.
    servers.sort_by_cached_key(|server| chance((table, (!is_among).then_some(own), server)));
    let mut readings = Readings::new(&servers, shards);
    let at = servers.iter().position(|server| *server == own);
    // Those after it do not matter to it.
    (0..at.unwrap_or(0)).for_each(|earlier| drop(readings.read_as(Some(earlier))));
    let readers = readings.read_as(at);
    readers.into_iter().map(|reader| reader.map(|reader| servers[reader])).collect()
}

/// Always the same for the same.
fn chance(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn replicas(shard: &ShardConfig) -> impl Iterator<Item = ServerId> + '_ {
    shard.replicas.iter().map(|replica| replica.server)
}

/// Who reads where, as far as it has been worked out. Servers and shards go by their places.
struct Readings {
    /// Of each shard the servers that have a replica.
    holders: Vec<Vec<usize>>,
    /// Of each server the shards that it has.
    held: Vec<Vec<usize>>,
    /// How often each server is read, counted in shards.
    reads: Vec<usize>,
    /// Of each server whom it reads.
    asks: Vec<BTreeSet<usize>>,
}

/// One server's search for those that it reads.
struct Search {
    /// Shards that nobody was found for.
    open: Vec<bool>,
    /// How many of them each server has.
    left: Vec<usize>,
}

impl Readings {
    fn new(servers: &[ServerId], shards: &[ShardConfig]) -> Readings {
        let places: BTreeMap<ServerId, usize> = servers.iter().copied().zip(0..).collect();
        let place = |server: ServerId| places.get(&server).copied();
        let holders_of = |shard| replicas(shard).filter_map(place).collect::<BTreeSet<usize>>();
        let holders: Vec<Vec<usize>> =
            shards.iter().map(|shard| holders_of(shard).into_iter().collect()).collect();
        let mut held = vec![Vec::new(); servers.len()];
        for (shard, holders) in holders.iter().enumerate() {
            holders.iter().for_each(|holder| held[*holder].push(shard));
        }
        let (reads, asks) = (vec![0; servers.len()], vec![BTreeSet::new(); servers.len()]);
        Readings { holders, held, reads, asks }
    }

    /// Whom `own` reads each shard from; `None` is a server without replicas.
    ///
    /// Servers are taken one after the other: the one with most of the shards that are left, and of several the one
    /// that leaves the others least to choose from, that is read least, and that reads `own`.
    fn read_as(&mut self, own: Option<usize>) -> Vec<Option<usize>> {
        let mut readers = vec![None; self.holders.len()];
        let is_open = |holders: &Vec<usize>| own.is_none_or(|own| !holders.contains(&own));
        let open: Vec<bool> = self.holders.iter().map(is_open).collect();
        let left = self.held.iter().map(|held| held.iter().filter(|shard| open[**shard]).count()).collect();
        let mut search = Search { open, left };
        while let Some(taken) = self.next(own, &search) {
            let shards: Vec<usize> =
                self.held[taken].iter().copied().filter(|shard| search.open[*shard]).collect();
            self.reads[taken] += shards.len();
            for shard in shards {
                readers[shard] = Some(taken);
                search.open[shard] = false;
                self.holders[shard].iter().for_each(|holder| search.left[*holder] -= 1);
            }
            if let Some(own) = own {
                self.asks[own].insert(taken);
            }
        }
        readers
    }

    fn next(&self, own: Option<usize>, search: &Search) -> Option<usize> {
        let most = search.left.iter().copied().max().filter(|most| *most > 0)?;
        let candidates = (0..search.left.len()).filter(|server| search.left[*server] == most);
        candidates.min_by_key(|server| {
            let is_mutual = own.is_some_and(|own| self.asks[*server].contains(&own));
            (self.left_to_rivals(*server, search), self.reads[*server], !is_mutual)
        })
    }

    /// How many shards would be left with those who have the same as `server`.
    fn left_to_rivals(&self, server: usize, search: &Search) -> usize {
        let shards = self.held[server].iter().filter(|shard| search.open[**shard]);
        let rivals = shards.flat_map(|shard| &self.holders[*shard]).filter(|rival| **rival != server);
        rivals.map(|rival| search.left[*rival] - 1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::{server, shard};

    /// Whom each of `servers` asks.
    fn asked(servers: u64, shards: &[ShardConfig]) -> Vec<BTreeSet<ServerId>> {
        let asked = (0..servers).map(|own| readers_of(server(own), shards).into_iter().flatten().collect());
        asked.collect()
    }

    /// How many shards are read from each of `servers` by the others.
    fn reads(servers: u64, shards: &[ShardConfig]) -> Vec<usize> {
        reads_by(servers, servers, &[shards.to_vec()])
    }

    fn is_mutual(asked: &[BTreeSet<ServerId>]) -> bool {
        let all = || (0_u64..).zip(asked);
        all().all(|(own, of)| {
            all().all(|(other, by)| of.contains(&server(other)) == by.contains(&server(own)))
        })
    }

    /// A table of a shard for each of `servers`, each with a second replica on the next one. They stand in another
    /// order than their ids.
    fn ring(servers: u64) -> Vec<ShardConfig> {
        let place = |nth: u64| nth * 11 % servers;
        let shards = (0..servers).map(|nth| shard(nth, b"", &[place(nth), place((nth + 1) % servers)]));
        shards.collect()
    }

    #[test]
    fn each_reads_where_a_replica_is_and_not_what_it_has() {
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
    fn in_a_ring_every_other_server_is_asked_and_asks() {
        for servers in [4, 8, 12, 16] {
            let shards = ring(servers);
            let asked = asked(servers, &shards);
            assert!(asked.iter().all(|of| of.len() as u64 == servers / 2 - 1), "{asked:?}");
            assert!(is_mutual(&asked), "{asked:?}");
            assert!(reads(servers, &shards).iter().all(|times| *times as u64 == servers - 2));
        }
    }

    #[test]
    fn of_two_that_have_the_same_one_is_asked() {
        let pair = |nth: u64| [nth & !1, nth | 1];
        let shards: Vec<ShardConfig> = (0..16).map(|nth| shard(nth, b"", &pair(nth))).collect();
        let asked = asked(16, &shards);
        assert!(asked.iter().all(|of| of.len() == 7), "{asked:?}");
        assert_eq!(reads(16, &shards), [14; 16]);
    }

    #[test]
    fn where_it_cannot_be_quite_even_it_nearly_is() {
        for servers in [3, 5, 7, 9] {
            let reads = reads(servers, &ring(servers));
            let spread = reads.iter().max().unwrap() - reads.iter().min().unwrap();
            assert!(spread <= 2, "{servers}: {reads:?}");
        }
    }

    /// How many shards are read from each of the servers below `servers`, by those below `readers`.
    fn reads_by(readers: u64, servers: u64, tables: &[Vec<ShardConfig>]) -> Vec<usize> {
        let by = |shards: &Vec<ShardConfig>| {
            (0..readers).flat_map(|own| readers_of(server(own), shards)).collect()
        };
        let all: Vec<Option<ServerId>> = tables.iter().flat_map(|shards| -> Vec<_> { by(shards) }).collect();
        (0..servers).map(|nth| all.iter().filter(|reader| **reader == Some(server(nth))).count()).collect()
    }

    #[test]
    fn those_without_replicas_do_not_all_read_from_the_same() {
        let one = vec![shard(1, b"", &[0, 1, 2])];
        let reads = reads_by(200, 3, &[one]);
        assert!(reads.iter().all(|times| (40..=90).contains(times)), "{reads:?}");
        let reads = reads_by(200, 8, &[ring(8)]);
        assert!(reads.iter().all(|times| (150..=250).contains(times)), "{reads:?}");
    }

    #[test]
    fn of_many_tables_no_server_is_always_the_first() {
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
    fn a_replica_that_is_named_twice_does_no_harm() {
        let shards = [shard(1, b"", &[1, 1]), shard(2, b"", &[1, 2])];
        assert_eq!(readers_of(server(3), &shards), [Some(server(1)), Some(server(1))]);
        assert_eq!(readers_of(server(2), &shards), [Some(server(1)), None]);
    }

    #[test]
    fn who_has_no_replica_reads_every_shard_somewhere() {
        let readers = readers_of(server(99), &ring(5));
        assert!(readers.iter().all(Option::is_some));
        assert!(readers_of(server(99), &[shard(1, b"", &[4])]) == [Some(server(4))]);
        // A table that was written before there were several servers.
        let mut old = shard(1, b"", &[4]);
        old.replicas.clear();
        assert_eq!(readers_of(server(99), &[old]), [None]);
    }
}
