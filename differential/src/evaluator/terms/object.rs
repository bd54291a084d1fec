//! Objects, and the terms over them, which apply to each item of a sequence.

use std::collections::BTreeMap;

use super::members::{members, of_members};
use super::paths::Paths;
use super::{datum, sequence, slice};
use crate::evaluator::args::{self, Args};
use crate::evaluator::term_value::{Func, Seq, TermValue};
use crate::evaluator::{Evaluator, into_datum};
use crate::fault::{Fault, Out};
use crate::value::Val;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        94 | 186 => {
            let value = args.datum(0)?;
            let Val::Object(members) = value else { return Err(Fault::logic("no object")) };
            let items = match args.id {
                94 => members.into_keys().map(Val::Text).collect(),
                _ => members.into_values().collect(),
            };
            args.evaluator.array(items).and_then(datum)
        }
        143 => object(args),
        170 => match args.datum(1)? {
            Val::Number(_) => slice::nth(args),
            Val::Text(_) => over_items(args),
            other => Err(Fault::expected("NUMBER or STRING", &other)),
        },
        96 => {
            let having = over_with(args, args.value(0)?, 32)?;
            over_with(args, having, 33)
        }
        _ => over_items(args),
    }
}

fn object(args: &Args<'_>) -> Out<TermValue> {
    if !args.len().is_multiple_of(2) {
        return Err(Fault::logic("an odd number of arguments"));
    }
    let mut out = BTreeMap::new();
    for i in (0..args.len()).step_by(2) {
        let (key, value) = (args.text(i)?, args.datum(i + 1)?);
        if out.insert(key, value).is_some() {
            return Err(Fault::logic("duplicate key"));
        }
    }
    datum(Val::Object(out))
}

fn over_items(args: &Args<'_>) -> Out<TermValue> {
    over_with(args, args.value(0)?, args.id)
}

/// The term `id` of an object, or of each item of a sequence.
fn over_with(args: &Args<'_>, first: TermValue, id: u64) -> Out<TermValue> {
    let single = match first {
        TermValue::Datum(Val::Array(items)) => {
            let out: Out<Vec<Vec<Val>>> = items.iter().map(|item| of_item(args, id, item)).collect();
            return args.evaluator.array(out?.concat()).and_then(datum);
        }
        TermValue::Table(_) | TermValue::Seq(_) => {
            let seq = sequence::of_value(args.evaluator, first)?;
            let items = sequence::spread(seq.items, |item| of_item(args, id, &item));
            // The items remain rows of their table only if the term leaves them unchanged.
            let table = seq.table.filter(|_| id == 32);
            let eager = seq.eager && table.is_some();
            return sequence::settled(
                args.evaluator,
                Seq { table, items, eager, infinite: seq.infinite, interleaved: seq.interleaved },
                seq.eager,
            );
        }
        other => into_datum(other)?,
    };
    match &single {
        Val::Object(_) => of_object(args, id, &single).and_then(datum),
        pseudo if pseudo.is_pseudo() => Err(Fault::logic("a pseudotype is no object")),
        other => {
            // Its other arguments may be faulty, too.
            let rest = match id {
                31 | 170 => args.text(1).map(|_| ()),
                35 => Ok(()),
                _ => paths(args).map(|_| ()),
            };
            Fault::both(Err::<TermValue, _>(Fault::expected("OBJECT", other)), rest).map(|(value, ())| value)
        }
    }
}

fn paths(args: &Args<'_>) -> Out<Paths> {
    let specs: Out<Vec<Val>> = (1..args.len()).map(|i| args.datum(i)).collect();
    Paths::of(&args.evaluator.array(specs?)?)
}

/// The results of one item of a sequence.
fn of_item(args: &Args<'_>, id: u64, item: &Val) -> Out<Vec<Val>> {
    let answer = match item {
        Val::Object(_) => of_object(args, id, item),
        Val::Array(_) => Err(Fault::logic("a sequence of sequences")),
        other if other.is_pseudo() => Err(Fault::logic("a pseudotype is no object")),
        other => Err(Fault::expected("OBJECT", other)),
    };
    match (id, answer) {
        // Existing fields only.
        (31 | 170, Err(fault)) if fault.is_missing() => Ok(Vec::new()),
        (32, Err(fault)) if fault.is_missing() => Ok(Vec::new()),
        (32, Ok(has)) => Ok(if has.truth() { vec![item.clone()] } else { Vec::new() }),
        (_, answer) => Ok(vec![answer?]),
    }
}

