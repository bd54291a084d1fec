//! The shards of this node, as requests of other nodes use them.

use std::sync::Arc;

use datum::{KeyRange, Text};
use reql::Cancel;
use shard::Shard;
use storage::TableId;

use crate::context::{Cx, EvalParams};
use crate::remote::{LeaderConfirmations, Response, SettingsVersion, TableRanges, Target, joined_ranges};
use crate::routing::ReadMode;
use crate::service::Service;
use crate::stream::{ShardIndexRange, ShardRange};
use crate::table::{IndexRead, KeyOrder, StoredTable, read_failed};

/// The shards of this node. Cheap to clone.
#[derive(Clone)]
pub(super) struct LocalShards {
    pub service: Arc<Service>,
}

impl LocalShards {
    pub(super) fn cx(&self, eval_params: EvalParams, cancel: Arc<Cancel>) -> Arc<Cx> {
        Cx::served(self.service.clone(), Text::from_static("admin"), eval_params, cancel)
    }

    /// The table with this id; not here while this node's catalog does not have it.
    pub(super) fn table(&self, table: TableId, mode: ReadMode) -> Response<StoredTable> {
        match self.service.node().catalog_guard().table_by_id(table) {
            Some(handle) => Response::Done(StoredTable { handle: handle.clone(), read_mode: mode }),
            None => Response::NotHere(None),
        }
    }

    /// The ranges of `part`, each opened by `make`: all of them or nothing.
    pub(super) fn open_ranges<P>(
        &self,
        part: &TableRanges,
        make: impl Fn(&StoredTable, &Shard, KeyRange) -> Response<P>,
    ) -> Response<Vec<P>> {
        self.table(part.table, part.mode).and_then(|table| {
            let mut parts = Vec::new();
            let mut confirmations = LeaderConfirmations::new(part.mode);
            let ranges = joined_ranges(&part.ranges);
            for (shard, range) in ranges.iter().flat_map(|range| table.handle.covering(range)) {
                match self.service.reader(shard, part.mode) {
                    Some(Target::Local(shard)) if !confirmations.may_read(shard) => {
                        return Response::NotHere(None);
                    }
                    Some(Target::Local(shard)) => {
                        let generation = shard.rows_generation();
                        match make(&table, shard, range) {
                            // The generation is checked afterwards: rows may have been removed while `make` ran.
                            Response::Done(_) if !shard.is_current(generation) => {
                                return Response::NotHere(None);
                            }
                            Response::Done(part) => parts.push(part),
                            Response::Failed(error) => return Response::Failed(error),
                            Response::NotHere(leader) => return Response::NotHere(leader),
                        }
                    }
                    Some(Target::Remote(server)) => return Response::NotHere(Some(server)),
                    None => return Response::NotHere(None),
                }
            }
            if part.order == KeyOrder::Descending {
                parts.reverse();
            }
            Response::Done(parts)
        })
    }

    pub(super) fn rows(&self, part: &TableRanges) -> Response<Vec<ShardRange>> {
        self.open_ranges(part, |_, shard, range| {
            ShardRange::of(shard, range).map_err(|error| read_failed(&error)).into()
        })
    }

    pub(super) fn by_index(
        &self,
        cx: &Cx,
        part: &TableRanges,
        index: &IndexRead,
    ) -> Response<Vec<ShardIndexRange>> {
        self.open_ranges(part, |table, shard, range| match shard.has_seen_index(index.id) {
            true => ShardIndexRange::of(cx, table, shard, range, index, part.order).into(),
            // This shard has not received the index yet.
            false => Response::NotHere(None),
        })
    }

    /// The version of the settings that this node has.
    pub(super) fn settings_of(&self, table: &StoredTable) -> SettingsVersion {
        SettingsVersion::of(&self.service.node().catalog_guard(), &table.handle.config)
    }
}
