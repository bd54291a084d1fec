//! Sequences item by item.

use super::{datum, object, order};
use crate::args::Args;
use crate::fault::{Class, Fault, Out};
use crate::machine::{Machine, into_datum};
use crate::thing::{Func, Seq, Thing};
use crate::value::Val;

/// How many items of an endless sequence there are, as far as the reference goes.
const ENDLESS: i64 = 300;

pub(super) fn eval(args: &Args<'_>) -> Out<Thing> {
    match args.id {
        38 => map(args),
        39 => filter(args),
        40 => {
            let seq = of_thing(args.machine, args.thing(0)?)?;
            let func = args.func(1)?;
            let items = spread_parts(seq.items, |item| {
                let answer = args.machine.call_func(&func, &[item], false)?;
                match of_thing(args.machine, answer)? {
                    Seq { infinite: true, .. } => Err(Fault::unsaid("an endless part")),
                    part => Ok(part.items),
                }
            });
            let items = if seq.dealt { args.machine.shuffled(items) } else { items };
            let eager = seq.eager;
            settled(args.machine, Seq { table: None, eager: false, items, ..seq }, eager)
        }
        44 => union(args),
        86 => {
            let seq = of_thing(args.machine, args.thing(0)?)?;
            match seq.items.into_iter().next() {
                None => datum(Val::Bool(true)),
                Some(first) => first.and_then(|_| datum(Val::Bool(false))),
            }
        }
        87 => offsets_of(args),
        93 => contains(args),
        95 => difference(args),
        173 => range(args),
        187 => fold(args),
        _ => sample(args),
    }
}

/// A value as a sequence.
pub fn of_thing(machine: &Machine, thing: Thing) -> Out<Seq> {
    match thing {
        Thing::Seq(seq) => Ok(seq),
        Thing::Table(slice) => super::index::rows(machine, &slice),
        Thing::Groups(_) | Thing::Func(_) | Thing::Db => {
            Err(Fault::logic(format!("expected SEQUENCE but found {}", thing.type_of())))
        }
        other => match into_datum(other)? {
            Val::Array(items) => Ok(Seq { eager: true, ..Seq::stream(items.into_iter().map(Ok).collect()) }),
            other => Err(Fault::expected("SEQUENCE", &other)),
        },
    }
}

/// All items; what fails first fails all.
pub(super) fn all(seq: Seq) -> Out<Vec<Val>> {
    if seq.infinite {
        return Err(Fault::logic("an infinite stream"));
    }
    collected(seq.items)
}

/// All items of a sequence as an array that may have only so many of them.
pub(super) fn array(machine: &Machine, seq: Seq) -> Out<Vec<Val>> {
    if seq.infinite {
        return Err(Fault::logic("an infinite stream"));
    }
    gathered(machine, seq.items)
}

/// All items as an array. Whether an item that fails is met before there are too many, no rule says.
pub(super) fn gathered(machine: &Machine, items: Vec<Out<Val>>) -> Out<Vec<Val>> {
    let fits = machine.fits(items.len());
    Fault::both(collected(items), fits).map(|(items, ())| items)
}

/// What each item becomes; errors stay where they are.
pub(super) fn spread(items: Vec<Out<Val>>, mut each: impl FnMut(Val) -> Out<Vec<Val>>) -> Vec<Out<Val>> {
    spread_parts(items, |item| each(item).map(|items| items.into_iter().map(Ok).collect()))
}

/// What each item becomes, which may fail in the middle.
pub(super) fn spread_parts(
    items: Vec<Out<Val>>,
    mut each: impl FnMut(Val) -> Out<Vec<Out<Val>>>,
) -> Vec<Out<Val>> {
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        match item.and_then(&mut each) {
            Ok(parts) => out.extend(parts),
            Err(fault) => out.push(Err(fault)),
        }
    }
    out
}

/// All items. How many of them a server has read when one fails is its own affair, so that of errors
/// of different classes any may be told.
pub fn collected(items: Vec<Out<Val>>) -> Out<Vec<Val>> {
    let mut failed: Option<Fault> = None;
    let mut read = Vec::with_capacity(items.len());
    for item in items {
        match (item, &failed) {
            (Ok(item), _) => read.push(item),
            (Err(fault), Some(known)) if known.class != fault.class => {
                return Err(Fault::unsaid("which of two mistakes is met first"));
            }
            (Err(fault), _) => failed = Some(fault),
        }
    }
    failed.map_or(Ok(read), Err)
}

