//! Reads of rows by key, and of the rows of system tables.

use std::collections::BTreeMap;

use cluster::{ServerId, ShardHandle};
use datum::{Datum, KeyRange, Object, PrimaryKey};
use reql::EvalError;
use shard::ReadError;

use crate::context::{Cx, ReadNote, RowCounter};
use crate::remote::{
    LeaderConfirmations, RemoteKeys, RetryBudget, Target, refreshed, system_rows, unreadable,
};
use crate::table::{KeyOrder, StoredTable, SystemRef, TableRef, access, key_error, read_failed};

/// The row of `table` under `key`, or null.
pub(crate) fn row(cx: &Cx, table: &TableRef, key: &Datum) -> Result<Datum, EvalError> {
    access::check_read(cx, table)?;
    match table {
        TableRef::Stored(stored) => {
            let key = match PrimaryKey::encode(key) {
                Ok(key) => key,
                // The bounds are legal keys, and no row has them.
                Err(error) if error.is_extreme() => return Ok(Datum::Null),
                Err(error) => return Err(key_error(&error)),
            };
            Ok(rows(cx, stored, vec![key])?.pop().unwrap_or(Datum::Null))
        }
        TableRef::System(system) => {
            let found = system_row(cx, system, key)?;
            Ok(found.map_or(Datum::Null, Datum::Object))
        }
    }
}

/// The row of a system table under `key`. The caller must have checked the permission to read it.
pub(crate) fn system_row(cx: &Cx, system: &SystemRef, key: &Datum) -> Result<Option<Object>, EvalError> {
    let rows = system_rows::rows(cx, system)?;
    let under = |key: &Datum| rows.iter().find(|row| row.get("id").as_ref() == Some(key)).cloned();
    Ok(under(key).or_else(|| under(&system.table.normalized_key(key)?)))
}

/// The rows of `table` under `keys`, in their order; null where there is none.
pub(crate) fn rows(cx: &Cx, table: &StoredTable, keys: Vec<PrimaryKey>) -> Result<Vec<Datum>, EvalError> {
    if let Some(trace) = cx.trace_room() {
        trace.read(note_of_keys(cx, table, &keys));
    }
    let mut rows = vec![Datum::Null; keys.len()];
    let mut waiting: Vec<usize> = (0..keys.len()).collect();
    let mut budget = RetryBudget::new();
    let mut table = table.clone();
    loop {
        waiting = try_rows(cx, &table, &keys, &waiting, &mut rows)?;
        let Some(first) = waiting.first() else { return Ok(rows) };
        let range = table.handle.shard(&keys[*first]).range();
        if !budget.wait(cx, &table, range)? {
            return Err(unreadable(range, table.read_mode));
        }
        table = refreshed(cx, &table, &mut budget)?;
    }
}

/// The record of a read by keys.
fn note_of_keys(cx: &Cx, table: &StoredTable, keys: &[PrimaryKey]) -> ReadNote {
    let mut shards: Vec<_> = keys.iter().map(|key| table.handle.shard(key)).collect();
    shards.sort_by_key(|shard| shard.group());
    shards.dedup_by_key(|shard| shard.group());
    let is_remote =
        |shard: &&&ShardHandle| matches!(cx.service.reader(shard, table.read_mode), Some(Target::Remote(_)));
    let remote_shards = shards.iter().filter(is_remote).count();
    let (db, name) = (&table.handle.db.name, &table.handle.config.name);
    ReadNote::of_keys(format!("{db}.{name}"), keys.len(), (shards.len(), remote_shards))
}

/// Reads the rows at `waiting`; returns those whose shard was not where it was expected.
fn try_rows(
    cx: &Cx,
    table: &StoredTable,
    keys: &[PrimaryKey],
    waiting: &[usize],
    rows: &mut [Datum],
) -> Result<Vec<usize>, EvalError> {
    let mut moved = Vec::new();
    let mut confirmations = LeaderConfirmations::new(table.read_mode);
    let mut remote: BTreeMap<ServerId, Vec<usize>> = BTreeMap::new();
    for i in waiting {
        match cx.service.reader(table.handle.shard(&keys[*i]), table.read_mode) {
            Some(Target::Local(shard)) if !confirmations.may_read(shard) => moved.push(*i),
            Some(Target::Local(shard)) => match shard.get(&keys[*i]) {
                Ok(row) => {
                    RowCounter::of(cx).rows(1);
                    rows[*i] = row.map_or(Datum::Null, Datum::Object);
                }
                Err(ReadError::WrongShard { .. }) => moved.push(*i),
                Err(error) => return Err(read_failed(&error)),
            },
            Some(Target::Remote(server)) => remote.entry(server).or_default().push(*i),
            None => moved.push(*i),
        }
    }
    let of = (table.handle.config.id, table.read_mode);
    let send = |(server, indexes): (ServerId, Vec<usize>)| {
        RemoteKeys::send(cx, server, of, indexes.iter().map(|i| keys[*i].clone()).collect(), indexes)
    };
    let requests: Vec<RemoteKeys> = remote.into_iter().map(send).collect();
    for remote in requests {
        match remote.wait(cx, table, keys)? {
            Some(found) => remote.indexes.iter().zip(found).for_each(|(i, row)| rows[*i] = row),
            None => moved.extend(&remote.indexes),
        }
    }
    moved.sort_unstable();
    Ok(moved)
}

/// The rows of a system table whose keys are in `range`, in their order.
pub(crate) fn system_rows(
    cx: &Cx,
    system: &SystemRef,
    range: &KeyRange,
    order: KeyOrder,
) -> Result<Vec<Datum>, EvalError> {
    access::check_read(cx, &TableRef::System(system.clone()))?;
    let mut keyed: Vec<(PrimaryKey, Object)> = system_rows::rows(cx, system)?
        .into_iter()
        .filter_map(|row| Some((PrimaryKey::encode(&row.get("id")?).ok()?, row)))
        .filter(|(key, _)| range.contains(key))
        .collect();
    if order != KeyOrder::Any || !system.table.is_ordered() {
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
    }
    if order == KeyOrder::Descending {
        keyed.reverse();
    }
    Ok(keyed.into_iter().map(|(_, row)| Datum::Object(row)).collect())
}
