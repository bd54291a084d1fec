//! `group`, `ungroup`, and terms over groups.

use std::collections::BTreeMap;

use super::{datum, family, object, sequence, terminal};
use crate::evaluator::args::Args;
use crate::evaluator::term_value::{Func, Groups, Seq, TermValue};
use crate::evaluator::{Evaluator, into_datum};
use crate::fault::{Class, Fault, Out};
use crate::value::Val;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        144 => group(args),
        _ => match args.value(0)? {
            TermValue::Groups(groups) => {
                let pair = |(key, value)| {
                    let members = [("group".to_owned(), key), ("reduction".to_owned(), value)];
                    Val::Object(members.into())
                };
                let groups = ready(args.evaluator, groups)?.into_iter().map(pair).collect();
                args.evaluator.array(groups).and_then(datum)
            }
            _ => Err(Fault::logic("not grouped")),
        },
    }
}

fn group(args: &Args<'_>) -> Out<TermValue> {
    let selectors: Out<Vec<Func>> = (1..args.len()).map(|i| args.selector(i)).collect();
    let selectors = selectors?;
    let multi = args.option("multi")?.is_some_and(|value| value.truth());
    let no_sequence = || Ok(sequence::of_value(args.evaluator, args.value(0)?).is_err());
    if selectors.is_empty() && args.option("index")?.is_none() && no_sequence()? {
        return Err(Fault::unspecified("more than one mistake"));
    }
    let (seq, index_values) = match args.option("index")? {
        None => (sequence::of_value(args.evaluator, args.value(0)?)?, None),
        Some(name) => {
            let name = crate::evaluator::args::text(name)?;
            let slice = match args.value(0)? {
                TermValue::Table(slice) if slice.is_whole() => slice,
                _ => return Err(Fault::logic("not a table")),
            };
            let (values, rows) = super::index::entries_of(args.evaluator, &slice, &name)?.into_iter().unzip();
            (Seq::stream(rows), Some::<Vec<Val>>(values))
        }
    };
    if selectors.is_empty() && index_values.is_none() {
        return Err(Fault::logic("group by nothing"));
    }
    if seq.infinite {
        return Err(Fault::unspecified("groups of an infinite stream"));
    }
    let mut groups: BTreeMap<Val, Vec<Out<Val>>> = BTreeMap::new();
    for (at, item) in seq.items.into_iter().enumerate() {
        let known = index_values.as_ref().and_then(|values| values.get(at)).cloned();
        let keyed = item.and_then(|item| Ok((keys(args, &selectors, known, multi, &item)?, item)));
        match keyed {
            Ok((keys, item)) => {
                for key in keys {
                    let text = key.to_json();
                    if groups.get_key_value(&key).is_some_and(|(known, _)| known.to_json() != text) {
                        return Err(Fault::unspecified("equal groups that look different"));
                    }
                    groups.entry(key).or_default().push(Ok(item.clone()));
                }
            }
            // Before all groups, so that reading the groups fails.
            Err(fault) => match groups.entry(Val::MinVal).or_default() {
                known
                    if known
                        .iter()
                        .any(|known| known.as_ref().is_err_and(|known| known.class != fault.class)) =>
                {
                    return Err(Fault::unspecified("which item fails first"));
                }
                known => known.push(Err(fault)),
            },
        }
    }
    Ok(TermValue::Groups(Groups::Lazy(Ok(groups.into_iter().collect()))))
}

/// The groups of an item.
fn keys(args: &Args<'_>, selectors: &[Func], known: Option<Val>, multi: bool, item: &Val) -> Out<Vec<Val>> {
    let mut parts = Vec::new();
    for selector in selectors {
        parts.push(match args.evaluator.call_datum(selector, std::slice::from_ref(item)) {
            Err(fault) if fault.is_missing() => Val::Null,
            value => value?,
        });
    }
    parts.extend(known);
    let mut keys: Vec<Vec<Val>> = vec![Vec::new()];
    for part in parts {
        let choices = match part {
            Val::Array(items) if multi && items.is_empty() => vec![Val::Null],
            Val::Array(items) if multi => items,
            other => vec![other],
        };
        keys = keys
            .iter()
            .flat_map(|key| choices.iter().map(|c| [key.clone(), vec![c.clone()]].concat()))
            .collect();
    }
    let one = |mut key: Vec<Val>| if key.len() == 1 { key.remove(0) } else { Val::Array(key) };
    Ok(keys.into_iter().map(one).collect())
}

