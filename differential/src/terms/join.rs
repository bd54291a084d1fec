//! Joins.

use std::collections::BTreeMap;

use super::{index, object, sequence, tables};
use crate::args::Args;
use crate::fault::{Fault, Out};
use crate::machine::into_datum;
use crate::thing::{Seq, Thing};
use crate::value::Val;
use crate::world::is_key;

pub(super) fn eval(args: &Args<'_>) -> Out<Thing> {
    match args.id {
        50 => eq_join(args),
        72 => {
            let seq = sequence::of_thing(args.machine, args.thing(0)?)?;
            let items = sequence::spread(seq.items, |item| Ok(vec![zip(&item)?]));
            sequence::settled(Seq { table: None, eager: false, infinite: seq.infinite, items }, seq.eager)
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
    let Val::Object(members) = item else { return Err(Fault::unsaid("zip of no object")) };
    let left = members.get("left").ok_or_else(|| Fault::logic("not a join"))?;
    Ok(members.get("right").map_or_else(|| left.clone(), |right| object::merge(left, right)))
}

/// `inner_join` and `outer_join`: every left item with every right one.
fn join(args: &Args<'_>) -> Out<Thing> {
    let left = sequence::of_thing(args.machine, args.thing(0)?)?;
    let right = sequence::of_thing(args.machine, args.thing(1)?)?;
    let func = args.func(2)?;
    let eager = left.eager && right.eager;
    let items = sequence::spread(left.items, |item| {
        let mut out = Vec::new();
        for other in &right.items {
            let other = other.clone()?;
            if args.machine.test(&func, &[item.clone(), other.clone()])? {
                out.push(pair(&item, Some(other)));
            }
        }
        if out.is_empty() && args.id == 49 {
            out.push(pair(&item, None));
        }
        Ok(out)
    });
    sequence::settled(Seq { table: None, eager: false, infinite: left.infinite, items }, eager)
}

fn eq_join(args: &Args<'_>) -> Out<Thing> {
    let left = sequence::of_thing(args.machine, args.thing(0)?)?;
    let table = tables::whole(args, 2)?;
    let selector = args.selector(1)?;
    let ordered = args.option("ordered")?.is_some_and(|value| value.truth());
    let key = args.machine.world.borrow().tables[&table].key.clone();
    let name = match args.option("index")? {
        Some(name) => crate::args::text(name)?,
        None => key,
    };
    index::wanted(args.machine, &table, &name, &[])?;
    let items = sequence::spread(left.items, |item| {
        let value = match args
            .machine
            .call_func(&selector, std::slice::from_ref(&item), false)
            .and_then(into_datum)
        {
            Err(fault) if fault.is_missing() => return Ok(Vec::new()),
            value => value?,
        };
        if matches!(value, Val::Null) {
            return Ok(Vec::new());
        }
        if !is_key(&value) {
            return Err(Fault::unsaid("a join by what is no key"));
        }
        let rows = index::wanted(args.machine, &table, &name, &[value])?;
        Ok(rows.into_iter().map(|row| pair(&item, Some(row))).collect())
    });
    let items = if ordered { items } else { args.machine.shuffled(items) };
    sequence::settled(Seq { infinite: left.infinite, ..Seq::stream(items) }, left.eager)
}
