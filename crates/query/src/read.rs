//! Reading rows of a table: one by key, or the rows of a system table in order.

use datum::{Datum, KeyRange, Object, PrimaryKey};
use reql::EvalError;

use crate::access::{self, Need, Place};
use crate::context::Cx;
use crate::failure::{key_error, read_failed};
use crate::stream::KeyOrder;
use crate::table::{SystemRef, TableRef};

/// The row of `table` under `key`, or null.
pub(crate) fn row(cx: &Cx, table: &TableRef, key: &Datum) -> Result<Datum, EvalError> {
    access::check(cx, Need::Read, Place::of_table(table))?;
    match table {
        TableRef::Stored(stored) => {
            let key = PrimaryKey::encode(key).map_err(|error| key_error(&error))?;
            let row = stored.handle.shard(&key).get(&key).map_err(|error| read_failed(&error))?;
            Ok(row.map_or(Datum::Null, Datum::Object))
        }
        TableRef::System(system) => {
            let rows = system.table.rows(cx, system.identifiers)?;
            let found = rows.into_iter().find(|row| row.get("id").as_ref() == Some(key));
            Ok(found.map_or(Datum::Null, Datum::Object))
        }
    }
}

/// The rows of a system table whose keys are in `range`, in the order of their keys.
pub(crate) fn system_rows(
    cx: &Cx,
    system: &SystemRef,
    range: &KeyRange,
    order: KeyOrder,
) -> Result<Vec<Datum>, EvalError> {
    access::check(cx, Need::Read, Place::of_table(&TableRef::System(system.clone())))?;
    let mut keyed: Vec<(PrimaryKey, Object)> = system
        .table
        .rows(cx, system.identifiers)?
        .into_iter()
        .filter_map(|row| Some((PrimaryKey::encode(&row.get("id")?).ok()?, row)))
        .filter(|(key, _)| range.contains(key))
        .collect();
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    if order == KeyOrder::Descending {
        keyed.reverse();
    }
    Ok(keyed.into_iter().map(|(_, row)| Datum::Object(row)).collect())
}
