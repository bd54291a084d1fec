//! Waiting for the answer of a server that may hang.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cluster::{Catalog, ServerId, ShardHandle};
use datum::{KeyRange, PrimaryKey};
use storage::TableId;

use super::request::Request;
use crate::context::Cx;
use crate::routing::{FailoverTo, ReadMode, RemoteError, ResponseSlot};
use crate::service::Service;

/// Blocks until the answer of `server` is in `slot`; if it hangs, no longer than until somebody else has what is
/// wanted of one of the shards that it was asked about.
pub(crate) fn wait(
    cx: &Cx,
    slot: &Arc<ResponseSlot>,
    server: ServerId,
    failover_to: Option<FailoverTo>,
    shards: impl FnOnce(&Catalog) -> Vec<ShardHandle>,
) -> Result<Bytes, RemoteError> {
    slot.wait_or(&cx.cancel, || {
        let Some(failover_to) = failover_to else { return };
        let shards = shards(&cx.node().catalog_guard());
        shards.iter().for_each(|shard| watch(&cx.service, slot, server, shard, failover_to));
    })
}

/// Whom reads of `mode` want; `None` when nobody else has what they want.
pub(crate) fn failover_for(mode: ReadMode) -> Option<FailoverTo> {
    match mode {
        ReadMode::Single | ReadMode::Majority => Some(FailoverTo::Leader),
        ReadMode::Outdated => Some(FailoverTo::AnyReplica),
        ReadMode::DebugDirect => None,
    }
}

/// Sees to it that nobody waits in vain for `server`, which was asked about `shard`.
pub(crate) fn watch(
    service: &Service,
    slot: &Arc<ResponseSlot>,
    server: ServerId,
    shard: &ShardHandle,
    failover_to: FailoverTo,
) {
    // There is no cursor of that number.
    let probe = |number| Request::Next { cursor: number }.to_bytes();
    service.failover.watch(slot, server, (shard, failover_to), probe);
}

/// The shards of the rows under `keys`, each once.
pub(crate) fn shards_of<'a>(
    catalog: &Catalog,
    table: TableId,
    keys: impl IntoIterator<Item = &'a PrimaryKey>,
) -> Vec<ShardHandle> {
    let Some(table) = catalog.table_by_id(table) else { return Vec::new() };
    let shards = keys.into_iter().map(|key| table.shard(key));
    let shards: BTreeMap<_, _> = shards.map(|shard| (shard.group(), shard)).collect();
    shards.into_values().cloned().collect()
}

/// The shards of `ranges`.
pub(crate) fn shards_in(catalog: &Catalog, table: TableId, ranges: &[KeyRange]) -> Vec<ShardHandle> {
    let table = catalog.table_by_id(table);
    let covering = table.into_iter().flat_map(|table| ranges.iter().flat_map(|range| table.covering(range)));
    covering.map(|(shard, _)| shard.clone()).collect()
}
