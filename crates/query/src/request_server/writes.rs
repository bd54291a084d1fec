//! Requests that write one row, whose response is sent when the log has the outcome, or many rows; and sync.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cluster::Responder;
use datum::{KeyRange, Object, PrimaryKey};
use reql::codec::Codec;
use reql::{Cancel, Env, SeededRandom};
use storage::{Reach, TableId};

use super::local_shards::LocalShards;
use crate::edit::{RowTarget, writes_are_brief};
use crate::remote::{Response, Target, WriteRequest, pack_reports};
use crate::routing::{CallbackTask, ReadMode};
use crate::table::{TableRef, write_failed};
use crate::write::{PlannedWrites, WriteExecutor, decision, has_moved, is_refused};

/// A brief write of one row is done before it could be cancelled.
static NEVER: Cancel = Cancel::new();

/// Whether it writes one row and is quick to decide, so that the receiving thread can run it.
pub(super) fn is_brief(shards: &LocalShards, write: &WriteRequest) -> bool {
    write.keys.len() == 1 && write.edits.at(0).is_brief() && {
        let catalog = shards.service.node().catalog_guard();
        // A write to an unknown table is refused quickly.
        catalog.table_by_id(write.table).is_none_or(|table| writes_are_brief(&table.config))
    }
}

/// Proposes a write of one row. The response is sent by the thread that completes the ticket. A reader thread does it if
/// the row is beyond `reach`.
pub(super) fn write_one(shards: &LocalShards, write: WriteRequest, reach: Reach, reply: Responder) {
    let not_here = |leader| Response::<()>::NotHere(leader).to_bytes(|(), _| ());
    let (table, Some(key)) = (shards.table(write.table, ReadMode::Single), write.keys.first()) else {
        return reply(Ok(not_here(None)));
    };
    let Response::Done(table) = table else { return reply(Ok(not_here(None))) };
    if shards.settings_of(&table).is_older_than(write.settings) {
        return reply(Ok(not_here(None)));
    }
    let shard = match shards.service.leader(table.handle.shard(key)) {
        Some(Target::Local(shard)) => shard,
        Some(Target::Remote(server)) => return reply(Ok(not_here(Some(server)))),
        None => return reply(Ok(not_here(None))),
    };
    let readers = &shards.service.readers;
    if reach == Reach::Memory && readers.has_write(write.table, key) {
        return write_from_disk(shards, key.clone(), write, reply);
    }
    let random = SeededRandom::new(write.eval_params.seed);
    let env = Env {
        now: write.eval_params.now,
        array_limit: write.eval_params.array_limit,
        cancel: &NEVER,
        random: &random,
        globals: &write.eval_params.globals,
        open: None,
    };
    let config = &table.handle.config;
    let hook = config.write_hook.as_ref().filter(|_| !write.options.ignore_hook);
    let target = RowTarget { field: &config.primary_key, key, hook };
    let decide = |old: Option<&Object>| {
        let report = write.edits.at(0).decide(target, old, &env);
        (decision(&report), report)
    };
    let failed = |error| Response::<()>::Failed(write_failed(&error)).to_bytes(|(), _| ());
    let durability = write.options.durability.unwrap_or(config.durability);
    match shard.write_within(key, durability, reach, decide) {
        Ok((report, ticket)) => {
            shards.service.counters().rows_written.fetch_add(1, Ordering::Relaxed);
            let show = write.options.return_changes;
            CallbackTask::start(ticket, move |outcome| {
                reply(Ok(match outcome {
                    Ok(_) => {
                        let done = Response::Done([Some(report)]);
                        done.write_to_bytes(|all, out| pack_reports(all, show, out))
                    }
                    // Nothing was written: the sender tries the new leader.
                    Err(error) if is_refused(&error) => not_here(None),
                    Err(error) => failed(error),
                }));
            });
        }
        Err(error) if error.needs_disk() => write_from_disk(shards, key.clone(), write, reply),
        Err(error) if has_moved(&error) => reply(Ok(not_here(None))),
        Err(error) => reply(Ok(failed(error))),
    }
}

/// Has a reader thread carry out the write of one row.
fn write_from_disk(shards: &LocalShards, key: PrimaryKey, write: WriteRequest, reply: Responder) {
    shards.service.counters().from_disk.fetch_add(1, Ordering::Relaxed);
    let (own, table) = (shards.clone(), write.table);
    shards.service.readers.run_write(table, key, move || write_one(&own, write, Reach::Disk, reply));
}

pub(super) fn write(shards: &LocalShards, write: WriteRequest, cancel: Arc<Cancel>) -> Bytes {
    let WriteRequest { ticket: _, table, options, settings, eval_params, keys, edits } = write;
    let cx = shards.cx(eval_params, cancel);
    let reports = shards.table(table, ReadMode::Single).and_then(|table| {
        if shards.settings_of(&table).is_older_than(settings) {
            return Response::NotHere(None);
        }
        let reports = WriteExecutor::new(&cx, TableRef::Stored(table), options).and_then(|mut executor| {
            let edit = |i: usize| edits.at(i);
            let planned = PlannedWrites { keys: &keys, edit: &edit, generated: &|_| false };
            let mut reports = executor.write_here(&planned)?;
            executor.finish_here(&mut reports)?;
            Ok(reports)
        });
        reports.into()
    });
    reports.write_to_bytes(|reports, out| pack_reports(reports, options.return_changes, out))
}

pub(super) fn sync(shards: &LocalShards, table: TableId, ranges: &[KeyRange]) -> Bytes {
    let synced = shards.table(table, ReadMode::Single).and_then(|table| {
        let mut tickets = Vec::new();
        for (shard, _) in ranges.iter().flat_map(|range| table.handle.covering(range)) {
            match shards.service.leader(shard) {
                Some(Target::Local(shard)) => tickets.push(shard.sync()),
                Some(Target::Remote(server)) => return Response::NotHere(Some(server)),
                None => return Response::NotHere(None),
            }
        }
        let wait = |ticket: shard::WriteTicket| ticket.wait().map_err(|error| write_failed(&error));
        tickets.into_iter().try_for_each(|ticket| wait(ticket).map(drop)).map(|()| true).into()
    });
    synced.to_bytes(Codec::pack)
}