fn of_object(args: &Args<'_>, id: u64, object: &Val) -> Out<Val> {
    match id {
        31 | 170 => {
            let Val::Object(members) = object else { return Err(Fault::expected("OBJECT", object)) };
            let field = args.text(1)?;
            members.get(&field).cloned().ok_or_else(|| Fault::missing("no such field"))
        }
        35 => merge_all(args, object),
        _ => {
            let paths = paths(args)?;
            if paths.looks_inside() && args.evaluator.exceeds(longest(object)) {
                // RethinkDB drops such an array without an error.
                return Err(Fault::unspecified("a long array that is looked into"));
            }
            Ok(match id {
                32 => Val::Bool(paths.has(object)),
                33 => paths.pluck(object, false).unwrap_or_else(|| Val::Object(BTreeMap::new())),
                _ => paths.without(object, false).unwrap_or_else(|| object.clone()),
            })
        }
    }
}

/// The number of items of the longest array in a value.
fn longest(value: &Val) -> usize {
    match value {
        Val::Array(items) => items.iter().map(longest).fold(items.len(), usize::max),
        Val::Object(members) => members.values().map(longest).max().unwrap_or(0),
        _ => 0,
    }
}

fn merge_all(args: &Args<'_>, object: &Val) -> Out<Val> {
    let mut merged = object.clone();
    for i in 1..args.len() {
        let layer = match args.value_with(i, true)? {
            TermValue::Func(func) => into_datum(args.evaluator.call_func(&func, &[merged.clone()], true)?)?,
            other => into_datum(other)?,
        };
        // Binary data is no object and replaces one. Source: terms/obj_or_seq.cc.
        if matches!(layer, Val::Time(..) | Val::Shape(..)) {
            return Err(Fault::logic("a pseudotype cannot be merged"));
        }
        merged = merge(&merged, &layer)?;
    }
    Ok(merged)
}

/// Merges `right` into `left`. Times and shapes count as objects, as in datum.cc of RethinkDB.
pub(super) fn merge(left: &Val, right: &Val) -> Out<Val> {
    if let Val::Literal(value) = right {
        return Ok(value.as_deref().cloned().unwrap_or(Val::Null));
    }
    let (Some(mut out), Some(right)) = (members(left), members(right)) else { return Ok(unwrapped(right)) };
    for (name, value) in right {
        match (out.get(&name), value) {
            (_, Val::Literal(None)) => {
                out.remove(&name);
            }
            (Some(old), value) if !matches!(value, Val::Literal(_)) => {
                let merged = merge(old, &value)?;
                out.insert(name, merged);
            }
            (_, value) => {
                out.insert(name, unwrapped(&value));
            }
        }
    }
    of_members(out)
}

/// A value without the literals in it.
fn unwrapped(value: &Val) -> Val {
    match value {
        Val::Literal(Some(inner)) => unwrapped(inner),
        Val::Object(members) => {
            let kept = members.iter().filter(|(_, value)| !matches!(value, Val::Literal(None)));
            Val::Object(kept.map(|(name, value)| (name.clone(), unwrapped(value))).collect())
        }
        other => other.clone(),
    }
}

/// The field of an item, for `sum('field')` and similar terms.
pub fn get_field(evaluator: &Evaluator, item: &Val, field: &Val) -> Out<Val> {
    if !matches!((item, field), (Val::Object(_), _) | (_, Val::Text(_))) {
        return Err(Fault::unspecified("a field of no object by what is no name"));
    }
    match item {
        Val::Object(members) => {
            let field = args::text(field.clone())?;
            members.get(&field).cloned().ok_or_else(|| Fault::missing("no such field"))
        }
        Val::Array(items) => {
            let func = Func::Field(field.clone());
            let found = items.iter().map(|item| match item {
                Val::Array(_) => Err(Fault::logic("a sequence of sequences")),
                item => match evaluator.call_datum(&func, std::slice::from_ref(item)) {
                    Err(fault) if fault.is_missing() => Ok(Vec::new()),
                    found => Ok(vec![found?]),
                },
            });
            found.collect::<Out<Vec<Vec<Val>>>>().and_then(|found| evaluator.array(found.concat()))
        }
        other if other.is_pseudo() => Err(Fault::logic("a pseudotype is no object")),
        other => Err(Fault::expected("OBJECT", other)),
    }
}
