//! The handle of a table, which finds the shard of a key.

use datum::{KeyBound, KeyRange, PrimaryKey};

use super::shard_handle::ShardHandle;
use crate::config::boundaries::Boundaries;
use crate::config::{DbConfig, ShardConfig, TableConfig};

/// A table: its configuration, and the handles of its shards in key order.
pub struct TableHandle {
    /// The database it belongs to.
    pub db: DbConfig,
    /// Its configuration in this version of the catalog.
    pub config: TableConfig,
    shards: Vec<ShardHandle>,
    boundaries: Boundaries,
}

impl TableHandle {
    pub(crate) fn new(db: DbConfig, config: TableConfig, shards: Vec<ShardHandle>) -> TableHandle {
        assert_eq!(config.shards.len(), shards.len(), "every configured shard has its handle");
        let boundaries = Boundaries::of(&config.shards);
        TableHandle { db, config, shards, boundaries }
    }

    /// The same table after its database was renamed.
    pub(crate) fn renamed_db(&self, db: DbConfig) -> TableHandle {
        TableHandle::new(db, self.config.clone(), self.shards.clone())
    }

    #[must_use]
    pub fn shard(&self, key: &PrimaryKey) -> &ShardHandle {
        let after = self.boundaries.count_up_to(&self.config.shards, key.as_bytes());
        &self.shards[after.saturating_sub(1)]
    }

    /// All shards, in key order.
    #[must_use]
    pub fn shards(&self) -> &[ShardHandle] {
        &self.shards
    }

    /// The shards that `range` overlaps, in key order, each with its part of the range.
    pub fn covering<'a>(&'a self, range: &KeyRange) -> impl Iterator<Item = (&'a ShardHandle, KeyRange)> {
        let parts: Vec<_> = self
            .shards
            .iter()
            .enumerate()
            .map(|(i, shard)| (shard, range.intersect(&shard_range(&self.config.shards, i))))
            .filter(|(_, part)| !part.is_empty())
            .collect();
        parts.into_iter()
    }
}

/// The key range of shard `i` of `shards`: from its start to the start of the next.
pub(crate) fn shard_range(shards: &[ShardConfig], i: usize) -> KeyRange {
    let start = match i {
        0 => KeyBound::Unbounded,
        _ => KeyBound::Included(PrimaryKey(shards[i].start.clone())),
    };
    #[cfg(feature = "mutants")]
    let start = match start {
        KeyBound::Included(key) if log::mutant::is_active(log::mutant::Mutant::SplitWrong) => {
            KeyBound::Excluded(key)
        }
        start => start,
    };
    let end = match shards.get(i + 1) {
        None => KeyBound::Unbounded,
        Some(next) => KeyBound::Excluded(PrimaryKey(next.start.clone())),
    };
    KeyRange { start, end }
}
