//! Terms on sequences that can use an index: `min`, `max`, `distinct`, `group`.

use std::sync::Arc;

use datum::{Datum, Text};
use reql::IndexOption;
use reql::Operation;
use reql::Selector;
use reql::Transform;
use reql::{Call, Closure, EvalError, FuncTerm, Op, ResultKind, Scope, StoredFunc, Term, VarId};
use shard::IndexKind;

use super::sequence;
use super::sequence::SequenceCall;
use crate::context::Cx;
use crate::stream::{Distinct, Pipe, Source, by_function};
use crate::table::{Index, IndexItems, KeyOrder};
use crate::value::{Grouped, Origin, Row, Seq, Slice, Value};

/// `min`, `max`: by an index, or by the primary key of a table without further arguments.
pub(crate) fn extreme(over: SequenceCall<'_>) -> Result<Value, EvalError> {
    let (cx, term) = (over.cx, extreme_name(over.call.op));
    let slice = match extreme_of(over)? {
        Extreme::First(slice) => slice,
        Extreme::OfItems(over) => return sequence::apply(over),
    };
    let table = slice.table.clone();
    match slice.into_seq(cx)?.pipe.open(cx)?.next(&cx.env())? {
        Some(row) => Row::of_selection(table, row).map(Value::Row),
        None => {
            let why = format!("`{term}` found no entries in the specified index.");
            Err(EvalError::logic(why))
        }
    }
}

/// How `min` and `max` find an item.
pub(crate) enum Extreme<'a> {
    /// As the first row of this table, which is in the order of an index.
    First(Slice),
    /// By comparing all items.
    OfItems(SequenceCall<'a>),
}

/// How this call of `min` or `max` finds an item. Reads no rows.
pub(crate) fn extreme_of(over: SequenceCall<'_>) -> Result<Extreme<'_>, EvalError> {
    let name = own_index(&over)?;
    let (cx, call) = (over.cx, over.call);
    let bare_table = call.args.len() == 1 && matches!(&over.first, Value::Table(slice) if slice.is_whole());
    if name.is_none() && !bare_table {
        return Ok(Extreme::OfItems(over));
    }
    if call.args.len() > 1 {
        let why = format!("Cannot provide both a function and an index to {}.", extreme_name(call.op));
        return Err(EvalError::logic(why));
    }
    let mut slice = whole_table(cx, over.first)?;
    slice.index = Some(use_index(cx, &slice, name)?);
    slice.order = if call.op == Op::Min { KeyOrder::Ascending } else { KeyOrder::Descending };
    Ok(Extreme::First(slice))
}

fn extreme_name(op: Op) -> &'static str {
    if op == Op::Min { "min" } else { "max" }
}

/// `distinct`: of the items, or of the values of an index.
pub(crate) fn distinct(over: SequenceCall<'_>) -> Result<Value, EvalError> {
    let Some(name) = own_index(&over)? else {
        return match over.first {
            // Rows differ in their primary key: in its order, no state is needed. Source: terms/sort.cc of RethinkDB.
            Value::Table(mut slice) if slice.index_name() == slice.table.primary_key() => {
                if slice.order == KeyOrder::Any {
                    slice.order = KeyOrder::Ascending;
                }
                Ok(Value::Seq(Seq::stream(slice.into_seq(over.cx)?.pipe)))
            }
            _ => sequence::apply(over),
        };
    };
    let refused = || EvalError::logic("Can only perform an indexed distinct on a TABLE.");
    let Value::Table(mut slice) = over.first else { return Err(refused()) };
    if name == slice.table.primary_key() {
        if slice.is_whole() {
            slice.order = KeyOrder::Ascending;
        }
        // Values of the primary key differ, whatever the order of the rows is.
        let values = Transform::Field { name, term: "distinct" };
        return Ok(Value::Seq(Seq::stream(slice.into_seq(over.cx)?.pipe.then(values))));
    }
    if slice.index.as_ref().is_some_and(|present| *present != name) {
        return Err(refused());
    }
    slice.index = Some(use_index(over.cx, &slice, Some(name))?);
    if slice.order == KeyOrder::Any {
        slice.order = KeyOrder::Ascending;
    }
    let source = slice.source(over.cx, IndexItems::Values)?;
    let origin = match &source {
        Source::Rows(rows) => Some(Box::new(Origin::Distinct(rows.clone()))),
        _ => None,
    };
    let values = Pipe::of_source(source).open(over.cx)?;
    Ok(Value::Seq(Seq { origin, ..Seq::stream(Pipe::of_items(Distinct::new(values))) }))
}