/// Hands items on one after the other.
pub(super) fn for_each_item(items: Vec<Out<Val>>, mut each: impl FnMut(Val) -> Out<()>) -> Out<()> {
    let done = items.into_iter().map(|item| item.and_then(&mut each).map(|()| Val::Null));
    collected(done.collect()).map(|_| ())
}

/// A sequence as a value: one of items that were at hand is at hand.
pub(super) fn settled(machine: &Machine, seq: Seq, was_eager: bool) -> Out<Thing> {
    if !was_eager {
        return Ok(Thing::Seq(seq));
    }
    if seq.table.is_some() {
        let items = collected(seq.items.clone())?;
        return Ok(Thing::Seq(Seq { items: items.into_iter().map(Ok).collect(), ..seq }));
    }
    datum(Val::Array(array(machine, seq)?))
}

fn map(args: &Args<'_>) -> Out<Thing> {
    let last = args.len() - 1;
    let seqs: Out<Vec<Seq>> = (0..last).map(|i| of_thing(args.machine, args.thing(i)?)).collect();
    let (mut seqs, func) = (seqs?, args.func(last)?);
    if func.arity() != 0 && func.arity() != last {
        return Err(Fault::logic("as many sequences as the function has arguments"));
    }
    let eager = seqs.iter().all(|seq| seq.eager);
    let infinite = seqs.iter().all(|seq| seq.infinite);
    if last == 1 {
        let seq = seqs.remove(0);
        let items = spread(seq.items, |item| Ok(vec![args.machine.call_datum(&func, &[item])?]));
        return settled(args.machine, Seq { table: None, eager: false, items, ..seq }, eager);
    }
    let shortest = seqs.iter().map(|seq| seq.items.len()).min().unwrap_or(0);
    if seqs.iter().any(|seq| seq.items.iter().any(Result::is_err)) {
        return Err(Fault::unsaid("which of several streams fails first"));
    }
    let row = |at: usize| -> Vec<Val> {
        seqs.iter().filter_map(|seq| seq.items.get(at)?.as_ref().ok().cloned()).collect()
    };
    let items = (0..shortest).map(|at| args.machine.call_datum(&func, &row(at))).collect();
    settled(args.machine, Seq { infinite, ..Seq::stream(items) }, eager)
}

fn filter(args: &Args<'_>) -> Out<Thing> {
    let first = args.thing(0)?;
    let test = Test::of(args.thing_with(1, true)?)?;
    let seq = of_thing(args.machine, first)?;
    let items = spread(seq.items, |item| {
        let keeps = match test.holds(args, &item) {
            Err(fault) if fault.is_missing() => match args.option("default") {
                Ok(None) => false,
                Ok(Some(value)) => value.truth(),
                Err(other) if other.class == Class::Empty => return Err(fault),
                Err(other) => return Err(other),
            },
            decided => decided?,
        };
        Ok(if keeps { vec![item] } else { Vec::new() })
    });
    let eager = seq.eager;
    settled(args.machine, Seq { items, ..seq }, eager)
}

/// What `filter` asks.
pub(super) struct Test {
    func: Func,
    is_pattern: bool,
}

impl Test {
    pub(super) fn of(thing: Thing) -> Out<Test> {
        match thing {
            Thing::Func(func) => {
                let is_pattern = matches!(&func, Func::Code(_, serde_json::Value::Object(_), _));
                Ok(Test { func, is_pattern })
            }
            other => Ok(Test { func: Func::Constant(into_datum(other)?), is_pattern: true }),
        }
    }

    pub(super) fn holds(&self, args: &Args<'_>, item: &Val) -> Out<bool> {
        match args.machine.call_datum(&self.func, std::slice::from_ref(item))? {
            pattern if self.is_pattern && object::members(&pattern).is_some() => {
                matches_pattern(&pattern, item)
            }
            answer => Ok(answer.truth()),
        }
    }
}

