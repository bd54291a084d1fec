//! Tables and parts of them.

use super::index;
use crate::database::is_key;
use crate::evaluator::args::{self, Args};
use crate::evaluator::term_value::{Seq, Slice, TermValue};
use crate::fault::{Fault, Out};
use crate::value::Val;

/// The only database.
const DB: &str = "test";
/// The longest primary key; no longer key is generated.
const KEY_MAX: usize = 60;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        14 => match args.text(0)?.as_str() {
            DB => Ok(TermValue::Db),
            _ => Err(Fault::new(crate::fault::Class::OpFailed, "no such database")),
        },
        15 => table(args),
        16 => get(args),
        78 => get_all(args),
        _ => between(args),
    }
}

fn table(args: &Args<'_>) -> Out<TermValue> {
    let name = match args.len() {
        1 => args.text(0)?,
        _ => match args.value(0)? {
            TermValue::Db => args.text(1)?,
            other => return Err(Fault::logic(format!("expected DATABASE but found {}", other.type_of()))),
        },
    };
    if !args.evaluator.database.borrow().tables.contains_key(&name) {
        return Err(index::no_table());
    }
    Ok(TermValue::Table(Slice { table: name, index: None, bounds: None, descends: None }))
}

/// An argument as a whole table.
pub(super) fn whole(args: &Args<'_>, i: usize) -> Out<String> {
    match args.value(i)? {
        TermValue::Table(Slice { table, index: None, .. }) => Ok(table),
        TermValue::Datum(Val::Null) => Err(Fault::missing("null for a table")),
        TermValue::Row(_, Val::Null) => Err(Fault::unspecified("a missing row for a table")),
        other => Err(Fault::logic(format!("expected TABLE but found {}", other.type_of()))),
    }
}

fn get(args: &Args<'_>) -> Out<TermValue> {
    let table = whole(args, 0)?;
    let key = args.datum(1)?;
    check_key(&key)?;
    let database = args.evaluator.database.borrow();
    let row = database.tables.get(&table).and_then(|table| table.rows.get(&key));
    Ok(TermValue::Row(table.clone(), row.map_or(Val::Null, |row| Val::Object(row.clone()))))
}

/// Fails for a value that cannot be a key.
pub(super) fn check_key(key: &Val) -> Out<()> {
    match key {
        Val::Array(items) => items.iter().try_for_each(check_key),
        key if !is_key(key) => Err(Fault::expected("a key", key)),
        Val::Text(text) if text.contains('\0') || text.len() > KEY_MAX => {
            Err(Fault::unspecified("a strange key"))
        }
        _ => Ok(()),
    }
}

fn get_all(args: &Args<'_>) -> Out<TermValue> {
    let table = whole(args, 0)?;
    let index = args.option("index")?.map(args::text).transpose()?;
    let primary = args.evaluator.database.borrow().tables[&table].key.clone();
    let name = index.unwrap_or_else(|| primary.clone());
    let (mut keys, mut wrong) = (Vec::new(), None::<Fault>);
    for i in 1..args.len() {
        let key = args.datum(i)?;
        if key.has_bound() {
            return Err(Fault::unspecified("a bound as a key"));
        }
        match check_key(&key) {
            Err(fault) if matches!(key, Val::Null | Val::Shape(..)) => return Err(fault),
            Err(fault) if wrong.as_ref().is_some_and(|other| other.class != fault.class) => {
                wrong = Some(Fault::unspecified("more than one wrong key"));
            }
            Err(fault) => wrong = Some(fault),
            Ok(()) => keys.push(key),
        }
    }
    if let Some(fault) = wrong.take_if(|_| name == primary) {
        return Err(fault);
    }
    // What a secondary index cannot hold is found out where the rows are read.
    let rows = args.evaluator.shuffled(index::wanted(args.evaluator, &table, &name, &keys)?);
    let items = wrong.map_or_else(|| rows.into_iter().map(Ok).collect(), |fault| vec![Err(fault)]);
    Ok(TermValue::Seq(Seq { table: Some(table), interleaved: true, ..Seq::stream(items) }))
}

/// `between`, and its older form with null for no bound.
fn between(args: &Args<'_>) -> Out<TermValue> {
    let mut slice = match args.value(0)? {
        TermValue::Table(slice) => slice,
        TermValue::Datum(Val::Null) => return Err(Fault::missing("null for a table")),
        TermValue::Row(_, Val::Null) => return Err(Fault::unspecified("a missing row for a table")),
        other => return Err(Fault::logic(format!("expected TABLE_SLICE but found {}", other.type_of()))),
    };
    let bound = |i: usize, none: Val| match (args.datum(i)?, args.id) {
        (Val::Null, 36) => Ok(none),
        (Val::Null, _) => Err(Fault::logic("null as a bound")),
        (bound, _) => Ok(bound),
    };
    let (left, right) = (bound(1, Val::MinVal)?, bound(2, Val::MaxVal)?);
    let side = |name: &str, otherwise: bool| match args.option(name)? {
        None => Ok(otherwise),
        Some(Val::Text(side)) if side == "open" => Ok(false),
        Some(Val::Text(side)) if side == "closed" => Ok(true),
        Some(Val::Text(_)) => Err(Fault::logic("neither open nor closed")),
        Some(other) => Err(Fault::expected("STRING", &other)),
    };
    let (left_closed, right_closed) = (side("left_bound", true)?, side("right_bound", false)?);
    let named = args.option("index")?.map(args::text).transpose()?;
    let key = args.evaluator.database.borrow().tables[&slice.table].key.clone();
    let name = named.or_else(|| slice.index.clone()).unwrap_or(key);
    if !slice.is_all() {
        return Err(Fault::logic("two ranges"));
    }
    if slice.index.as_ref().is_some_and(|index| *index != name) {
        return Err(Fault::logic("ordered by another index"));
    }
    slice.index = Some(name);
    slice.bounds = Some([(left, left_closed), (right, right_closed)]);
    Ok(TermValue::Table(slice))
}
