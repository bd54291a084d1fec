//! Blocking for the response of a server that may hang.

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

/// Blocks until `slot` has the response of `server`. If the server hangs, the call ends once another server qualifies
/// for one of the shards.
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
        shards.iter().for_each(|shard| watch_for_failover(&cx.service, slot, server, shard, failover_to));
    })
}

/// Which servers qualify for reads of `mode`; `None` when no other server does.
pub(crate) fn failover_for(mode: ReadMode) -> Option<FailoverTo> {
    match mode {
        ReadMode::Single | ReadMode::Majority => Some(FailoverTo::Leader),
        ReadMode::Outdated => Some(FailoverTo::AnyReplica),
        ReadMode::DebugDirect => None,
    }
}

/// Watches the call to `server` about `shard`, so that it fails if the server hangs.
pub(crate) fn watch_for_failover(
    service: &Service,
    slot: &Arc<ResponseSlot>,
    server: ServerId,
    shard: &ShardHandle,
    failover_to: FailoverTo,
) {
    // No cursor has this number.
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

pub(crate) fn shards_in(catalog: &Catalog, table: TableId, ranges: &[KeyRange]) -> Vec<ShardHandle> {
    let table = catalog.table_by_id(table);
    let covering = table.into_iter().flat_map(|table| ranges.iter().flat_map(|range| table.covering(range)));
    covering.map(|(shard, _)| shard.clone()).collect()
}
