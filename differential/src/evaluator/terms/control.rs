//! Constants, branches, errors, and terms about values.

use serde_json::Value as Json;

use super::{datum, group};
use crate::evaluator::args::Args;
use crate::evaluator::into_datum;
use crate::evaluator::term_value::{Func, Groups, TermValue};
use crate::fault::{Class, Fault, Out};
use crate::value::Val;

/// The namespace of `uuid` of a string.
const NAMESPACE: uuid::Uuid = uuid::uuid!("91461c99-f89d-49d2-af96-d8e2e14e9b58");

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        2 => {
            // Item by item: an error of an item is reported unless there are too many items before it.
            let mut items = Vec::new();
            for i in 0..args.len() {
                items.push(into_datum(args.value_with(i, args.literals)?)?);
                args.evaluator.fits(items.len())?;
            }
            datum(Val::Array(items))
        }
        1 => datum(args.datum(0)?),
        3 => Err(Fault::unspecified("an object with arguments")),
        12 if args.is_empty() => Err(Fault::new(Class::Empty, "empty error")),
        12 => Err(Fault::new(Class::User, args.text(0)?)),
        23 => datum(Val::Bool(!args.datum(0)?.truth())),
        52 => datum(Val::Text(unread(args)?.type_of().to_owned())),
        64 => funcall(args),
        65 => branch(args),
        66 | 67 => and_or(args),
        92 => default(args),
        98 => json(args),
        137 => literal(args),
        155 => match args.datum(0)? {
            Val::Binary(bytes) => datum(Val::Binary(bytes)),
            Val::Text(text) => datum(Val::Binary(text.into_bytes())),
            other => Err(Fault::expected("STRING", &other)),
        },
        169 if args.is_empty() => {
            let drawn = u128::from(args.evaluator.chance()) << 64 | u128::from(args.evaluator.chance());
            datum(Val::Text(uuid::Builder::from_random_bytes(drawn.to_be_bytes()).into_uuid().to_string()))
        }
        169 => {
            let name = args.text(0)?;
            datum(Val::Text(uuid::Uuid::new_v5(&NAMESPACE, name.as_bytes()).to_string()))
        }
        172 => super::coerce::json_text(&args.datum(0)?).and_then(|text| datum(Val::Text(text))),
        180 => datum(Val::MinVal),
        _ => datum(Val::MaxVal),
    }
}

/// `do`: the first argument is the function; if it is none, it is the result.
fn funcall(args: &Args<'_>) -> Out<TermValue> {
    let func = match args.value(0)? {
        TermValue::Func(func) => func,
        other => Func::Constant(into_datum(other)?),
    };
    if args.len() < 2 {
        return args.evaluator.call_func(&func, &[], false);
    }
    let rest: Out<Vec<Val>> = (2..args.len()).map(|i| args.datum(i)).collect();
    match args.value(1)? {
        TermValue::Groups(groups) => {
            let rest = rest?;
            let call = |value: Val| {
                let values: Vec<Val> = std::iter::once(value).chain(rest.iter().cloned()).collect();
                into_datum(args.evaluator.call_func(&func, &values, false)?)
            };
            let each =
                group::ready(args.evaluator, groups)?.into_iter().map(|(key, value)| Ok((key, call(value)?)));
            each.collect::<Out<Vec<_>>>().map(|groups| TermValue::Groups(Groups::Ready(groups)))
        }
        first => {
            let first = into_datum(first)?;
            let values: Vec<Val> = std::iter::once(first).chain(rest?).collect();
            args.evaluator.call_func(&func, &values, false)
        }
    }
}

/// The value behind the first true test, or the last argument.
fn branch(args: &Args<'_>) -> Out<TermValue> {
    if args.len().is_multiple_of(2) {
        return Err(Fault::logic("an even number of arguments"));
    }
    for i in (0..args.len() - 1).step_by(2) {
        if args.datum(i)?.truth() {
            return args.value(i + 1);
        }
    }
    args.value(args.len() - 1)
}

/// The value that decides: the first true one for `or`, the first false one for `and`.
fn and_or(args: &Args<'_>) -> Out<TermValue> {
    let mut last = TermValue::Datum(Val::Bool(args.id == 67));
    for i in 0..args.len() {
        last = args.value(i)?;
        if into_datum(last.clone())?.truth() == (args.id == 66) {
            break;
        }
    }
    Ok(last)
}

/// The value, or the other one if it is null or missing.
fn default(args: &Args<'_>) -> Out<TermValue> {
    let caught = match args.value(0) {
        Ok(TermValue::Datum(Val::Null) | TermValue::Row(_, Val::Null)) => None,
        Err(fault) if fault.is_missing() => Some(fault),
        decided => return decided,
    };
    let otherwise = match args.value(1) {
        Ok(TermValue::Func(func)) => {
            let message = caught.as_ref().map_or(Val::Null, |fault| Val::Text(fault.why.clone()));
            args.evaluator.call_func(&func, &[message], false)
        }
        decided => decided,
    };
    match otherwise {
        Err(fault) if fault.class == Class::Empty => caught.map_or_else(|| datum(Val::Null), Err),
        decided => decided,
    }
}

/// `json`: a value written as text.
fn json(args: &Args<'_>) -> Out<TermValue> {
    let text = args.text(0)?;
    match serde_json::from_str::<Json>(&text) {
        Ok(value) => {
            args.evaluator.fits(longest(&value))?;
            datum(Val::of_json(&value))
        }
        Err(_) => Err(Fault::logic("not JSON")),
    }
}

/// The number of items of the longest array in it.
fn longest(json: &Json) -> usize {
    match json {
        Json::Array(items) => items.iter().map(longest).fold(items.len(), usize::max),
        Json::Object(members) => members.values().map(longest).max().unwrap_or(0),
        _ => 0,
    }
}

fn literal(args: &Args<'_>) -> Out<TermValue> {
    if !args.literals {
        return Err(Fault::logic("stray literal"));
    }
    match args.len() {
        0 => datum(Val::Literal(None)),
        _ => datum(Val::Literal(Some(Box::new(args.datum(0)?)))),
    }
}

/// The first argument, of which only the type matters: a server need not read its row.
pub(super) fn unread(args: &Args<'_>) -> Out<TermValue> {
    let is_row = args.term(0).is_some_and(names_a_row);
    match args.value(0) {
        Err(_) if is_row => Err(Fault::unspecified("the type of a row under what is no key")),
        other => other,
    }
}

/// Whether a term contains a `get`.
fn names_a_row(term: &Json) -> bool {
    let Json::Array(items) = term else { return false };
    items.first().is_some_and(|id| *id == 16) || items.iter().any(names_a_row)
}
