//! `order_by` and `distinct`.

use std::cmp::Ordering;

use serde_json::Value as Json;

use super::{datum, index, sequence};
use crate::evaluator::args::Args;
use crate::evaluator::into_datum;
use crate::evaluator::term_value::{Func, Seq, Slice, TermValue};
use crate::fault::{Class, Fault, Out};
use crate::value::Val;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    if args.id == 42 { distinct(args) } else { order_by(args) }
}

/// A selector and whether its order is descending.
pub(super) type Order = (Func, bool);

fn order_by(args: &Args<'_>) -> Out<TermValue> {
    let first = args.value(0)?;
    let orders: Out<Vec<Order>> = (1..args.len()).map(|i| order(args, i)).collect();
    let nothing = matches!(&orders, Ok(orders) if orders.is_empty());
    let orders = match nothing {
        true => Vec::new(),
        false => Fault::both(sequence::of_value(args.evaluator, first.clone()), orders)?.1,
    };
    if let TermValue::Seq(seq) = &first
        && seq.items.is_empty()
        && !seq.eager
    {
        return Err(Fault::unspecified("whether it can be seen that a stream holds nothing"));
    }
    if let Some(term) = args.option_term("index") {
        if matches!(&first, TermValue::Datum(Val::Array(items)) if items.is_empty()) {
            args.evaluator.datum(directed(term).0, args.scope)?;
            return Ok(first);
        }
        if !matches!(first, TermValue::Table(_)) {
            sequence::of_value(args.evaluator, first.clone())?;
        }
        return by_index(args, first, term, &orders);
    }
    let nothing = if orders.is_empty() { Err(Fault::logic("ordered by nothing")) } else { Ok(()) };
    let (seq, ()) = Fault::both(sequence::of_value(args.evaluator, first), nothing)?;
    let table = seq.table.clone();
    let items = sorted(args, sequence::array(args.evaluator, seq)?, &orders)?;
    match table {
        None => datum(Val::Array(items)),
        Some(_) => {
            let items = items.into_iter().map(Ok).collect();
            Ok(TermValue::Seq(Seq { table, eager: true, ..Seq::stream(items) }))
        }
    }
}

/// An argument that may be inside of `asc` or `desc`.
fn directed(term: &Json) -> (&Json, bool) {
    match term.as_array().map(Vec::as_slice) {
        Some([id, Json::Array(inner), ..]) if inner.len() == 1 && (*id == 73 || *id == 74) => {
            (&inner[0], *id == 74)
        }
        _ => (term, false),
    }
}

fn order(args: &Args<'_>, i: usize) -> Out<Order> {
    let Some(term) = args.term(i) else { return Err(Fault::unspecified("an order out of r.args")) };
    of_term(args, term)
}

pub(super) fn of_term(args: &Args<'_>, term: &Json) -> Out<Order> {
    let (term, descends) = directed(term);
    if term[0] == 69 && !super::is_deterministic(term) {
        return Err(Fault::logic("an order that is not deterministic"));
    }
    match args.evaluator.eval(term, args.scope, false)? {
        TermValue::Func(func) => Ok((func, descends)),
        other => Ok((Func::Field(into_datum(other)?), descends)),
    }
}

/// Sorts items; the sort is stable. A key of an item is evaluated only if other items share all keys before it.
fn sorted(args: &Args<'_>, items: Vec<Val>, orders: &[Order]) -> Out<Vec<Val>> {
    let Some((order, rest)) = orders.split_first() else { return Ok(items) };
    if items.len() < 2 {
        return Ok(items);
    }
    let order = std::slice::from_ref(order);
    let keys: Vec<Out<Vec<Option<Val>>>> = items.iter().map(|item| keys(args, order, item)).collect();
    let keys = Fault::all(keys)?;
    let mut keyed: Vec<_> = keys.into_iter().zip(items).collect();
    keyed.sort_by(|(a, _), (b, _)| compare(order, a, b));
    let runs = keyed.chunk_by(|(a, _), (b, _)| a == b);
    let runs = runs.map(|run| sorted(args, run.iter().map(|(_, item)| item.clone()).collect(), rest));
    Ok(Fault::all(runs.collect())?.into_iter().flatten().collect())
}