/// Reads all items of the groups.
pub fn ready(evaluator: &Evaluator, groups: Groups) -> Out<Vec<(Val, Val)>> {
    match groups {
        Groups::Ready(groups) => Ok(groups),
        Groups::Lazy(groups) => {
            let groups = groups?;
            let (before, items) = (groups.len(), groups.iter().map(|(_, items)| items.len()).sum());
            let read =
                groups.into_iter().map(|(key, items)| Ok((key, Val::Array(sequence::collected(items)?))));
            let read = of_groups(read).map(|groups| {
                groups.into_iter().filter(|(_, value)| *value != Val::Array(Vec::new())).collect()
            });
            Fault::both(fewer(evaluator, before, read), evaluator.fits(items)).map(|(groups, ())| groups)
        }
    }
}

/// The groups, if their number is within the limit. No rule determines whether groups without items count.
fn fewer<T>(evaluator: &Evaluator, before: usize, groups: Out<Vec<T>>) -> Out<Vec<T>> {
    let known = groups.as_ref().is_ok_and(|groups| evaluator.exceeds(groups.len()));
    let fits = if known { evaluator.fits(before) } else { Ok(()) };
    if evaluator.exceeds(before)
        && !known
        && !groups.as_ref().is_err_and(|fault| fault.class == Class::Resource)
    {
        return Err(Fault::unspecified("groups that came and went"));
    }
    Fault::both(groups, fits).map(|(groups, ())| groups)
}

/// A term applied to each group.
pub(super) fn each(args: &Args<'_>, groups: Groups) -> Out<TermValue> {
    let is_text = |i: usize| matches!(args.datum(i), Ok(Val::Text(_)));
    match (args.id, groups) {
        (144, Groups::Lazy(_)) => Err(Fault::logic("group of groups")),
        (48..=50 | 187 | 72, _) => Err(Fault::unspecified("rare over groups")),
        // These terms read several sequences, and groups are none.
        (38, Groups::Lazy(_)) if args.len() > 2 => Err(Fault::logic("groups are no stream")),
        (31..=35 | 38..=40 | 96, Groups::Lazy(groups)) => step(args, groups),
        (170, Groups::Lazy(groups)) if is_text(1) => step(args, groups),
        (37 | 43 | 145..=148, Groups::Lazy(groups)) => {
            let work = terminal::Work::of(args)?;
            let groups = groups?;
            let before = groups.len();
            let ended = groups.into_iter().map(|(key, items)| {
                let (counted, value) = work.run(args, items, true)?;
                if counted { value.map(|value| Some((key, value))) } else { Ok(None) }
            });
            let ended = of_groups(ended).map(|ended| ended.into_iter().flatten().collect());
            Ok(TermValue::Groups(Groups::Ready(fewer(args.evaluator, before, ended)?)))
        }
        (_, groups) => {
            let one = |value: Val| family(&args.with_first(TermValue::Datum(value))).and_then(into_datum);
            let groups =
                ready(args.evaluator, groups)?.into_iter().map(|(key, value)| Ok((key, one(value)?)));
            of_groups(groups).map(|groups| TermValue::Groups(Groups::Ready(groups)))
        }
    }
}

/// The results of the groups. No rule determines the group whose error is reported.
fn of_groups<T>(groups: impl Iterator<Item = Out<T>>) -> Out<Vec<T>> {
    let (mut done, mut failed) = (Vec::new(), None::<Fault>);
    for group in groups {
        match (group, &failed) {
            (Ok(value), _) => done.push(value),
            (Err(fault), Some(known)) if known.class != fault.class => {
                return Err(Fault::unspecified("which group fails first"));
            }
            (Err(fault), _) => failed = Some(fault),
        }
    }
    failed.map_or(Ok(done), Err)
}

/// The items of one group.
type Items = Vec<Out<Val>>;

fn step(args: &Args<'_>, groups: Out<Vec<(Val, Items)>>) -> Out<TermValue> {
    let groups = match groups {
        Ok(groups) => groups,
        Err(fault) => return Ok(TermValue::Groups(Groups::Lazy(Err(fault)))),
    };
    let (before, mut out) = (groups.len(), Vec::new());
    for (key, items) in groups {
        let items = step_of_groups(args, items)?;
        if !items.is_empty() {
            out.push((key, items));
        }
    }
    if args.evaluator.exceeds(before) && !args.evaluator.exceeds(out.len()) {
        return Ok(TermValue::Groups(Groups::Lazy(Err(Fault::unspecified("groups that came and went")))));
    }
    Ok(TermValue::Groups(Groups::Lazy(Ok(out))))
}

/// A transformation of the items of a group.
fn step_of_groups(args: &Args<'_>, items: Vec<Out<Val>>) -> Out<Vec<Out<Val>>> {
    let one = args.with_first(TermValue::Seq(Seq::stream(items)));
    let answer = match args.id {
        38..=40 => sequence::eval(&one)?,
        _ => object::eval(&one)?,
    };
    match answer {
        TermValue::Seq(seq) => Ok(seq.items),
        _ => Err(Fault::unspecified("a step of groups")),
    }
}
