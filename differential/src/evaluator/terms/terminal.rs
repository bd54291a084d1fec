//! One value of all items: `reduce`, `count`, `sum`, `avg`, `min`, `max`.

use super::{datum, members, sequence};
use crate::evaluator::args::{self, Args};
use crate::evaluator::into_datum;
use crate::evaluator::term_value::{Func, TermValue};
use crate::fault::{Fault, Out};
use crate::value::Val;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    let first = args.value(0)?;
    if args.id == 43 && args.len() == 1 {
        let single = match &first {
            TermValue::Datum(single) | TermValue::Row(_, single) => Some(single),
            _ => None,
        };
        let count = match single {
            Some(Val::Text(text)) => Some(text.chars().count()),
            Some(Val::Binary(bytes)) => Some(bytes.len()),
            Some(single) => members::members(single).map(|members| members.len()),
            None => None,
        };
        if let Some(count) = count {
            return datum(Val::Number(count as f64));
        }
    }
    if matches!(args.id, 147 | 148) {
        let index = args.option("index")?;
        let is_whole = matches!(&first, TermValue::Table(slice) if slice.is_whole());
        if index.is_some() && args.len() == 1 && !is_whole {
            return Err(Fault::logic("not a table"));
        }
        if index.is_some() || (args.len() == 1 && is_whole) {
            return super::index::extreme(args, first, index);
        }
    }
    let is_stream = matches!(first, TermValue::Seq(_) | TermValue::Table(_));
    let seq = sequence::of_value(args.evaluator, first)?;
    if seq.infinite {
        return Err(Fault::logic("an infinite stream"));
    }
    let work = Work::of(args)?;
    work.run(args, seq.items, is_stream)?.1.and_then(datum)
}

/// The term with its arguments.
pub(super) enum Work {
    Reduce(Func),
    Count(Option<TermValue>),
    Sum { selector: Option<Func>, mean: bool },
    Best { selector: Option<Func>, greatest: bool },
}

impl Work {
    pub(super) fn of(args: &Args<'_>) -> Out<Work> {
        let selector = |args: &Args<'_>| (args.len() > 1).then(|| args.selector(1)).transpose();
        Ok(match args.id {
            37 => Work::Reduce(args.func(1)?),
            43 => Work::Count((args.len() > 1).then(|| args.value(1)).transpose()?),
            145 | 146 => Work::Sum { selector: selector(args)?, mean: args.id == 146 },
            _ => Work::Best { selector: selector(args)?, greatest: args.id == 148 },
        })
    }

    /// Returns whether any item counted, and the value.
    pub(super) fn run(
        &self,
        args: &Args<'_>,
        items: Vec<Out<Val>>,
        is_stream: bool,
    ) -> Out<(bool, Out<Val>)> {
        match self {
            Work::Reduce(func) => run_reduce(args, func, items, is_stream),
            Work::Count(what) => {
                let mut count = 0.0;
                sequence::for_each_item(items, |item| {
                    count += f64::from(u8::from(counts(args, what.as_ref(), item)?));
                    Ok(())
                })?;
                Ok((count > 0.0, Ok(Val::Number(count))))
            }
            Work::Sum { selector, mean } => {
                let (mut sum, mut count) = (0.0, 0.0);
                sequence::for_each_item(items, |item| {
                    let value = looked_at(args, selector.as_ref(), &item)?;
                    if let Some(value) = value.filter(|value| !matches!(value, Val::Null)) {
                        sum += args::number(&value)?;
                        count += 1.0;
                    }
                    Ok(())
                })?;
                let value = match (mean, count > 0.0) {
                    (true, false) => Err(Fault::missing("the mean of nothing")),
                    (true, true) => Ok(sum / count),
                    (false, _) => Ok(sum),
                };
                let finite =
                    |n: f64| if n.is_finite() { Ok(Val::Number(n)) } else { Err(Fault::logic("not finite")) };
                Ok((count > 0.0, value.and_then(finite)))
            }
            Work::Best { selector, greatest } => {
                let mut best: Option<(Val, Val)> = None;
                sequence::for_each_item(items, |item| {
                    let Some(value) = looked_at(args, selector.as_ref(), &item)? else { return Ok(()) };
                    let better = best.as_ref().is_none_or(|(known, _)| match greatest {
                        true => value > *known,
                        false => value < *known,
                    });
                    if better {
                        best = Some((value, item));
                    }
                    Ok(())
                })?;
                Ok((
                    best.is_some(),
                    best.map(|(_, item)| item).ok_or_else(|| Fault::missing("nothing is least")),
                ))
            }
        }
    }
}

/// A reduction: whether there were any items, and the value.
fn run_reduce(args: &Args<'_>, func: &Func, items: Vec<Out<Val>>, is_stream: bool) -> Out<(bool, Out<Val>)> {
    let good: Vec<Val> = items.iter().flatten().cloned().collect();
    let items: Vec<Val> = match sequence::collected(items) {
        Err(fault) if good.len() > 1 => {
            let reduced = reduce(args, func, good);
            return match reduced {
                Err(other) if other.class != fault.class => {
                    Err(Fault::unspecified("which of two mistakes is met first"))
                }
                _ => Err(fault),
            };
        }
        items => items?,
    };
    let any = !items.is_empty();
    Ok((any, if is_stream { reduce_in_pieces(args, func, items) } else { reduce(args, func, items) }))
}

/// The value of a selector for an item, if it is not missing.
fn looked_at(args: &Args<'_>, selector: Option<&Func>, item: &Val) -> Out<Option<Val>> {
    match selector {
        None => Ok(Some(item.clone())),
        Some(func) => match args.evaluator.call_datum(func, std::slice::from_ref(item)) {
            Err(fault) if fault.is_missing() => Ok(None),
            value => value.map(Some),
        },
    }
}

fn counts(args: &Args<'_>, what: Option<&TermValue>, item: Val) -> Out<bool> {
    match what {
        None => Ok(true),
        Some(func @ TermValue::Func(_)) => match sequence::Test::of(func.clone())?.holds(args, &item) {
            Err(fault) if fault.is_missing() => Ok(false),
            decided => decided,
        },
        Some(other) => Ok(into_datum(other.clone())? == item),
    }
}

fn reduce(args: &Args<'_>, func: &Func, items: Vec<Val>) -> Out<Val> {
    let mut items = items.into_iter();
    let first = items.next().ok_or_else(|| Fault::missing("nothing to reduce"))?;
    items.try_fold(first, |sum, item| args.evaluator.call_datum(func, &[sum, item]))
}

/// Streams may be reduced in parts whose results are reduced again.
fn reduce_in_pieces(args: &Args<'_>, func: &Func, items: Vec<Val>) -> Out<Val> {
    if items.len() < 3 {
        return reduce(args, func, items);
    }
    let at = |cut: usize| {
        let pieces = [&items[..cut], &items[cut..]];
        let values: Out<Vec<Val>> =
            pieces.into_iter().map(|piece| reduce(args, func, piece.to_vec())).collect();
        reduce(args, func, values?)
    };
    // Depends on the order, so that all orders are evaluated.
    let cut = 1 + args.evaluator.draw(items.len() - 1);
    let reduced = if args.evaluator.order < 2 { reduce(args, func, items.clone()) } else { at(cut) };
    let Err(fault) = reduced else { return reduced };
    // The first of two errors may depend on the boundaries of the parts.
    let other = |cut| at(cut).err().is_none_or(|other| other.class != fault.class);
    if (1..items.len()).any(other) {
        return Err(Fault::unspecified("what a function fails at depends on the pieces"));
    }
    Err(fault)
}
