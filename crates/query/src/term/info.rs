//! `info` and `type_of`: descriptions of values.

use datum::{Datum, Object, ObjectBuilder, Text};
use reql::EvalError;
use shard::{Bounds, Side};

use super::index::index_names;
use crate::context::Cx;
use crate::remote::system_rows;
use crate::stream::count_each;
use crate::system;
use crate::table::{
    Identifiers, StoredTable, SystemRef, TableRef, TableSizes, access, system_db_id, system_table_id,
};
use crate::value::{Args, DbRef, Slice, Value};

/// `type_of`: the name of a value's type.
pub(crate) fn type_of(mut args: Args<'_>) -> Result<Value, EvalError> {
    Ok(Value::Datum(args.take(0)?.type_of().into()))
}

/// `info`: an object that describes a value.
pub(crate) fn info(mut args: Args<'_>) -> Result<Value, EvalError> {
    let cx = args.cx;
    let value = args.take(0)?;
    let mut out = ObjectBuilder::new();
    put(&mut out, "type", value.type_of().into());
    match value {
        Value::Db(db) => describe_db(&db, &mut out),
        Value::Table(slice) if slice.is_whole() => describe_table(cx, &slice.table, &mut out)?,
        Value::Table(slice) => describe_slice(cx, &slice, &mut out)?,
        Value::Row(row) => put(&mut out, "table", table_info(cx, &row.table)?),
        Value::Seq(seq) => {
            if let Some(table) = &seq.table {
                put(&mut out, "table", table_info(cx, table)?);
            }
        }
        Value::Datum(Datum::Null | Datum::MinVal | Datum::MaxVal) | Value::Grouped(_) => {}
        Value::Datum(datum) => {
            if let Datum::Binary(bytes) = &datum {
                put(&mut out, "count", Datum::Number(bytes.len() as f64));
            }
            put(&mut out, "value", datum.pretty().into());
        }
        Value::Func(closure) => {
            let source = match closure.as_foreign() {
                Some(foreign) => foreign.source(),
                None => reql::print::function(&closure.func),
            };
            put(&mut out, "source_code", source.into());
        }
    }
    Ok(Value::Datum(Datum::Object(out.build())))
}

fn put(out: &mut ObjectBuilder, name: &'static str, value: Datum) {
    out.insert(Text::from_static(name), value);
}

fn describe_db(db: &DbRef, out: &mut ObjectBuilder) {
    put(out, "type", "DB".into());
    put(out, "name", Datum::String(db.name.clone()));
    put(out, "id", db.id.unwrap_or_else(system_db_id).to_string().into());
}

fn table_info(cx: &Cx, table: &TableRef) -> Result<Datum, EvalError> {
    let mut out = ObjectBuilder::new();
    put(&mut out, "type", "TABLE".into());
    describe_table(cx, table, &mut out)?;
    Ok(Datum::Object(out.build()))
}

fn describe_table(cx: &Cx, table: &TableRef, out: &mut ObjectBuilder) -> Result<(), EvalError> {
    access::check_read(cx, table)?;
    let mut db = ObjectBuilder::new();
    let (id, db_ref, counts) = match table {
        TableRef::Stored(stored) => {
            let handle = &stored.handle;
            let db = DbRef { name: handle.db.name.clone(), id: Some(handle.db.id) };
            (handle.config.id, db, count_each(cx, stored)?)
        }
        TableRef::System(system) => {
            let rows = system_rows::rows(cx, system)?.len();
            let db = DbRef { name: table.db_name().into(), id: None };
            (system_table_id(table.name()), db, vec![rows as u64])
        }
    };
    describe_db(&db_ref, &mut db);
    put(out, "name", table.name().into());
    put(out, "id", id.uuid().to_string().into());
    put(out, "primary_key", Datum::String(table.primary_key()));
    put(out, "db", Datum::Object(db.build()));
    put(out, "indexes", index_names(table));
    if let TableRef::Stored(stored) = table
        && counts.iter().any(|count| *count > 0)
    {
        put(out, "storage_estimates", Datum::Object(storage_estimates(cx, stored)?));
    }
    let counts: Vec<Datum> = counts.into_iter().map(|count| Datum::Number(count as f64)).collect();
    put(out, "doc_count_estimates", counts.into());
    Ok(())
}

/// The sizes of a table: of its replicas on this server if it has one of every shard, and of all replicas otherwise.
fn storage_estimates(cx: &Cx, table: &StoredTable) -> Result<Object, EvalError> {
    if table.handle.shards().iter().all(|shard| shard.local().is_some()) {
        let sizes = TableSizes::of(&cx.service, &table.handle);
        return Ok(TableSizes::summary(sizes.logical, sizes.disk()));
    }
    let Some(stats) = system::table("stats") else { return Ok(Object::default()) };
    let (mut logical, mut disk) = (0.0, 0.0);
    let id = Datum::from(table.handle.config.id.uuid().to_string());
    for row in system_rows::rows(cx, &SystemRef { table: stats, identifiers: Identifiers::Uuid })? {
        let Some(Datum::Object(engine)) = row.get("storage_engine") else { continue };
        let is_of_table = matches!(row.get("id"), Some(Datum::Array(key)) if key.get(1) == Some(&id));
        let Some(Datum::Object(estimates)) = engine.get("estimates").filter(|_| is_of_table) else {
            continue;
        };
        let number = |name: &str| match estimates.get(name) {
            Some(Datum::Number(number)) => number,
            _ => 0.0,
        };
        logical += number("logical_bytes");
        disk += number("disk_bytes");
    }
    Ok(TableSizes::summary(logical, disk))
}

fn describe_slice(cx: &Cx, slice: &Slice, out: &mut ObjectBuilder) -> Result<(), EvalError> {
    put(out, "table", table_info(cx, &slice.table)?);
    put(out, "index", Datum::String(slice.index_name()));
    put(out, "sorting", slice.order.name().into());
    let whole = Bounds::all();
    let bounds = slice.bounds.as_ref().unwrap_or(&whole);
    let left = (&bounds.left, bounds.left_side, [Datum::MinVal, Datum::MaxVal]);
    let right = (&bounds.right, bounds.right_side, [Datum::MaxVal, Datum::MinVal]);
    for ((bound, side, [free, never]), kind, value) in
        [(left, "left_bound_type", "left_bound"), (right, "right_bound_type", "right_bound")]
    {
        if *bound == free {
            put(out, kind, "unbounded".into());
        } else if *bound == never {
            put(out, kind, "unachievable".into());
        } else {
            put(out, kind, if side == Side::Open { "open" } else { "closed" }.into());
            put(out, value, bound.clone());
        }
    }
    Ok(())
}
