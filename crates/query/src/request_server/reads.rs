//! Requests that read: rows by their keys, counts, and aggregates.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cluster::Catalog;
use datum::{Datum, Object, PrimaryKey, row};
use reql::codec::{Codec, Packer};
use reql::{Cancel, Pipeline};
use shard::{ReadError, Shard};
use storage::{Reach, TableId};

use super::local_shards::LocalShards;
use crate::context::EvalParams;
use crate::remote;
use crate::remote::{LeaderConfirmations, Response, TableRanges, Target};
use crate::routing::ReadMode;
use crate::stream::{LocalRows, ShardIndexRange, ShardRange, names_few};
use crate::table::read_failed;

/// The response with the rows under `keys`. `None` if they are not all in memory.
pub(super) fn get_in_memory(
    shards: &LocalShards,
    table: TableId,
    mode: ReadMode,
    keys: &[PrimaryKey],
) -> Option<Bytes> {
    let catalog = shards.service.node().catalog_guard();
    let placed = match place(shards, &catalog, table, mode, keys) {
        Response::Done(placed) => placed,
        other => return Some(other.to_bytes(|_, _| ())),
    };
    let mut found = RowsResponse::new(keys.len());
    for (shard, key) in placed {
        match shard.with_row(key, Reach::Memory, |row| found.add(row)) {
            Ok(()) => {}
            Err(error) if error.needs_disk() => return None,
            Err(error) => return Some(unread(&error)),
        }
    }
    shards.service.counters().rows_read.fetch_add(keys.len() as u64, Ordering::Relaxed);
    Some(found.finish())
}

/// As [`get_in_memory`], on a thread that may wait for the disk. Other threads help it to read.
pub(super) fn get_from_disk(
    shards: &LocalShards,
    table: TableId,
    mode: ReadMode,
    keys: &[PrimaryKey],
) -> Bytes {
    let service = &shards.service;
    service.counters().from_disk.fetch_add(1, Ordering::Relaxed);
    let placed = {
        let catalog = service.node().catalog_guard();
        match place(shards, &catalog, table, mode, keys) {
            Response::Done(placed) => {
                placed.into_iter().map(|(shard, key)| (shard.clone(), key.clone())).collect::<Vec<_>>()
            }
            other => return other.to_bytes(|_, _| ()),
        }
    };
    let parts = service.readers.read_parts(placed, |part: Vec<(Arc<Shard>, PrimaryKey)>| {
        part.into_iter().map(|(shard, key)| shard.get(&key)).collect::<Result<Vec<_>, _>>()
    });
    let mut found = RowsResponse::new(keys.len());
    for rows in parts {
        match rows {
            Ok(rows) => rows.iter().for_each(|row| found.add(row.as_ref())),
            Err(error) => return unread(&error),
        }
    }
    service.counters().rows_read.fetch_add(keys.len() as u64, Ordering::Relaxed);
    found.finish()
}

/// The shards of `keys`, if all of them may be read here.
fn place<'a>(
    shards: &LocalShards,
    catalog: &'a Catalog,
    table: TableId,
    mode: ReadMode,
    keys: &'a [PrimaryKey],
) -> Response<Vec<(&'a Arc<Shard>, &'a PrimaryKey)>> {
    // Not here while this node's catalog does not have it.
    let Some(table) = catalog.table_by_id(table) else { return Response::NotHere(None) };
    let mut confirmations = LeaderConfirmations::new(mode);
    let mut placed = Vec::with_capacity(keys.len());
    for key in keys {
        match shards.service.reader(table.shard(key), mode) {
            Some(Target::Local(shard)) if confirmations.may_read(shard) => placed.push((shard, key)),
            Some(Target::Local(_)) | None => return Response::NotHere(None),
            Some(Target::Remote(server)) => return Response::NotHere(Some(server)),
        }
    }
    Response::Done(placed)
}

/// The response to a read that failed.
fn unread(error: &ReadError) -> Bytes {
    let response: Response<()> = match error {
        ReadError::WrongShard { .. } => Response::NotHere(None),
        error => Response::Failed(read_failed(error)),
    };
    response.to_bytes(|(), _| ())
}

pub(super) fn count(shards: &LocalShards, part: &TableRanges, cancel: Arc<Cancel>) -> Bytes {
    let cx = shards.cx(EvalParams::none(), cancel);
    let count = match &part.index {
        Some(index) => shards
            .by_index(&cx, part, index)
            .and_then(|parts| <ShardIndexRange as LocalRows>::count(&cx, parts).into()),
        None => shards.rows(part).and_then(|parts| ShardRange::count(&cx, parts).into()),
    };
    count.to_bytes(Codec::pack)
}

pub(super) fn gather(
    shards: &LocalShards,
    part: &TableRanges,
    eval_params: EvalParams,
    pipeline: Pipeline,
    cancel: Arc<Cancel>,
) -> Bytes {
    let cx = shards.cx(eval_params, cancel);
    let work = Arc::new(pipeline);
    let tally = match &part.index {
        Some(index) => shards
            .by_index(&cx, part, index)
            .and_then(|parts| ShardIndexRange::tally(&cx, parts, part.order, &work).into()),
        None => shards.rows(part).and_then(|parts| ShardRange::tally(&cx, parts, part.order, &work).into()),
    };
    tally.to_bytes(|tally, out| {
        tally.pack(out);
        out.count(cx.take_rows_read());
    })
}

/// Whether the index of `part` finds few of its rows in every shard.
pub(super) fn few(shards: &LocalShards, part: &TableRanges) -> Bytes {
    let Some(query) = part.index.as_ref().and_then(|index| index.values()) else {
        return Response::Done(false).to_bytes(Codec::pack);
    };
    let few = shards.open_ranges(part, |_, shard, _| Response::Done(names_few(shard, &query)));
    few.and_then(|few| Response::Done(few.iter().all(|few| *few))).to_bytes(Codec::pack)
}

/// The response to a read by keys. Rows are copied into it from where they are stored; the encoding equals that of
/// `Response::Done` with a list of datums.
struct RowsResponse {
    rows: usize,
    response: Option<Packer>,
}

impl RowsResponse {
    fn new(rows: usize) -> RowsResponse {
        RowsResponse { rows, response: None }
    }

    fn add(&mut self, row: Option<&Object>) {
        let response = self.response.get_or_insert_with(|| RowsResponse::begin(self.rows, row));
        match row {
            Some(row) => row.pack(response),
            None => Datum::Null.pack(response),
        }
    }

    /// Reserves space for rows of the size of the first one.
    fn begin(rows: usize, first: Option<&Object>) -> Packer {
        let each = first.and_then(row::stored).map_or(1, |bytes| bytes.len() + LENGTH_BYTES);
        let wanted = each.saturating_mul(rows).min(EXPECTED_BYTES_MAX.max(each));
        let mut response = Packer::with_capacity(LENGTH_BYTES + wanted);
        remote::begin_done(&mut response);
        response.count(rows as u64);
        response
    }

    fn finish(self) -> Bytes {
        let rows = self.response.unwrap_or_else(|| RowsResponse::begin(0, None)).finish();
        rows.unwrap_or_else(|fault| {
            Response::<()>::Failed(fault.error("The rows of another server")).to_bytes(|(), _| ())
        })
    }
}

/// Bytes for the kind of a response or datum, and a length.
const LENGTH_BYTES: usize = 12;
/// More space is not reserved, since later rows may be smaller than the first.
const EXPECTED_BYTES_MAX: usize = 64 << 10;
