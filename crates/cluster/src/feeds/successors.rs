//! The groups that continue a sealed one.

use datum::{KeyBound, KeyRange};
use log::GroupId;

use crate::config::{SealedShard, TableConfig};
use crate::routing::shard_range;

/// Where the rows of a group are ordered after it was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// The group is a present shard of the table: it is not sealed, or its reshard is not completed yet.
    Present,
    /// It was sealed in this epoch, and these groups took over the parts of the range.
    Successors { epoch: u64, parts: Vec<(GroupId, KeyRange)> },
    /// The catalog no longer knows the group.
    Unknown,
}

/// The continuation of the part `range` of `group`.
///
/// The catalog lists the sealed groups of a table with the epochs in which they were sealed. At any key the groups follow each
/// other in the order of these epochs, and the present shard is the last.
pub(super) fn continuation(config: &TableConfig, group: GroupId, range: &KeyRange) -> Continuation {
    if config.shards.iter().any(|shard| shard.group == group) {
        return Continuation::Present;
    }
    let Some(own) = sealed(config).find(|old| old.group == group) else { return Continuation::Unknown };
    let mut later: Vec<&SealedShard> = sealed(config).filter(|old| old.epoch > own.epoch).collect();
    later.sort_by_key(|old| old.epoch);
    let present =
        config.shards.iter().enumerate().map(|(nth, shard)| (shard.group, shard_range(&config.shards, nth)));
    let later = later.into_iter().map(|old| (old.group, old.range()));
    let mut missing = vec![range.clone()];
    let mut parts = Vec::new();
    for (next, covered) in later.chain(present) {
        let mut rest = Vec::new();
        for part in missing {
            let taken = part.intersect(&covered);
            match taken.is_empty() {
                true => rest.push(part),
                false => {
                    rest.extend(without(&part, &covered));
                    parts.push((next, taken));
                }
            }
        }
        missing = rest;
    }
    Continuation::Successors { epoch: own.epoch, parts }
}

/// The parts of `range` outside of `other`, which overlaps it.
fn without(range: &KeyRange, other: &KeyRange) -> impl Iterator<Item = KeyRange> {
    let below = match &other.start {
        KeyBound::Unbounded => None,
        KeyBound::Included(key) => Some(KeyBound::Excluded(key.clone())),
        KeyBound::Excluded(key) => Some(KeyBound::Included(key.clone())),
    };
    let above = match &other.end {
        KeyBound::Unbounded => None,
        KeyBound::Included(key) => Some(KeyBound::Excluded(key.clone())),
        KeyBound::Excluded(key) => Some(KeyBound::Included(key.clone())),
    };
    let below = below.map(|end| range.intersect(&KeyRange { start: KeyBound::Unbounded, end }));
    let above = above.map(|start| range.intersect(&KeyRange { start, end: KeyBound::Unbounded }));
    below.into_iter().chain(above).filter(|part| !part.is_empty())
}

/// The sealed groups that the catalog still lists.
pub(super) fn sealed(config: &TableConfig) -> impl Iterator<Item = &SealedShard> {
    config.history.sealed.iter().chain(&config.history.past)
}

#[cfg(test)]
mod tests {
    use datum::{Bytes, PrimaryKey};

    use super::*;
    use crate::config::fixture::{shard, table};

    fn old(group: u64, start: &'static str, end: Option<&'static str>, epoch: u64) -> SealedShard {
        SealedShard {
            group: GroupId(group),
            start: Bytes::from_static(start.as_bytes()),
            end: end.map(|end| Bytes::from_static(end.as_bytes())),
            replicas: Vec::new(),
            epoch,
        }
    }

    fn range(start: &'static str, end: &'static str) -> KeyRange {
        let key = |text: &'static str| PrimaryKey(Bytes::from_static(text.as_bytes()));
        let start = if start.is_empty() { KeyBound::Unbounded } else { KeyBound::Included(key(start)) };
        let end = if end.is_empty() { KeyBound::Unbounded } else { KeyBound::Excluded(key(end)) };
        KeyRange { start, end }
    }

    fn groups(config: &TableConfig, group: u64, part: &KeyRange) -> Vec<(u64, KeyRange)> {
        match continuation(config, GroupId(group), part) {
            Continuation::Successors { parts, .. } => {
                parts.into_iter().map(|(group, range)| (group.0, range)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_group_continues_where_its_rows_went() {
        // 3 was split into 4 and 5; 5 and the later 6 were merged into 7; the present shards are 4, 7 and 8.
        let mut config = table(vec![shard(4, b"", &[1]), shard(7, b"m", &[1]), shard(8, b"x", &[1])]);
        config.history.past =
            vec![old(3, "", Some("x"), 0), old(6, "r", Some("x"), 2), old(5, "m", Some("r"), 2)];
        assert_eq!(
            groups(&config, 3, &range("", "x")),
            [(6, range("r", "x")), (5, range("m", "r")), (4, range("", "m"))]
        );
        assert_eq!(groups(&config, 5, &range("n", "o")), [(7, range("n", "o"))]);
        assert_eq!(continuation(&config, GroupId(4), &range("", "m")), Continuation::Present);
        assert_eq!(continuation(&config, GroupId(99), &range("", "m")), Continuation::Unknown);
    }
}
