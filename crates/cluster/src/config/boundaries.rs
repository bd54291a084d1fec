//! The keys at which a table's shards start.

use datum::{Bytes, Datum, PrimaryKey};

use super::ShardConfig;

/// The most shards one table may have.
pub(crate) const SHARDS_MAX: usize = 256;

/// Start keys for `shards` shards of a table without rows: the first is empty, the others divide the space of generated
/// keys (UUIDs, as hexadecimal text) evenly.
pub(crate) fn even_boundaries(shards: usize) -> Vec<Bytes> {
    (0..shards)
        .map(|i| match i {
            0 => Bytes::new(),
            _ => hex_key(i, shards),
        })
        .collect()
}

fn hex_key(i: usize, shards: usize) -> Bytes {
    let point = i * 0x1_0000 / shards;
    let key =
        PrimaryKey::encode(&Datum::from(format!("{point:04x}"))).expect("invariant: four digits fit a key");
    Bytes::copy_from_slice(key.as_bytes())
}

/// The first eight bytes of the start key of each shard, in one array: a lookup of a key touches a few cache lines, and
/// compares whole start keys only where the first eight bytes are equal.
pub(crate) struct Boundaries(Box<[u64]>);

impl Boundaries {
    /// The boundaries of `shards`, which are in key order.
    pub(crate) fn of(shards: &[ShardConfig]) -> Boundaries {
        Boundaries(shards.iter().map(|shard| prefix_number(&shard.start)).collect())
    }

    /// How many of `shards` start at `key` or before it. `shards` are the shards given to [`Boundaries::of`].
    pub(crate) fn count_up_to(&self, shards: &[ShardConfig], key: &[u8]) -> usize {
        let prefix = prefix_number(key);
        let before = self.0.partition_point(|start| *start < prefix);
        let equal = self.0[before..].partition_point(|start| *start == prefix);
        before + shards[before..before + equal].partition_point(|shard| shard.start.as_ref() <= key)
    }
}

/// The first eight bytes of a key as a number. Of two keys, the one that sorts first never has the greater number.
fn prefix_number(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let bytes = key.len().min(first.len());
    first[..bytes].copy_from_slice(&key[..bytes]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use log::GroupId;
    use uuid::Uuid;

    use super::*;
    use crate::config::ServerId;

    fn shard(start: &[u8]) -> ShardConfig {
        ShardConfig {
            group: GroupId(1),
            start: Bytes::copy_from_slice(start),
            replicas: Vec::new(),
            leaving: Vec::new(),
            temporary: Vec::new(),
            primary: ServerId(Uuid::nil()),
            founders: Vec::new(),
        }
    }

    #[test]
    fn start_keys_ascend_and_the_first_is_empty() {
        for shards in [1, 2, 3, 16, 256] {
            let starts = even_boundaries(shards);
            assert_eq!(starts.len(), shards);
            assert!(starts[0].is_empty());
            assert!(starts.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn a_lookup_finds_the_same_shard_as_comparing_whole_start_keys() {
        let keys: [&[u8]; 14] = [
            b"",
            b"\0",
            b"a",
            b"a\0",
            b"abcdefg",
            b"abcdefg\0",
            b"abcdefgh",
            b"abcdefgh\0",
            b"abcdefghi",
            b"abcdefgi",
            b"b",
            b"b\xff\xff\xff\xff\xff\xff\xff",
            b"b\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        // Each set of start keys is a subset of the keys, and always has the first.
        for chosen in 0..1 << (keys.len() - 1) {
            let is_chosen = |i: &usize| *i == 0 || chosen >> (i - 1) & 1 == 1;
            let shards: Vec<_> = (0..keys.len()).filter(is_chosen).map(|i| shard(keys[i])).collect();
            let starts = Boundaries::of(&shards);
            for key in keys {
                let expected = shards.iter().filter(|shard| shard.start.as_ref() <= key).count();
                assert_eq!(starts.count_up_to(&shards, key), expected, "{key:?} among {chosen:b}");
            }
        }
    }
}