/// The sort keys of an item; `None` for a missing one.
pub(super) fn keys(args: &Args<'_>, orders: &[Order], item: &Val) -> Out<Vec<Option<Val>>> {
    let key = |(func, _): &Order| match args.evaluator.call_datum(func, std::slice::from_ref(item)) {
        Err(fault) if fault.is_missing() => Ok(None),
        key => key.map(Some),
    };
    orders.iter().map(key).collect()
}

/// Compares the sort keys of two items. A missing key is the least.
pub(super) fn compare(orders: &[Order], a: &[Option<Val>], b: &[Option<Val>]) -> Ordering {
    let mut compared = orders.iter().zip(a.iter().zip(b)).map(
        |((_, descends), (a, b))| {
            if *descends { b.cmp(a) } else { a.cmp(b) }
        },
    );
    compared.find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
}

fn by_index(args: &Args<'_>, first: TermValue, term: &Json, orders: &[Order]) -> Out<TermValue> {
    let (term, descends) = directed(term);
    let name = crate::evaluator::args::text(args.evaluator.datum(term, args.scope)?)?;
    let TermValue::Table(mut slice) = first else { return Err(Fault::logic("not a table")) };
    if slice.descends.is_some() {
        return Err(Fault::logic("two orders"));
    }
    if slice.index.as_ref().is_some_and(|index| *index != name) {
        return Err(Fault::logic("bounds on another index"));
    }
    slice.index = Some(name.clone());
    slice.descends = Some(descends);
    if orders.is_empty() {
        return Ok(TermValue::Table(slice));
    }
    // The index first, then the other orders among equal values of it.
    let entries = index::entries_of(args.evaluator, &slice, &name)?;
    let mut items: Vec<Out<Val>> = Vec::new();
    let mut at = 0;
    while at < entries.len() {
        let same: Vec<Val> = entries[at..]
            .iter()
            .take_while(|(value, _)| *value == entries[at].0)
            .map(|(_, row)| row.clone())
            .collect::<Out<_>>()?;
        at += same.len();
        if args.evaluator.exceeds(same.len()) {
            items.push(Err(Fault::resource("too many rows with the same value")));
            continue;
        }
        items.extend(sorted(args, same, orders)?.into_iter().map(Ok));
    }
    Ok(TermValue::Seq(Seq { table: Some(slice.table), ..Seq::stream(items) }))
}

fn distinct(args: &Args<'_>) -> Out<TermValue> {
    let first = args.value(0)?;
    let index = args.option("index")?;
    // Source: terms/sort.cc of RethinkDB 2.4: an index, or the primary key of a table, is read in order, and
    // anything else as a whole.
    let key = |table: &str| args.evaluator.database.borrow().tables.get(table).map(|table| table.key.clone());
    let first = match first {
        TermValue::Table(slice)
            if index.is_none() && (slice.index.is_none() || slice.index == key(&slice.table)) =>
        {
            let descends = slice.descends.or(Some(false));
            let seq = sequence::of_value(args.evaluator, TermValue::Table(Slice { descends, ..slice }))?;
            return Ok(TermValue::Seq(Seq::stream(seq.items)));
        }
        other => other,
    };
    let is_table = index.is_some();
    let mut items = match (index, first) {
        (Some(name), TermValue::Table(slice)) => {
            let name = crate::evaluator::args::text(name)?;
            match &slice.index {
                Some(present) if *present != name && key(&slice.table).as_ref() == Some(&name) => {
                    return Err(Fault::unspecified("primary keys in the order of another index"));
                }
                Some(present) if *present != name => return Err(Fault::logic("not a table")),
                _ => {}
            }
            let entries = index::entries_of(args.evaluator, &slice, &name)?;
            entries.into_iter().map(|(value, _)| value).collect()
        }
        (Some(_), _) => return Err(Fault::logic("not a table")),
        (None, first) => {
            let seq = sequence::of_value(args.evaluator, first)?;
            let crowded = !is_table && args.evaluator.exceeds(seq.items.len());
            match sequence::all(seq) {
                Err(fault) if crowded && fault.class != Class::Resource => {
                    return Err(Fault::unspecified("which of two mistakes is met first"));
                }
                items => items?,
            }
        }
    };
    items.sort();
    items.dedup();
    if !is_table {
        return args.evaluator.array(items).and_then(datum);
    }
    Ok(TermValue::Seq(Seq::stream(items.into_iter().map(Ok).collect())))
}