/// `group`: by fields, functions and the value of an index, which is the last part of the key.
pub(crate) fn group(over: SequenceCall<'_>) -> Result<Value, EvalError> {
    let Some(name) = own_index(&over)? else {
        return sequence::apply(over);
    };
    let Operation::Group(mut by) = over.operation(IndexOption::Ignore)? else {
        return Err(EvalError::internal("GROUP is not a group operation"));
    };
    let mut slice = whole_table(over.cx, over.first)?;
    let index = use_index(over.cx, &slice, Some(name))?;
    slice.index = Some(index.clone());
    let (mut items, mut steps, mut relied_on) = (IndexItems::Rows, Vec::new(), None);
    match slice.table.index(over.cx, &index)? {
        Index::Primary => by.selectors.push(Selector::Field(Datum::String(index))),
        Index::Secondary(config) if config.kind == IndexKind::One => {
            by.selectors.push(by_function(&config)?);
            relied_on = Some(config);
        }
        // The value under which a row was found is not in the row: pairs contain both.
        Index::Secondary(_) => {
            items = IndexItems::Pairs;
            by.selectors = by.selectors.into_iter().map(of_row).collect::<Result<_, _>>()?;
            by.selectors.push(Selector::Func(part(0)?));
            steps.push(Transform::Map(part(1)?));
        }
    }
    let pipe = Pipe::of_source(slice.source(over.cx, items)?.relying_on(relied_on));
    Ok(Value::Grouped(Grouped::Lazy { pipe, by, steps }))
}

/// A variable that drivers never use.
const PAIR: i64 = -1;

/// The function that takes an element of a pair.
fn part(i: usize) -> Result<Closure, EvalError> {
    stored(&format!("[69,[[2,[{PAIR}]],[45,[[10,[{PAIR}]],{i}]]]]"))
}

/// Converts a selector of rows to one of pairs of index value and row.
fn of_row(selector: Selector) -> Result<Selector, EvalError> {
    match selector {
        Selector::Field(Datum::String(field)) => {
            let row = format!("[45,[[10,[{PAIR}]],1]]");
            let field = Datum::String(field).to_json_string();
            stored(&format!("[69,[[2,[{PAIR}]],[31,[{row},{field}]]]]")).map(Selector::Func)
        }
        Selector::Field(other) => Ok(Selector::Field(other)),
        Selector::Func(closure) => of_second(&closure).map(Selector::Func),
    }
}

/// The function that calls `closure` with the row of a pair. Captured values are not written into it, since they may be
/// very large.
fn of_second(closure: &Closure) -> Result<Closure, EvalError> {
    let inner = &closure.func;
    let pair = (i64::MIN..=PAIR).rev().map(VarId).find(|id| !inner.captures.contains(id));
    let pair = pair.ok_or_else(|| EvalError::internal("a function captures every variable"))?;
    let call = |op, args| Term::Call(Box::new(Call::new(op, args, Vec::new())));
    let row = call(Op::Nth, vec![Term::Var(pair), Term::Datum(1.into())]);
    let func = FuncTerm {
        params: vec![pair],
        body: call(Op::Funcall, vec![Term::Func(inner.clone()), row]),
        captures: inner.captures.clone(),
        closed: inner.closed,
        path: None,
    };
    reql::closure(&Arc::new(func), &Scope::of_call(&[], &[], &closure.captured), ResultKind::Datum)
}

fn stored(text: &str) -> Result<Closure, EvalError> {
    let function = StoredFunc::parse(text.into());
    closed(&function.map_err(|error| EvalError::internal(error.to_string()))?)
}

fn closed(function: &StoredFunc) -> Result<Closure, EvalError> {
    reql::closure(function.func(), &Scope::empty(), ResultKind::Datum)
}

/// Whether the term or the whole query names an index.
pub(crate) fn names_index(over: &SequenceCall<'_>) -> bool {
    over.call.optarg("index").is_some() || over.cx.has_global("index")
}

/// The index that the term or the whole query names.
fn own_index(over: &SequenceCall<'_>) -> Result<Option<Text>, EvalError> {
    let own = over.call.optarg("index");
    let named = match own {
        Some(term) => over.cx.eval_datum(term, over.scope).map_err(|error| error.at("index"))?,
        None => match over.cx.global("index")? {
            Some(datum) => datum.clone(),
            None => return Ok(None),
        },
    };
    match named {
        Datum::String(name) => Ok(Some(name)),
        other if own.is_some() => Err(EvalError::type_error("STRING", &other).at("index")),
        other => Err(EvalError::type_error("STRING", &other).frameless()),
    }
}

fn whole_table(cx: &Cx, value: Value) -> Result<Slice, EvalError> {
    match value {
        Value::Table(slice) if slice.is_whole() => Ok(slice),
        other => Err(other.not_a(cx, "TABLE").at(0)),
    }
}

/// The index to use: the named one, which must exist, or the present one.
fn use_index(cx: &Cx, slice: &Slice, name: Option<Text>) -> Result<Text, EvalError> {
    let present = slice.index_name();
    slice.table.index(cx, &present)?;
    let index = name.unwrap_or(present);
    slice.table.index(cx, &index)?;
    Ok(index)
}
