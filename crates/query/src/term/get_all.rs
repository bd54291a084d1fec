//! `get_all`: the rows under some keys; a key that is given n times returns its row n times.

use std::collections::BTreeMap;

use cluster::IndexConfig;
use datum::key::secondary;
use datum::{Datum, KeyRange, PrimaryKey, Text};
use reql::EvalError;

use crate::stream::{KeySource, Pipe, RowSource, Source, row_reads};
use crate::table::{Index, KeyOrder, TableRef, key_error};
use crate::value::{Args, Origin, Seq, SystemKeys, SystemRows, Value};

/// `get_all`: the rows with one of the keys as index value, in no particular order.
pub(crate) fn get_all(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    let index = args.optional_string("index")?;
    let mut keys: Vec<Datum> = (1..args.len()).map(|i| wanted_key(&mut args, i)).collect::<Result<_, _>>()?;
    // Of several keys that no row can have, RethinkDB names the least.
    keys.sort();
    if let Some(index) = index
        && let Index::Secondary(index) = table.index(args.cx, &index)?
    {
        return by_index(table, &index, keys);
    }
    let mut wanted: BTreeMap<PrimaryKey, usize> = BTreeMap::new();
    let mut wrong = None;
    for key in keys {
        match PrimaryKey::encode(&key) {
            Ok(key) => *wanted.entry(key).or_default() += 1,
            // The bounds are legal keys, and no row has them.
            Err(error) if error.is_extreme() => {}
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    if let (Some(error), TableRef::Stored(_)) = (&wrong, &table) {
        return Err(key_error(error));
    }
    let origin = match &table {
        TableRef::Stored(_) => None,
        TableRef::System(system) => Some(Box::new(Origin::SystemRows(SystemRows {
            system: system.clone(),
            keys: SystemKeys::Copies(wanted.clone()),
            order: KeyOrder::Any,
            is_limited: false,
            steps: Vec::new(),
        }))),
    };
    let source = source(&args, &table, wanted)?;
    Ok(Value::Seq(Seq { origin, ..Seq::selection(table, Pipe::of_source(source)) }))
}

/// The rows under values of a secondary index. A value that no index can hold fails when rows are read, as in RethinkDB.
fn by_index(table: TableRef, index: &IndexConfig, keys: Vec<Datum>) -> Result<Value, EvalError> {
    let mut wanted: BTreeMap<Datum, u32> = BTreeMap::new();
    for key in keys {
        match key {
            // The bounds are legal keys, and no row has them.
            Datum::MinVal | Datum::MaxVal => {}
            key => match secondary::encode(&key) {
                Ok(_) => *wanted.entry(key).or_default() += 1,
                Err(error) => {
                    let source = Source::failing(key_error(&error));
                    return Ok(Value::Seq(Seq::selection(table, Pipe::of_source(source))));
                }
            },
        }
    }
    let source = RowSource::of_values(&table, index, wanted.into_iter().collect())?;
    Ok(Value::Seq(Seq::selection(table, Pipe::of_source(Source::Rows(source)))))
}

/// A key. Null and shapes cannot be keys of an index by which rows can be ordered.
fn wanted_key(args: &mut Args<'_>, i: usize) -> Result<Datum, EvalError> {
    match args.datum(i)? {
        Datum::Null => Err(EvalError::non_existence("Keys cannot be NULL.").at(i)),
        Datum::Geometry(_) => Err(EvalError::logic(
            "Cannot use a geospatial index with `get_all`. Use `get_intersecting` instead.",
        )
        .at(i)),
        key => Ok(key),
    }
}

fn source(
    args: &Args<'_>,
    table: &TableRef,
    wanted: BTreeMap<PrimaryKey, usize>,
) -> Result<Source, EvalError> {
    match table {
        TableRef::Stored(stored) => {
            let keys = wanted.into_iter().collect();
            let rows = KeySource::new(args.cx, stored.clone(), keys)?;
            Ok(Source::Keys(Box::new(rows)))
        }
        TableRef::System(system) => {
            let id = Text::from_static("id");
            let rows = row_reads::system_rows(args.cx, system, &KeyRange::all(), KeyOrder::Any)?;
            let times = |row: &Datum| match row {
                Datum::Object(row) => {
                    let key = row.get(&id).and_then(|key| PrimaryKey::encode(&key).ok());
                    key.and_then(|key| wanted.get(&key).copied()).unwrap_or(0)
                }
                _ => 0,
            };
            let rows = rows.into_iter().flat_map(|row| std::iter::repeat_n(row.clone(), times(&row)));
            Ok(Source::of_array(rows.collect()))
        }
    }
}
