//! Of which server a node reads shards that it has no replica of, where any replica will do.
//!
//! Each node asks as few servers as it can, so that more questions go the same way; and each of its own, so that
//! all replicas are read.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{ServerId, ShardConfig};

/// For each of `shards` the server that `own` reads it from; none where it has a replica itself.
///
/// Servers are taken one after the other, the one that has most of the shards that are left first, and where
/// several have as many the one that chance, which is always the same for these two servers, gives this node.
pub(crate) fn readers_of(own: ServerId, shards: &[ShardConfig]) -> Vec<Option<ServerId>> {
    let mut readers = vec![None; shards.len()];
    let mut held: BTreeMap<ServerId, Vec<usize>> = BTreeMap::new();
    for (nth, shard) in shards.iter().enumerate().filter(|(_, shard)| shard.replica_on(own).is_none()) {
        for replica in &shard.replicas {
            held.entry(replica.server).or_default().push(nth);
        }
    }
    let taken = |own: ServerId, server: ServerId| {
        let mut hasher = DefaultHasher::new();
        (own, server).hash(&mut hasher);
        hasher.finish()
    };
    loop {
        let most = held.iter().max_by_key(|(server, shards)| (shards.len(), taken(own, **server)));
        let Some((&server, shards)) = most.filter(|(_, shards)| !shards.is_empty()) else { return readers };
        let shards = shards.clone();
        shards.iter().for_each(|nth| readers[*nth] = Some(server));
        held.values_mut().for_each(|held| held.retain(|nth| !shards.contains(nth)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fixture::{server, shard};

    /// A table of a shard for each of `servers`, each with a second replica on the next one.
    fn ring(servers: u64) -> Vec<ShardConfig> {
        let shards = (0..servers).map(|nth| shard(nth, b"", &[nth, (nth + 1) % servers]));
        shards.collect()
    }

    #[test]
    fn few_servers_are_read_and_all_of_them_by_somebody() {
        let shards = ring(16);
        let mut read = vec![0; 16];
        for own in 0..16 {
            let readers = readers_of(server(own), &shards);
            for (shard, reader) in shards.iter().zip(&readers) {
                let is_here = shard.replica_on(server(own)).is_some();
                assert_eq!(reader.is_none(), is_here);
                assert!(reader.is_none_or(|reader| shard.replica_on(reader).is_some()));
            }
            let asked: BTreeSet<ServerId> = readers.iter().flatten().copied().collect();
            assert!((7..=10).contains(&asked.len()), "{own} asks {asked:?}");
            (0..16).for_each(|nth| {
                read[nth as usize] += readers.iter().filter(|r| **r == Some(server(nth))).count()
            });
        }
        // Fourteen each, if it were quite even.
        assert!(read.iter().all(|times| (5..=25).contains(times)), "{read:?}");
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
