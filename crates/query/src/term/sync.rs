//! `sync`: waits until everything written to a table is on disk.

use std::collections::BTreeMap;

use cluster::{Catalog, ServerId};
use datum::{Datum, KeyRange, Text};
use reql::EvalError;
use reql::codec::Codec;

use crate::context::Cx;
use crate::remote::{
    Request, RetryBudget, Target, read, refreshed, shards_in, unless_not_here, unwritable, wait,
};
use crate::routing::{FailoverTo, LONG_CALL_TIMEOUT};
use crate::table::{Privilege, Resource, StoredTable, TableRef, access, write_failed};
use crate::value::{Args, Value};

/// `sync`: `{synced: 1}` once all earlier soft writes of the table are durable.
pub(crate) fn sync(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    access::check(args.cx, Privilege::Write, Resource::of_table(&table))?;
    let TableRef::Stored(stored) = table else {
        return Err(EvalError::op_failed("Artificial tables don't support `sync()`."));
    };
    let mut ranges = vec![KeyRange::all()];
    let mut budget = RetryBudget::new();
    loop {
        ranges = sync_ranges(args.cx, &refreshed(args.cx, &stored, &mut budget)?, &ranges)?;
        let Some(first) = ranges.first() else { break };
        if !budget.wait(args.cx, &stored, first)? {
            return Err(unwritable(first));
        }
    }
    let object = [(Text::from_static("synced"), 1.into())].into_iter().collect();
    Ok(Value::Datum(Datum::Object(object)))
}

/// Waits for the shards of `ranges`; returns the ranges that were not where they were expected.
fn sync_ranges(cx: &Cx, table: &StoredTable, ranges: &[KeyRange]) -> Result<Vec<KeyRange>, EvalError> {
    let (mut tickets, mut moved) = (Vec::new(), Vec::new());
    let mut remote: BTreeMap<ServerId, Vec<KeyRange>> = BTreeMap::new();
    for (shard, range) in ranges.iter().flat_map(|range| table.handle.covering(range)) {
        match cx.service.leader(shard) {
            Some(Target::Local(shard)) => tickets.push(shard.sync()),
            Some(Target::Remote(server)) => remote.entry(server).or_default().push(range),
            None => moved.push(range),
        }
    }
    let send = |(server, ranges): (ServerId, Vec<KeyRange>)| {
        let request = Request::Sync { table: table.handle.config.id, ranges: ranges.clone() };
        (server, cx.service.remote_calls().call(server, request.to_bytes(), LONG_CALL_TIMEOUT), ranges)
    };
    let requests: Vec<_> = remote.into_iter().map(send).collect();
    for ticket in tickets {
        ticket.wait().map_err(|error| write_failed(&error))?;
    }
    for (server, slot, ranges) in requests {
        let shards = |catalog: &Catalog| shards_in(catalog, table.handle.config.id, &ranges);
        let response = wait(cx, &slot, server, Some(FailoverTo::Leader), shards);
        let response = response.and_then(|bytes| read(bytes, bool::unpack));
        // The wait can be repeated.
        if unless_not_here(response)?.is_none() {
            moved.extend(ranges);
        }
    }
    Ok(moved)
}
