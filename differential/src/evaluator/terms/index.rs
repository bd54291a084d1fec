//! Rows of tables: by primary key, by secondary indexes, in order.

use crate::database::{Table, is_key};
use crate::evaluator::args::{self, Args};
use crate::evaluator::term_value::{Seq, Slice, TermValue};
use crate::evaluator::{Evaluator, Scope};
use crate::fault::{Fault, Out};
use crate::value::Val;

/// Every value of an index with its row, in the order of the index.
fn entries(evaluator: &Evaluator, table: &Table, name: &str) -> Out<Vec<(Val, Val, Val)>> {
    let mut out = Vec::new();
    let Some(index) = table.indexes.get(name).filter(|_| name != table.key) else {
        if name != table.key {
            return Err(Fault::new(crate::fault::Class::OpFailed, "no such index"));
        }
        let row =
            |(key, row): (&Val, &_)| (key.clone(), key.clone(), Val::Object(std::clone::Clone::clone(row)));
        return Ok(table.rows.iter().map(row).collect());
    };
    if index.geo {
        return Err(Fault::logic("an index of shapes"));
    }
    let func = match evaluator.eval(&index.function, &Scope::default(), false)? {
        TermValue::Func(func) => func,
        _ => return Err(Fault::unspecified("an index without a function")),
    };
    for (key, row) in &table.rows {
        let row = Val::Object(row.clone());
        let value = evaluator.with_default_limit(|| evaluator.call_datum(&func, std::slice::from_ref(&row)));
        let Ok(value) = value else { continue };
        let values = match value {
            Val::Array(items) if index.multi => items,
            other => vec![other],
        };
        let keys = values.into_iter().filter(is_key);
        out.extend(keys.map(|value| (value, key.clone(), row.clone())));
    }
    out.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    Ok(out)
}

/// The values and rows of a part of a table by the index of this name; without an order of the part, in any order.
pub(super) fn entries_of(evaluator: &Evaluator, slice: &Slice, name: &str) -> Out<Vec<(Val, Out<Val>)>> {
    let database = evaluator.database.borrow().clone();
    let table = database.tables.get(&slice.table).ok_or_else(no_table)?;
    if slice.index.as_ref().is_some_and(|index| index != name) && slice.bounds.is_some() {
        return Err(Fault::unspecified("bounds on another index"));
    }
    let mut found = match entries(evaluator, table, name) {
        Err(_) if slice.is_empty() => {
            return Err(Fault::unspecified("no index and nothing to look for in it"));
        }
        found => found?,
    };
    if let Some([(left, closed), (right, right_closed)]) = &slice.bounds {
        if !slice.is_empty() && [left, right].into_iter().any(|end| matches!(end, Val::Object(_))) {
            // It is found out where the rows are read.
            return Ok(vec![(Val::Null, Err(Fault::logic("an object as a bound")))]);
        }
        found.retain(|(value, ..)| {
            let above = value > left || (*closed && value == left);
            above && (value < right || (*right_closed && value == right))
        });
    }
    match slice.descends {
        None => found = evaluator.shuffled(found),
        Some(false) => {}
        Some(true) => found.reverse(),
    }
    Ok(found.into_iter().map(|(value, _, row)| (value, Ok(row))).collect())
}

/// The rows of a part of a table.
pub(super) fn rows(evaluator: &Evaluator, slice: &Slice) -> Out<Seq> {
    if slice.is_empty() {
        return Ok(Seq { table: Some(slice.table.clone()), ..Seq::stream(Vec::new()) });
    }
    let name = match &slice.index {
        Some(name) => name.clone(),
        None => evaluator.database.borrow().tables.get(&slice.table).ok_or_else(no_table)?.key.clone(),
    };
    let items = entries_of(evaluator, slice, &name)?.into_iter().map(|(_, row)| row).collect();
    let interleaved = slice.descends.is_none();
    Ok(Seq { table: Some(slice.table.clone()), interleaved, ..Seq::stream(items) })
}

/// `min` and `max` by an index: a row.
pub(super) fn extreme(args: &Args<'_>, first: TermValue, index: Option<Val>) -> Out<TermValue> {
    if args.len() > 1 {
        return Err(Fault::logic("both a function and an index"));
    }
    let TermValue::Table(slice) = first else { return Err(Fault::logic("not a table")) };
    let name = match index {
        Some(name) => args::text(name)?,
        None => match &slice.index {
            Some(name) => name.clone(),
            None => {
                args.evaluator.database.borrow().tables.get(&slice.table).ok_or_else(no_table)?.key.clone()
            }
        },
    };
    let ordered = Slice { descends: Some(args.id == 148), index: slice.index.clone(), ..slice.clone() };
    let mut found = entries_of(args.evaluator, &ordered, &name)?;
    if found.is_empty() {
        return Err(Fault::logic("no entries"));
    }
    found.swap_remove(0).1.map(|row| TermValue::Row(slice.table, row))
}

/// The rows whose index value is one of `wanted`, each as often as it is wanted.
pub(super) fn wanted(evaluator: &Evaluator, table: &str, name: &str, wanted: &[Val]) -> Out<Vec<Val>> {
    let database = evaluator.database.borrow().clone();
    let table = database.tables.get(table).ok_or_else(no_table)?;
    let entries = entries(evaluator, table, name)?;
    let rows = wanted.iter().flat_map(|value| entries.iter().filter(move |(known, ..)| known == value));
    Ok(rows.map(|(.., row)| row.clone()).collect())
}

/// The shapes that a geospatial index holds, with their rows.
pub(super) fn shapes(evaluator: &Evaluator, table: &Table, name: &str) -> Out<Vec<(Val, Val)>> {
    if name == table.key {
        return Err(Fault::logic("the primary index"));
    }
    let Some(index) = table.indexes.get(name) else {
        return Err(Fault::new(crate::fault::Class::OpFailed, "no such index"));
    };
    if !index.geo {
        return Err(Fault::logic("not an index of shapes"));
    }
    let func = match evaluator.eval(&index.function, &Scope::default(), false)? {
        TermValue::Func(func) => func,
        _ => return Err(Fault::unspecified("an index without a function")),
    };
    let mut out = Vec::new();
    for row in table.rows.values() {
        let row = Val::Object(row.clone());
        let shape = evaluator.with_default_limit(|| evaluator.call_datum(&func, std::slice::from_ref(&row)));
        if let Ok(shape @ Val::Shape(..)) = shape {
            out.push((shape, row));
        }
    }
    Ok(out)
}

/// There is no such table.
pub(super) fn no_table() -> Fault {
    Fault::new(crate::fault::Class::OpFailed, "no such table")
}
