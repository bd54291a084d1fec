//! Terms for secondary indexes: create, drop, rename, list, status, wait.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cluster::{IndexConfig, IndexProgress, NoLeader, Overwrite};
use datum::{Datum, Object, Text};
use reql::{EvalError, FuncTerm, IndexFlags, StoredFunc, purity};
use shard::IndexKind;

use super::db_admin::special;
use crate::context::Cx;
use crate::remote::{RetryBudget, refreshed, unreadable};
use crate::routing::ReadMode;
use crate::table::{Privilege, Resource, StoredTable, TableRef, access, admin_failed};
use crate::value::{Args, Value};

/// How often `index_wait` checks whether its query was cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The names of a table's secondary indexes.
pub(crate) fn index_names(table: &TableRef) -> Datum {
    let names = match table {
        TableRef::Stored(table) => {
            let names = table.handle.config.indexes.all().into_iter();
            names.map(|index| Datum::String(index.name.clone())).collect()
        }
        TableRef::System(_) => Vec::new(),
    };
    names.into()
}

/// `index_list`: the names of a table's secondary indexes.
pub(crate) fn index_list(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    let table = present(args.cx, &table)?;
    Ok(Value::Datum(index_names(&table)))
}

/// `index_create`: of the field with the index's name, of a function, or of the binary in the `index_status` of another
/// index, here or in RethinkDB.
pub(crate) fn index_create(mut args: Args<'_>) -> Result<Value, EvalError> {
    let (table, name) = (args.table(0)?, args.plain_string(1)?);
    check_name(&table, &name)?;
    let (function, mut kind) = match args.len() {
        2 => {
            let path = args.call.path.as_deref();
            (StoredFunc::of_field(&name, args.cx.source.as_ref(), path)?, IndexKind::One)
        }
        _ => match args.take(2)? {
            Value::Datum(Datum::Binary(blob)) => of_binary(&blob).map_err(|error| error.at(2))?,
            other => {
                let closure = other.into_func(args.cx).map_err(|error| error.at(2))?;
                // The error is about the body of the function.
                check_deterministic(&closure.func).map_err(|error| error.at(1).at(2))?;
                let stored = StoredFunc::of_closure(&closure, args.cx.source.as_ref());
                let stored = stored.map_err(|error| error.at(2))?;
                (stored, IndexKind::One)
            }
        },
    };
    if args.optarg("multi")?.is_some() {
        kind = IndexKind::of(args.flag("multi")?, kind.is_geo());
    }
    if args.optarg("geo")?.is_some() {
        kind = IndexKind::of(kind.is_multi(), args.flag("geo")?);
    }
    let table = configurable(&args, &table)?;
    let created = args.cx.node().indexes().create_index(table.handle.config.id, &name, function, kind);
    created.map_err(admin_failed)?;
    Ok(answer("created", 1))
}

/// `index_drop`: removes an index.
pub(crate) fn index_drop(mut args: Args<'_>) -> Result<Value, EvalError> {
    let (table, name) = (args.table(0)?, args.plain_string(1)?);
    check_may_have(&table, &name)?;
    let table = configurable(&args, &table)?;
    args.cx.node().indexes().drop_index(table.handle.config.id, &name).map_err(admin_failed)?;
    Ok(answer("dropped", 1))
}

/// `index_rename`: gives an index another name.
pub(crate) fn index_rename(mut args: Args<'_>) -> Result<Value, EvalError> {
    let (table, from, to) = (args.table(0)?, args.string(1)?, args.string(2)?);
    check_name(&table, &from)?;
    check_name(&table, &to)?;
    let overwrite = if args.flag("overwrite")? { Overwrite::Yes } else { Overwrite::No };
    check_may_have(&table, &from)?;
    let table = configurable(&args, &table)?;
    if from == to && args.cx.retry_with_fresh_catalog(|| table.present_index(args.cx, &from)).is_some() {
        return Ok(answer("renamed", 0));
    }
    args.cx
        .node()
        .indexes()
        .rename_index(table.handle.config.id, &from, &to, overwrite)
        .map_err(admin_failed)?;
    Ok(answer("renamed", 1))
}

/// `index_status`: the state of the named indexes, or of all.
pub(crate) fn index_status(mut args: Args<'_>) -> Result<Value, EvalError> {
    let (table, names) = table_and_names(&mut args)?;
    Ok(Value::Datum(statuses(args.cx, &table, &names)?.0))
}

/// `index_wait`: the same, once all of them are ready.
pub(crate) fn index_wait(mut args: Args<'_>) -> Result<Value, EvalError> {
    let (table, names) = table_and_names(&mut args)?;
    loop {
        args.cx.check_cancel()?;
        let seen = args.cx.node().indexes().changes_seen();
        let (statuses, all_ready) = statuses(args.cx, &table, &names)?;
        if all_ready {
            return Ok(Value::Datum(statuses));
        }
        args.cx.node().indexes().await_change(seen, CANCEL_CHECK_INTERVAL);
    }
}

fn table_and_names(args: &mut Args<'_>) -> Result<(TableRef, BTreeSet<Text>), EvalError> {
    let table = args.table(0)?;
    let names = (1..args.len()).map(|i| args.string(i)).collect::<Result<_, _>>()?;
    Ok((table, names))
}

fn check_name(table: &TableRef, name: &Text) -> Result<(), EvalError> {
    match table.primary_key() == *name {
        true => {
            Err(EvalError::logic(format!("Index name conflict: `{name}` is the name of the primary key.")))
        }
        false => Ok(()),
    }
}

