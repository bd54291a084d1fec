//! Arrays in memory: ends, positions, sets.

use super::datum;
use crate::evaluator::args::Args;
use crate::evaluator::term_value::TermValue;
use crate::fault::{Fault, Out};
use crate::value::Val;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    let mut items = match args.id {
        // Both arguments are evaluated before the first is checked to be an array. Source: terms/arr.cc.
        29 | 80 | 88 => args.datum(0).and_then(|_| args.datum(1)).and_then(|_| args.array(0))?,
        89..=91 => Fault::both(args.array(0), args.array(1))?.0,
        _ => args.array(0)?,
    };
    match args.id {
        29 => items.push(args.datum(1)?),
        80 => items.insert(0, args.datum(1)?),
        82..=85 => at(args, &mut items)?,
        88 => {
            let new = args.datum(1)?;
            items.push(new);
            items = different(items);
        }
        89 => {
            let other = args.array(1)?;
            // In the order of the second array, each once.
            items = different(other.into_iter().filter(|item| items.contains(item)).collect());
        }
        90 => {
            items.extend(args.array(1)?);
            items = different(items);
        }
        _ => {
            let other = args.array(1)?;
            items = different(items.into_iter().filter(|item| !other.contains(item)).collect());
        }
    }
    args.evaluator.array(items).and_then(datum)
}

fn different(items: Vec<Val>) -> Vec<Val> {
    let mut out: Vec<Val> = Vec::new();
    for item in items {
        if !out.contains(&item) {
            out.push(item);
        }
    }
    out
}

/// `insert_at`, `delete_at`, `change_at`, `splice_at`.
fn at(args: &Args<'_>, items: &mut Vec<Val>) -> Out<()> {
    // The limit holds before the change, too. Source: terms/arr.cc.
    args.evaluator.fits(items.len())?;
    // Only an insertion may name the position behind the last item.
    let places = if matches!(args.id, 82 | 85) { items.len() + 1 } else { items.len() };
    let start = place(args.whole(1)?, places)?;
    match args.id {
        82 => {
            let new = args.datum(2)?;
            check(start <= items.len())?;
            items.insert(start, new);
        }
        85 => {
            let new = args.datum(2)?;
            check(start <= items.len())?;
            let Val::Array(new) = new else { return Err(Fault::expected("ARRAY", &new)) };
            items.splice(start..start, new);
        }
        84 => {
            let new = args.datum(2)?;
            check(start < items.len())?;
            items[start] = new;
        }
        _ if args.len() == 2 => {
            check(start < items.len())?;
            items.remove(start);
        }
        _ => {
            let end = place(args.whole(2)?, places)?;
            check(start <= items.len() && end <= items.len())?;
            if start > end {
                return Err(Fault::logic("the start is behind the end"));
            }
            items.drain(start..end);
        }
    }
    Ok(())
}

fn place(i: i64, places: usize) -> Out<usize> {
    let from_start = if i < 0 { i + places as i64 } else { i };
    usize::try_from(from_start).map_err(|_| Fault::missing("index out of bounds"))
}

fn check(inside: bool) -> Out<()> {
    if inside { Ok(()) } else { Err(Fault::missing("index out of bounds")) }
}