fn matches_pattern(pattern: &Val, item: &Val) -> Out<bool> {
    let Some(members) = object::members(pattern) else { return Ok(pattern == item) };
    for (name, wanted) in members {
        let Some(found) = object::members(item) else { return Err(Fault::expected("OBJECT", item)) };
        let found = found.get(&name).ok_or_else(|| Fault::missing("no such field"))?;
        let both = object::members(&wanted).is_some() && object::members(found).is_some();
        let holds = match wanted {
            Val::Literal(value) => value.as_deref() == Some(found),
            wanted if both => matches_pattern(&wanted, found)?,
            wanted => wanted == *found,
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

fn union(args: &Args<'_>) -> Out<Thing> {
    let seqs: Out<Vec<Seq>> = (0..args.len()).map(|i| of_thing(args.machine, args.thing(i)?)).collect();
    let seqs = seqs?;
    let interleaves = match args.option_term("interleave") {
        None | Some(serde_json::Value::Bool(true)) => true,
        Some(serde_json::Value::Bool(false)) => false,
        Some(_) => return ordered_union(args, seqs),
    };
    let eager = seqs.iter().all(|seq| seq.eager);
    let infinite = seqs.iter().any(|seq| seq.infinite);
    let mut items: Vec<Out<Val>> = seqs.into_iter().flat_map(|seq| seq.items).collect();
    if interleaves && !eager {
        items = args.machine.shuffled(items);
    }
    settled(args.machine, Seq { infinite, ..Seq::stream(items) }, eager)
}

/// `union` of sequences that are sorted already: the least of the first items, again and again.
fn ordered_union(args: &Args<'_>, seqs: Vec<Seq>) -> Out<Thing> {
    let Some(term) = args.option_term("interleave") else { return Err(Fault::unsaid("no order")) };
    let terms: Vec<&serde_json::Value> = match term.as_array().map(Vec::as_slice) {
        Some([id, serde_json::Value::Array(terms), ..]) if *id == 2 => terms.iter().collect(),
        _ => vec![term],
    };
    let orders: Vec<order::Order> =
        terms.into_iter().map(|term| order::of_term(args, term)).collect::<Out<_>>()?;
    let eager = seqs.iter().all(|seq| seq.eager);
    let mut keyed = Vec::new();
    for (from, seq) in seqs.into_iter().enumerate() {
        let mut before: Option<Vec<Option<Val>>> = None;
        for item in all(seq)? {
            let keys = order::keys(args, &orders, &item)?;
            if before.is_some_and(|before| order::compare(&orders, &before, &keys).is_gt()) {
                return Err(Fault::unsaid("a sequence that is not sorted"));
            }
            before = Some(keys.clone());
            keyed.push((keys, from, item));
        }
    }
    // Among equal items of several sequences the rules do not say which comes first.
    keyed.sort_by(|(a, at, _), (b, other, _)| order::compare(&orders, a, b).then(at.cmp(other)));
    let unclear = keyed
        .windows(2)
        .any(|pair| pair[0].1 != pair[1].1 && order::compare(&orders, &pair[0].0, &pair[1].0).is_eq());
    if unclear {
        return Err(Fault::unsaid("equal items of several sequences"));
    }
    let items = keyed.into_iter().map(|(.., item)| Ok(item)).collect();
    settled(args.machine, Seq::stream(items), eager)
}

fn offsets_of(args: &Args<'_>) -> Out<Thing> {
    let wanted = args.thing(1)?;
    let seq = of_thing(args.machine, args.thing(0)?)?;
    let mut at = -1.0;
    let items = spread(seq.items, |item| {
        at += 1.0;
        let holds = match &wanted {
            func @ Thing::Func(_) => match Test::of(func.clone())?.holds(args, &item) {
                Err(fault) if fault.is_missing() => false,
                decided => decided?,
            },
            other => into_datum(other.clone())? == item,
        };
        Ok(if holds { vec![Val::Number(at)] } else { Vec::new() })
    });
    settled(args.machine, Seq { infinite: seq.infinite, ..Seq::stream(items) }, seq.eager)
}

/// What the second sequence has goes. Of two arguments that fail either may be told.
fn difference(args: &Args<'_>) -> Out<Thing> {
    let of_place = |i: usize| args.thing(i).and_then(|thing| of_thing(args.machine, thing));
    let (seq, unwanted) = Fault::both(of_place(0), of_place(1).and_then(all))?;
    let items = spread(seq.items, |item| Ok(if unwanted.contains(&item) { Vec::new() } else { vec![item] }));
    settled(args.machine, Seq { items, ..seq }, seq.eager)
}

/// Each wanted value and each predicate takes an item of its own.
fn contains(args: &Args<'_>) -> Out<Thing> {
    let seq = of_thing(args.machine, args.thing(0)?)?;
    let (mut values, mut funcs) = (Vec::new(), Vec::new());
    for i in 1..args.len() {
        match args.thing(i)? {
            Thing::Func(func) => funcs.push(func),
            other => values.push(into_datum(other)?),
        }
    }
    if funcs.len() > 1 {
        return Err(Fault::unsaid("which predicate takes which item"));
    }
    for item in seq.items {
        let item = item?;
        if let Some(at) = values.iter().position(|value| *value == item) {
            values.remove(at);
        }
        if let Some(func) = funcs.first()
            && args.machine.test(func, &[item])?
        {
            funcs.clear();
        }
        if values.is_empty() && funcs.is_empty() {
            return datum(Val::Bool(true));
        }
    }
    datum(Val::Bool(false))
}

fn range(args: &Args<'_>) -> Out<Thing> {
    let (from, to) = match args.len() {
        0 => (0, ENDLESS),
        1 => (0, args.whole(0)?),
        _ => (args.whole(0)?, args.whole(1)?),
    };
    if to - from > 2_000 {
        return Err(Fault::unsaid("a long range"));
    }
    let items = (from..to).map(|n| Ok(Val::Number(n as f64))).collect();
    Ok(Thing::Seq(Seq { infinite: args.is_empty(), ..Seq::stream(items) }))
}

fn fold(args: &Args<'_>) -> Out<Thing> {
    let seq = of_thing(args.machine, args.thing(0)?)?;
    let (mut sum, func) = (args.datum(1)?, args.func(2)?);
    if func.arity() != 0 && func.arity() != 2 {
        return Err(Fault::logic("fold wants a function of 2 arguments"));
    }
    let option = |name: &str| match args.option_thing(name)? {
        None => Ok(None),
        Some(Thing::Func(func)) => Ok(Some(func)),
        Some(_) => Err(Fault::logic("no function")),
    };
    let (emit, last) = (option("emit")?, option("final_emit")?);
    let Some(emit) = emit else {
        if seq.infinite {
            return Err(Fault::unsaid("a fold that never ends"));
        }
        for_each_item(seq.items, |item| {
            sum = args.machine.call_datum(&func, &[sum.clone(), item])?;
            Ok(())
        })?;
        return match last {
            Some(last) => datum(args.machine.call_datum(&last, &[sum])?),
            None => datum(sum),
        };
    };
    let array = |answer: Val| match answer {
        Val::Array(items) => Ok(items),
        other => Err(Fault::expected("ARRAY", &other)),
    };
    let (eager, infinite) = (seq.eager, seq.infinite);
    let mut items = spread(seq.items, |item| {
        let before = sum.clone();
        sum = args.machine.call_datum(&func, &[before.clone(), item.clone()])?;
        array(args.machine.call_datum(&emit, &[before, item, sum.clone()])?)
    });
    if let Some(last) = last
        && items.iter().all(Result::is_ok)
    {
        match args.machine.call_datum(&last, &[sum]).and_then(array) {
            Ok(more) => items.extend(more.into_iter().map(Ok)),
            Err(fault) => items.push(Err(fault)),
        }
    }
    settled(args.machine, Seq { infinite, ..Seq::stream(items) }, eager)
}

fn sample(args: &Args<'_>) -> Out<Thing> {
    let count = args.whole(1)?;
    let count = usize::try_from(count).map_err(|_| Fault::logic("a negative number of items"))?;
    let seq = args.thing(0).and_then(|first| of_thing(args.machine, first));
    let (seq, ()) = Fault::both(seq, args.machine.fits(count))?;
    let mut items = args.machine.shuffled(all(Seq { items: seq.items, table: None, ..seq })?);
    items.truncate(count);
    match seq.table {
        Some(table) => {
            let items = items.into_iter().map(Ok).collect();
            Ok(Thing::Seq(Seq { table: Some(table), eager: true, ..Seq::stream(items) }))
        }
        None => datum(Val::Array(items)),
    }
}

/// Steps over the items of groups.
pub(super) fn step_of_groups(args: &Args<'_>, items: Vec<Out<Val>>) -> Out<Vec<Out<Val>>> {
    let one = args.with_first(Thing::Seq(Seq::stream(items)));
    let answer = match args.id {
        38..=40 => eval(&one)?,
        _ => object::eval(&one)?,
    };
    match answer {
        Thing::Seq(seq) => Ok(seq.items),
        _ => Err(Fault::unsaid("a step of groups")),
    }
}
