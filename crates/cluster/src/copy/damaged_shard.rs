//! Which shards may have pairs in a damaged file.

use std::sync::Arc;

use engine::{DamagedFile, Engine, Space};
use log::GroupId;
use shard::{PresentRows, Shard};
use storage::TableId;

/// The keys of a shard in the engine.
pub(super) struct ShardKeys {
    pub(super) group: GroupId,
    pub(super) table: TableId,
    pub(super) shard: Arc<Shard>,
}

impl ShardKeys {
    /// Whether the shard may have pairs in the file.
    pub(super) fn may_be_in(&self, file: &DamagedFile) -> bool {
        let Some((first, last)) = &file.keys else { return false };
        match file.space {
            Some(Space::Rows) => {
                let (start, end) = storage::row_bounds(self.table, self.shard.range());
                start <= *last && end.is_none_or(|end| *first < end)
            }
            Some(Space::Index) => {
                let of = |key: &[u8]| key.get(..TableId::BYTES).map(<[u8]>::to_vec);
                let own = self.table.as_bytes().to_vec();
                of(first).is_none_or(|first| first <= own) && of(last).is_none_or(|last| own <= last)
            }
            _ => false,
        }
    }

    /// Whether the engine's key `key` is that of a row of the shard.
    pub(super) fn has_row(&self, key: &[u8]) -> bool {
        let (start, end) = storage::row_bounds(self.table, self.shard.range());
        start.as_slice() <= key && end.is_none_or(|end| key < end.as_slice())
    }
}

/// What becomes of the present rows of `shard` in a copy: rows that may be damaged cannot be compared with it.
pub(super) fn present_rows(engine: &dyn Engine, group: GroupId, shard: &Arc<Shard>) -> PresentRows {
    let Some(damage) = engine.damage().filter(|damage| !damage.is_empty()) else {
        return PresentRows::Compared;
    };
    let keys = ShardKeys { group, table: shard.table_id(), shard: Arc::clone(shard) };
    let is_in =
        |file: &DamagedFile| file.space == Some(Space::Rows) && !file.is_discarded && keys.may_be_in(file);
    match damage.list().iter().any(is_in) || damage.rows().iter().any(|(key, _)| keys.has_row(key)) {
        true => PresentRows::Replaced,
        false => PresentRows::Compared,
    }
}
