//! Terms over sequences that can use an index of a table: `min`, `max`, `distinct`, `group`.

use datum::{Datum, Text};
use reql::IndexOption;
use reql::Operation;
use reql::Selector;
use reql::Transform;
use reql::{EvalError, Op};

use crate::group::Grouped;
use crate::row::Row;
use crate::seq::Seq;
use crate::slice::Slice;
use crate::stream::KeyOrder;
use crate::term::sequence::{self, Over};
use crate::value::Value;

/// `min`, `max`: by an index, or by the primary key when nothing else is said of a table.
pub(crate) fn extreme(over: Over<'_>) -> Result<Value, EvalError> {
    let name = own_index(&over)?;
    let bare_table = over.call.args.len() == 1 && matches!(over.first, Value::Table(_));
    if name.is_none() && !bare_table {
        return sequence::apply(over);
    }
    let (cx, call) = (over.cx, over.call);
    let term = if call.op == Op::Min { "min" } else { "max" };
    if call.args.len() > 1 {
        let why = format!("Cannot provide both a function and an index to {term}.");
        return Err(EvalError::logic(why));
    }
    let mut slice = table_slice(over.first)?;
    slice.index = Some(use_index(&slice, name)?);
    slice.order = if call.op == Op::Min { KeyOrder::Ascending } else { KeyOrder::Descending };
    let table = slice.table.clone();
    let first = slice.into_seq(cx)?.pipe.open(cx)?.next(&cx.env())?;
    match first {
        Some(row) => Row::of_selection(table, row).map(Value::Row),
        None => {
            let why = format!("`{term}` found no entries in the specified index.");
            Err(EvalError::non_existence(why))
        }
    }
}

/// `distinct`: of the items, or of the values of an index.
pub(crate) fn distinct(over: Over<'_>) -> Result<Value, EvalError> {
    let Some(name) = own_index(&over)? else {
        return sequence::apply(over);
    };
    let Value::Table(mut slice) = over.first else {
        return Err(EvalError::logic("Can only perform an indexed distinct on a TABLE."));
    };
    let index = use_index(&slice, Some(name))?;
    slice.index = Some(index.clone());
    if slice.order == KeyOrder::Any {
        slice.order = KeyOrder::Ascending;
    }
    // Values of the primary key differ anyway.
    let values = Transform::Field { name: index, term: "distinct" };
    let seq = slice.into_seq(over.cx)?;
    Ok(Value::Seq(Seq::stream(seq.pipe.then(values))))
}

/// `group`: by fields, functions and the value of an index, which comes last.
pub(crate) fn group(over: Over<'_>) -> Result<Value, EvalError> {
    let Some(name) = own_index(&over)? else {
        return sequence::apply(over);
    };
    let Operation::Group(mut by) = over.operation(IndexOption::Ignore)? else {
        return Err(EvalError::internal("GROUP is no group"));
    };
    let slice = table_slice(over.first)?;
    let index = use_index(&slice, Some(name))?;
    by.selectors.push(Selector::Field(Datum::String(index)));
    let pipe = slice.into_seq(over.cx)?.pipe;
    Ok(Value::Grouped(Grouped::Lazy { pipe, by, steps: Vec::new() }))
}

/// The index the query names in this very term.
fn own_index(over: &Over<'_>) -> Result<Option<Text>, EvalError> {
    let Some(term) = over.call.optarg("index") else { return Ok(None) };
    match over.cx.eval_datum(term, over.scope).map_err(|error| error.at("index"))? {
        Datum::String(name) => Ok(Some(name)),
        other => Err(EvalError::type_error("STRING", &other).at("index")),
    }
}

fn table_slice(value: Value) -> Result<Slice, EvalError> {
    match value {
        Value::Table(slice) => Ok(slice),
        other => Err(other.mismatch("TABLE_SLICE").at(0)),
    }
}

/// The index to use: the named one, which must exist, or the one in use already.
fn use_index(slice: &Slice, name: Option<Text>) -> Result<Text, EvalError> {
    let present = slice.index_name();
    slice.table.check_index(&present)?;
    let index = name.unwrap_or(present);
    slice.table.check_index(&index)?;
    Ok(index)
}
