//! Joins.

use std::collections::BTreeMap;

use super::{index, object, sequence, tables};
use crate::database::is_key;
use crate::evaluator::args::Args;
use crate::evaluator::into_datum;
use crate::evaluator::term_value::{Seq, TermValue};
use crate::fault::{Fault, Out};
use crate::value::Val;

/// A value of at most this length, as counted here, is within the length limit of keys.
const SURE_KEY_BYTES: usize = 90;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        50 => eq_join(args),
        72 => {
            let seq = sequence::of_value(args.evaluator, args.value(0)?)?;
            let items = sequence::spread(seq.items, |item| Ok(vec![zip(&item)?]));
            sequence::settled(args.evaluator, Seq { table: None, items, eager: false, ..seq }, seq.eager)
        }
        _ => join(args),
    }
}

fn pair(left: &Val, right: Option<Val>) -> Val {
    let right = right.map(|right| ("right".to_owned(), right));
    let members: BTreeMap<String, Val> =
        std::iter::once(("left".to_owned(), left.clone())).chain(right).collect();
    Val::Object(members)
}

fn zip(item: &Val) -> Out<Val> {
    let Val::Object(members) = item else { return Err(Fault::unspecified("zip of no object")) };
    let left = members.get("left").ok_or_else(|| Fault::logic("not a join"))?;
    members.get("right").map_or_else(|| Ok(left.clone()), |right| object::merge(left, right))
}

/// `inner_join` and `outer_join`: every left item with every right one.
fn join(args: &Args<'_>) -> Out<TermValue> {
    let seq = |i: usize| sequence::of_value(args.evaluator, args.value(i)?);
    let (left, right) = (seq(0), seq(1));
    // RethinkDB reads the right sequence for each left item; a server may read it once, before the left one, or even if no
    // item is needed.
    if let Ok(right) = &right
        && right.items.iter().any(Result::is_err)
    {
        return Err(Fault::unspecified("whether the right sequence of a join is read"));
    }
    // An error of the right side belongs to a left item. Source: terms/rewrites.cc of RethinkDB 2.4.
    if let (Ok(left), Err(fault)) = (&left, &right) {
        let items = left.items.iter().map(|item| item.clone().and_then(|_| Err(fault.clone()))).collect();
        return sequence::settled(
            args.evaluator,
            Seq { infinite: left.infinite, ..Seq::stream(items) },
            left.eager,
        );
    }
    let (left, right) = Fault::both(left, right)?;
    // An error of the predicate belongs to a pair, and an array on the left stays one. Source: as above.
    let (func, eager) = (args.constant(2), left.eager);
    let items = sequence::spread_parts(left.items, |item| {
        let found = sequence::spread(right.items.clone(), |other| {
            let func = func.as_ref().map_err(Clone::clone)?;
            let holds = args.evaluator.test(func, &[item.clone(), other.clone()])?;
            Ok(if holds { vec![pair(&item, Some(other))] } else { Vec::new() })
        });
        // RethinkDB rewrites a join to other terms, some of which collect the pairs of one item in an array.
        if args.evaluator.exceeds(found.len()) && !eager {
            return Err(Fault::unspecified("an item is joined with more than an array may hold"));
        }
        // No rule determines the items that a server returns before it fails.
        if args.id == 48 || found.iter().any(Result::is_err) {
            return Ok(found);
        }
        let found = sequence::collected(found)?;
        let found = if found.is_empty() { vec![pair(&item, None)] } else { found };
        Ok(found.into_iter().map(Ok).collect())
    });
    sequence::settled(args.evaluator, Seq { infinite: left.infinite, ..Seq::stream(items) }, eager)
}

/// The bytes of a number in a key beside its text.
const NUMBER_BYTES: usize = 18;

/// The number of numbers in a value that may be a key.
fn numbers(value: &Val) -> usize {
    match value {
        Val::Number(_) => 1,
        Val::Array(items) => items.iter().map(numbers).sum(),
        _ => 0,
    }
}

fn eq_join(args: &Args<'_>) -> Out<TermValue> {
    let left = args.value(0).and_then(|left| sequence::of_value(args.evaluator, left));
    let ((left, table), selector) = Fault::both(Fault::both(left, tables::whole(args, 2)), args.selector(1))?;
    let ordered = args.option("ordered")?.is_some_and(|value| value.truth());
    let key = args.evaluator.database.borrow().tables[&table].key.clone();
    let name = match args.option("index")? {
        Some(name) => crate::evaluator::args::text(name)?,
        None => key,
    };
    // The index is looked for when there is a key. Source: datum_stream.cc of RethinkDB 2.4.
    let items = sequence::spread(left.items, |item| {
        let value = match args
            .evaluator
            .call_func(&selector, std::slice::from_ref(&item), false)
            .and_then(into_datum)
        {
            Err(fault) if fault.is_missing() => return Ok(Vec::new()),
            value => value?,
        };
        if matches!(value, Val::Null) {
            return Ok(Vec::new());
        }
        let text = value.to_json().to_string();
        // In a key a number has sixteen hexadecimal digits beside its decimal ones. Source: datum.cc.
        let bytes = text.len() + NUMBER_BYTES * numbers(&value);
        if !is_key(&value) || bytes > SURE_KEY_BYTES || text.contains("\\u0000") {
            return Err(Fault::unspecified("a join by what is no key"));
        }
        // `ordered` is about the left items. Source: as above.
        let rows = args.evaluator.shuffled(index::wanted(args.evaluator, &table, &name, &[value])?);
        Ok(rows.into_iter().map(|row| pair(&item, Some(row))).collect())
    });
    let items = if ordered { items } else { args.evaluator.shuffled(items) };
    sequence::settled(args.evaluator, Seq { infinite: left.infinite, ..Seq::stream(items) }, left.eager)
}
