//! Sequences, item by item.

use super::{datum, members};
use crate::evaluator::args::Args;
use crate::evaluator::term_value::{Func, Seq, TermValue};
use crate::evaluator::{Evaluator, into_datum};
use crate::fault::{Class, Fault, Out};
use crate::value::Val;

/// The number of items of an endless sequence that the reference evaluates.
const ENDLESS: i64 = 300;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        38 => map(args),
        39 => filter(args),
        40 => {
            let seq = of_value(args.evaluator, args.value(0)?)?;
            let func = args.func(1)?;
            let items = spread_parts(seq.items, |item| {
                let answer = args.evaluator.call_func(&func, &[item], false)?;
                match of_value(args.evaluator, answer)? {
                    Seq { infinite: true, .. } => Err(Fault::unspecified("an endless part")),
                    part => Ok(part.items),
                }
            });
            let items = if seq.interleaved { args.evaluator.shuffled(items) } else { items };
            let eager = seq.eager;
            settled(args.evaluator, Seq { table: None, eager: false, items, ..seq }, eager)
        }
        86 => {
            let seq = of_value(args.evaluator, args.value(0)?)?;
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
pub fn of_value(evaluator: &Evaluator, value: TermValue) -> Out<Seq> {
    match value {
        TermValue::Seq(seq) => Ok(seq),
        TermValue::Table(slice) => super::index::rows(evaluator, &slice),
        TermValue::Groups(_) | TermValue::Func(_) | TermValue::Db => {
            Err(Fault::logic(format!("expected SEQUENCE but found {}", value.type_of())))
        }
        other => match into_datum(other)? {
            Val::Array(items) => Ok(Seq { eager: true, ..Seq::stream(items.into_iter().map(Ok).collect()) }),
            other => Err(Fault::expected("SEQUENCE", &other)),
        },
    }
}

/// All items, or the first error.
pub(super) fn all(seq: Seq) -> Out<Vec<Val>> {
    if seq.infinite {
        return Err(Fault::logic("an infinite stream"));
    }
    collected(seq.items)
}

/// All items of a sequence as an array within the limit.
pub(super) fn array(evaluator: &Evaluator, seq: Seq) -> Out<Vec<Val>> {
    if seq.infinite {
        return Err(Fault::logic("an infinite stream"));
    }
    gathered(evaluator, seq.items)
}

/// All items as an array. No rule determines whether an error of an item or of the limit is reported.
pub(super) fn gathered(evaluator: &Evaluator, items: Vec<Out<Val>>) -> Out<Vec<Val>> {
    let fits = evaluator.fits(items.len());
    Fault::both(collected(items), fits).map(|(items, ())| items)
}

/// The results of each item; errors keep their positions.
pub(super) fn spread(items: Vec<Out<Val>>, mut each: impl FnMut(Val) -> Out<Vec<Val>>) -> Vec<Out<Val>> {
    spread_parts(items, |item| each(item).map(|items| items.into_iter().map(Ok).collect()))
}

/// The results of each item, which may fail in the middle.
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

/// All items. No rule determines the number of items that a server has read when one fails, so that any of several errors
/// of different classes may be reported.
pub fn collected(items: Vec<Out<Val>>) -> Out<Vec<Val>> {
    let mut failed: Option<Fault> = None;
    let mut read = Vec::with_capacity(items.len());
    for item in items {
        match (item, &failed) {
            (Ok(item), _) => read.push(item),
            (Err(fault), Some(known)) if known.class != fault.class => {
                return Err(Fault::unspecified("which of two mistakes is met first"));
            }
            (Err(fault), _) => failed = Some(fault),
        }
    }
    failed.map_or(Ok(read), Err)
}

/// Calls `each` for one item after another.
pub(super) fn for_each_item(items: Vec<Out<Val>>, mut each: impl FnMut(Val) -> Out<()>) -> Out<()> {
    let done = items.into_iter().map(|item| item.and_then(&mut each).map(|()| Val::Null));
    collected(done.collect()).map(|_| ())
}

/// A sequence as a value: an array if it was made from an array.
pub(super) fn settled(evaluator: &Evaluator, seq: Seq, was_eager: bool) -> Out<TermValue> {
    if !was_eager {
        return Ok(TermValue::Seq(seq));
    }
    if seq.table.is_some() {
        let items = collected(seq.items.clone())?;
        return Ok(TermValue::Seq(Seq { items: items.into_iter().map(Ok).collect(), ..seq }));
    }
    datum(Val::Array(array(evaluator, seq)?))
}

fn map(args: &Args<'_>) -> Out<TermValue> {
    let last = args.len() - 1;
    let seqs: Out<Vec<Seq>> = (0..last).map(|i| of_value(args.evaluator, args.value(i)?)).collect();
    let (mut seqs, func) = (seqs?, args.func(last)?);
    if func.arity() != 0 && func.arity() != last {
        return Err(Fault::logic("as many sequences as the function has arguments"));
    }
    let eager = seqs.iter().all(|seq| seq.eager);
    let infinite = seqs.iter().all(|seq| seq.infinite);
    if last == 1 {
        let seq = seqs.remove(0);
        let items = spread(seq.items, |item| Ok(vec![args.evaluator.call_datum(&func, &[item])?]));
        return settled(args.evaluator, Seq { table: None, eager: false, items, ..seq }, eager);
    }
    let shortest = seqs.iter().map(|seq| seq.items.len()).min().unwrap_or(0);
    if seqs.iter().any(|seq| seq.items.iter().any(Result::is_err)) {
        return Err(Fault::unspecified("which of several streams fails first"));
    }
    let row = |at: usize| -> Vec<Val> {
        seqs.iter().filter_map(|seq| seq.items.get(at)?.as_ref().ok().cloned()).collect()
    };
    let items = (0..shortest).map(|at| args.evaluator.call_datum(&func, &row(at))).collect();
    settled(args.evaluator, Seq { infinite, ..Seq::stream(items) }, eager)
}

fn filter(args: &Args<'_>) -> Out<TermValue> {
    let first = args.value(0)?;
    let test = Test::of(args.value_with(1, true)?)?;
    let seq = of_value(args.evaluator, first)?;
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
    settled(args.evaluator, Seq { items, ..seq }, eager)
}

/// The predicate of `filter`.
pub(super) struct Test {
    func: Func,
    is_pattern: bool,
}

impl Test {
    pub(super) fn of(value: TermValue) -> Out<Test> {
        match value {
            TermValue::Func(func) => {
                let is_pattern = matches!(&func, Func::Code(_, serde_json::Value::Object(_), _));
                Ok(Test { func, is_pattern })
            }
            other => Ok(Test { func: Func::Constant(into_datum(other)?), is_pattern: true }),
        }
    }

    pub(super) fn holds(&self, args: &Args<'_>, item: &Val) -> Out<bool> {
        match args.evaluator.call_datum(&self.func, std::slice::from_ref(item))? {
            pattern if self.is_pattern && members::members(&pattern).is_some() => {
                matches_pattern(&pattern, item)
            }
            answer => Ok(answer.truth()),
        }
    }
}

fn matches_pattern(pattern: &Val, item: &Val) -> Out<bool> {
    let Some(members) = members::members(pattern) else { return Ok(pattern == item) };
    for (name, wanted) in members {
        let Some(found) = members::members(item) else { return Err(Fault::expected("OBJECT", item)) };
        let found = found.get(&name).ok_or_else(|| Fault::missing("no such field"))?;
        let both = members::members(&wanted).is_some() && members::members(found).is_some();
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

fn offsets_of(args: &Args<'_>) -> Out<TermValue> {
    let wanted = args.value(1)?;
    let seq = of_value(args.evaluator, args.value(0)?)?;
    let mut at = -1.0;
    let items = spread(seq.items, |item| {
        at += 1.0;
        let holds = match &wanted {
            func @ TermValue::Func(_) => match Test::of(func.clone())?.holds(args, &item) {
                Err(fault) if fault.is_missing() => false,
                decided => decided?,
            },
            other => into_datum(other.clone())? == item,
        };
        Ok(if holds { vec![Val::Number(at)] } else { Vec::new() })
    });
    settled(args.evaluator, Seq { infinite: seq.infinite, ..Seq::stream(items) }, seq.eager)
}

/// Removes the items of the second sequence. Its error is that of each item of the first; where something is missing, the item is
/// removed.
fn difference(args: &Args<'_>) -> Out<TermValue> {
    let of_place = |i: usize| args.value(i).and_then(|value| of_value(args.evaluator, value));
    let (seq, unwanted) = (of_place(0)?, of_place(1).and_then(all));
    let items = spread(seq.items, |item| match &unwanted {
        Ok(unwanted) => Ok(if unwanted.contains(&item) { Vec::new() } else { vec![item] }),
        Err(fault) if fault.is_missing() => Ok(Vec::new()),
        Err(fault) => Err(fault.clone()),
    });
    settled(args.evaluator, Seq { items, ..seq }, seq.eager)
}

/// Each wanted value and each predicate needs a separate item.
fn contains(args: &Args<'_>) -> Out<TermValue> {
    let seq = of_value(args.evaluator, args.value(0)?)?;
    let (mut values, mut funcs) = (Vec::new(), Vec::new());
    for i in 1..args.len() {
        match args.value(i)? {
            TermValue::Func(func) => funcs.push(func),
            other => values.push(into_datum(other)?),
        }
    }
    if funcs.len() > 1 {
        return Err(Fault::unspecified("which predicate takes which item"));
    }
    for item in seq.items {
        let item = item?;
        if let Some(at) = values.iter().position(|value| *value == item) {
            values.remove(at);
        }
        if let Some(func) = funcs.first()
            && args.evaluator.test(func, &[item])?
        {
            funcs.clear();
        }
        if values.is_empty() && funcs.is_empty() {
            return datum(Val::Bool(true));
        }
    }
    datum(Val::Bool(false))
}

fn range(args: &Args<'_>) -> Out<TermValue> {
    let (from, to) = match args.len() {
        0 => (0, ENDLESS),
        1 => (0, args.whole(0)?),
        _ => (args.whole(0)?, args.whole(1)?),
    };
    if to - from > 2_000 {
        return Err(Fault::unspecified("a long range"));
    }
    let items = (from..to).map(|n| Ok(Val::Number(n as f64))).collect();
    Ok(TermValue::Seq(Seq { infinite: args.is_empty(), ..Seq::stream(items) }))
}

fn fold(args: &Args<'_>) -> Out<TermValue> {
    let seq = of_value(args.evaluator, args.value(0)?)?;
    let (mut sum, func) = (args.datum(1)?, args.func(2)?);
    if func.arity() != 0 && func.arity() != 2 {
        return Err(Fault::logic("fold wants a function of 2 arguments"));
    }
    let option = |name: &str| match args.option_value(name)? {
        None => Ok(None),
        Some(TermValue::Func(func)) => Ok(Some(func)),
        Some(_) => Err(Fault::logic("no function")),
    };
    let (emit, last) = (option("emit")?, option("final_emit")?);
    let Some(emit) = emit else {
        if seq.infinite {
            return Err(Fault::unspecified("a fold that never ends"));
        }
        for_each_item(seq.items, |item| {
            sum = args.evaluator.call_datum(&func, &[sum.clone(), item])?;
            Ok(())
        })?;
        return match last {
            Some(last) => datum(args.evaluator.call_datum(&last, &[sum])?),
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
        sum = args.evaluator.call_datum(&func, &[before.clone(), item.clone()])?;
        array(args.evaluator.call_datum(&emit, &[before, item, sum.clone()])?)
    });
    if let Some(last) = last
        && items.iter().all(Result::is_ok)
    {
        match args.evaluator.call_datum(&last, &[sum]).and_then(array) {
            Ok(more) => items.extend(more.into_iter().map(Ok)),
            Err(fault) => items.push(Err(fault)),
        }
    }
    settled(args.evaluator, Seq { infinite, ..Seq::stream(items) }, eager)
}

fn sample(args: &Args<'_>) -> Out<TermValue> {
    let count = args.whole(1)?;
    let count = usize::try_from(count).map_err(|_| Fault::logic("a negative number of items"))?;
    let seq = args.value(0).and_then(|first| of_value(args.evaluator, first));
    let (seq, ()) = Fault::both(seq, args.evaluator.fits(count))?;
    let mut items = args.evaluator.shuffled(all(Seq { items: seq.items, table: None, ..seq })?);
    items.truncate(count);
    match seq.table {
        Some(table) => {
            let items = items.into_iter().map(Ok).collect();
            Ok(TermValue::Seq(Seq { table: Some(table), eager: true, ..Seq::stream(items) }))
        }
        None => datum(Val::Array(items)),
    }
}