/// Fails for a system table, which has no index to drop or rename.
/// Source: `artificial_reql_cluster_interface_t::sindex_drop` of RethinkDB.
fn check_may_have(table: &TableRef, index: &Text) -> Result<(), EvalError> {
    match table {
        TableRef::Stored(_) => Ok(()),
        TableRef::System(_) => {
            let (db, table) = (table.db_name(), table.name());
            Err(EvalError::op_failed(format!("Index `{index}` does not exist on table `{db}.{table}`.")))
        }
    }
}

/// The table, if the user may configure it.
fn configurable<'t>(args: &Args<'_>, table: &'t TableRef) -> Result<&'t StoredTable, EvalError> {
    access::check(args.cx, Privilege::Config, Resource::of_table(table))?;
    match table {
        TableRef::Stored(table) => Ok(table),
        TableRef::System(_) => Err(special("create secondary indexes on the tables in it")),
    }
}

fn answer(what: &'static str, count: i32) -> Value {
    let object: Object = [(Text::from_static(what), Datum::from(count))].into_iter().collect();
    Value::Datum(Datum::Object(object))
}

/// The table in the present catalog: its indexes may have changed since the query began.
fn present(cx: &Cx, table: &TableRef) -> Result<TableRef, EvalError> {
    let TableRef::Stored(stored) = table else { return Ok(table.clone()) };
    let catalog = cx.catalog();
    let Some(handle) = catalog.table_by_id(stored.handle.config.id).cloned() else {
        let (db, name) = (table.db_name(), table.name());
        return Err(EvalError::op_failed(format!("Table `{db}.{name}` does not exist.")));
    };
    Ok(TableRef::Stored(StoredTable { handle, read_mode: stored.read_mode }))
}

/// The state of the named indexes, or of all, by name; and whether all are ready. It comes from the leaders of the
/// shards, and fails without one of them, as a read does.
fn statuses(cx: &Cx, table: &TableRef, names: &BTreeSet<Text>) -> Result<(Datum, bool), EvalError> {
    let mut table = present(cx, table)?;
    let mut budget = RetryBudget::new();
    loop {
        let TableRef::Stored(stored) = &table else {
            return match names.first() {
                Some(name) => Err(table.index_missing(name)),
                None => Ok((Datum::empty_array(), true)),
            };
        };
        let indexes = indexes_named(cx, &table, stored, names)?;
        let (ids, began): (Vec<_>, _) = (indexes.iter().map(|index| index.id).collect(), Instant::now());
        match cx.node().indexes().progress(&stored.handle, &ids) {
            Ok(progress) => {
                let all_ready = progress.iter().all(|progress| *progress == IndexProgress::Ready);
                let rows = indexes.iter().zip(progress).map(|(index, progress)| status(index, progress));
                return Ok((rows.collect::<Vec<Datum>>().into(), all_ready));
            }
            Err(NoLeader { range }) => {
                budget.spend(began.elapsed());
                if !budget.wait(cx, stored, &range)? {
                    return Err(unreadable(&range, ReadMode::Single));
                }
                table = TableRef::Stored(refreshed(cx, stored, &mut budget)?);
            }
        }
    }
}

/// The named indexes, or all, by name.
fn indexes_named(
    cx: &Cx,
    table: &TableRef,
    stored: &StoredTable,
    names: &BTreeSet<Text>,
) -> Result<Vec<IndexConfig>, EvalError> {
    let named = |name: &Text| stored.find_index(cx, name).ok_or_else(|| table.index_missing(name));
    match names.is_empty() {
        true => Ok(stored.handle.config.indexes.all().into_iter().cloned().collect()),
        false => names.iter().map(named).collect(),
    }
}

fn status(index: &IndexConfig, progress: IndexProgress) -> Datum {
    let flags = IndexFlags { multi: index.kind.is_multi(), geo: index.kind.is_geo() };
    let mut fields = vec![
        ("index", Datum::String(index.name.clone())),
        ("ready", (progress == IndexProgress::Ready).into()),
        ("outdated", false.into()),
        ("multi", index.kind.is_multi().into()),
        ("geo", index.kind.is_geo().into()),
        ("function", Datum::Binary(index.function.index_binary(flags))),
        ("query", create_query(index).into()),
    ];
    if let IndexProgress::Under(share) = progress {
        fields.push(("progress", Datum::Number(share)));
    }
    let object: Object = fields.into_iter().map(|(name, value)| (Text::from_static(name), value)).collect();
    Datum::Object(object)
}

/// The query that creates such an index, as the JavaScript driver writes it.
fn create_query(index: &IndexConfig) -> String {
    let function = index.function.source();
    let options = match index.kind {
        IndexKind::One => "",
        IndexKind::Multi => ", {multi: true}",
        IndexKind::Geo => ", {geo: true}",
        IndexKind::GeoMulti => ", {multi: true, geo: true}",
    };
    format!("indexCreate('{}', {function}{options})", index.name)
}

/// The function and kind of an index in a binary of `index_status`.
fn of_binary(blob: &[u8]) -> Result<(StoredFunc, IndexKind), EvalError> {
    let index = StoredFunc::of_index_binary(blob)?;
    check_deterministic(index.function.func())?;
    Ok((index.function, IndexKind::of(index.flags.multi, index.flags.geo)))
}

fn check_deterministic(func: &FuncTerm) -> Result<(), EvalError> {
    match purity::is_storable(func) {
        true => Ok(()),
        false => Err(EvalError::logic(
            "Could not prove function deterministic.  Index functions must be deterministic.",
        )),
    }
}
