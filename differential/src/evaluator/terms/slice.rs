//! Parts of sequences: `slice`, `skip`, `limit`, `nth`.

use super::{datum, sequence};
use crate::evaluator::args::Args;
use crate::evaluator::term_value::{Seq, TermValue};
use crate::fault::{Fault, Out};
use crate::value::Val;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        30 => {
            let first = args.value(0)?;
            let open = |name: &str, otherwise: bool| match args.option(name)? {
                None => Ok(otherwise),
                Some(Val::Text(side)) if side == "open" => Ok(true),
                Some(Val::Text(side)) if side == "closed" => Ok(false),
                Some(Val::Text(_)) => Err(Fault::logic("neither open nor closed")),
                Some(other) => Err(Fault::expected("STRING", &other)),
            };
            let left_open = open("left_bound", false)?;
            let left = args.whole(1)?;
            let (right, right_open) = match args.len() {
                2 => (-1, false),
                _ => {
                    let right_open = open("right_bound", true)?;
                    (args.whole(2)?, right_open)
                }
            };
            part(args, first, SliceBounds { left, left_open, right, right_open })
        }
        45 => nth(args),
        70 => {
            let first = args.value(0)?;
            let left = args.whole(1)?;
            part(args, first, SliceBounds { left, left_open: false, right: -1, right_open: false })
        }
        _ => limit(args),
    }
}

#[derive(Clone, Copy)]
struct SliceBounds {
    left: i64,
    left_open: bool,
    right: i64,
    right_open: bool,
}

impl SliceBounds {
    /// The positions in a sequence of this length.
    fn within(self, size: usize) -> (usize, usize) {
        let size = size as i64;
        let place = |at: i64, next: bool| match at {
            at if at < 0 && at + size < 0 => 0,
            at if at < 0 => at + size + i64::from(next),
            at => at + i64::from(next),
        };
        let left = place(self.left, self.left_open).min(size);
        let right = place(self.right, !self.right_open).min(size);
        (left as usize, right.max(left) as usize)
    }
}

fn part(args: &Args<'_>, first: TermValue, part: SliceBounds) -> Out<TermValue> {
    let seq = match first {
        TermValue::Datum(Val::Array(items)) => {
            let (from, to) = part.within(items.len());
            return args.evaluator.array(items[from..to].to_vec()).and_then(datum);
        }
        TermValue::Datum(Val::Text(text)) => {
            let (from, to) = part.within(text.chars().count());
            return datum(Val::Text(text.chars().skip(from).take(to - from).collect()));
        }
        TermValue::Datum(Val::Binary(bytes)) => {
            let (from, to) = part.within(bytes.len());
            return datum(Val::Binary(bytes[from..to].to_vec()));
        }
        // Null is an error of the query here, too. Source: terms/arr.cc.
        TermValue::Datum(_) | TermValue::Row(..) => return Err(Fault::logic("no sequence")),
        other => sequence::of_value(args.evaluator, other)?,
    };
    if seq.eager {
        let items = sequence::collected(seq.items)?;
        let (from, to) = part.within(items.len());
        let items = items[from..to].iter().cloned().map(Ok).collect();
        return sequence::settled(args.evaluator, Seq { items, ..seq }, true);
    }
    if part.left < 0 || part.right < -1 || (part.right == -1 && part.right_open) {
        return Err(Fault::logic("a place that a stream does not have"));
    }
    let from = usize::try_from(part.left).unwrap_or(0) + usize::from(part.left_open);
    let to = match part.right {
        -1 => usize::MAX,
        right => usize::try_from(right).unwrap_or(0) + usize::from(!part.right_open),
    };
    Ok(TermValue::Seq(cut(seq, from, to)))
}

/// The items from one position to another; an error before the first item remains.
fn cut(seq: Seq, from: usize, to: usize) -> Seq {
    let bounded = to < usize::MAX;
    let mut items: Vec<Out<Val>> = seq.items.into_iter().take(to.max(from)).collect();
    if from >= to {
        items.clear();
    } else if let Some(at) = items.iter().take(from).position(Result::is_err) {
        items = vec![items.swap_remove(at)];
    } else {
        items.drain(..from.min(items.len()));
    }
    Seq { items, infinite: seq.infinite && !bounded, ..seq }
}

fn limit(args: &Args<'_>) -> Out<TermValue> {
    let first = args.value(0)?;
    let count = args.whole(1)?;
    let count = usize::try_from(count).map_err(|_| Fault::logic("a negative limit"))?;
    match first {
        TermValue::Datum(Val::Array(mut items)) => {
            items.truncate(count);
            args.evaluator.array(items).and_then(datum)
        }
        other => {
            let seq = sequence::of_value(args.evaluator, other)?;
            let eager = seq.eager;
            sequence::settled(args.evaluator, cut(seq, 0, count), eager)
        }
    }
}

/// `nth`, and `bracket` with a number.
pub(super) fn nth(args: &Args<'_>) -> Out<TermValue> {
    let first = args.value(0)?;
    let at = args.whole(1)?;
    let seq = match first {
        TermValue::Datum(Val::Array(items)) => return element(&items, at).and_then(datum),
        TermValue::Datum(other) | TermValue::Row(_, other) => return Err(Fault::expected("ARRAY", &other)),
        other => sequence::of_value(args.evaluator, other)?,
    };
    let found = if seq.eager {
        element(&sequence::collected(seq.items)?, at)?
    } else {
        match at {
            -1 if seq.infinite => return Err(Fault::unspecified("the last of an infinite stream")),
            -1 => seq
                .items
                .into_iter()
                .collect::<Out<Vec<Val>>>()?
                .pop()
                .ok_or_else(|| Fault::missing("empty"))?,
            at if at < 0 => return Err(Fault::logic("a place that a stream does not have")),
            at => {
                let until = seq.items.into_iter().take(at as usize + 1).collect::<Out<Vec<Val>>>()?;
                until.into_iter().nth(at as usize).ok_or_else(|| Fault::missing("index out of bounds"))?
            }
        }
    };
    match seq.table {
        Some(table) => Ok(TermValue::Row(table, found)),
        None => datum(found),
    }
}

fn element(items: &[Val], at: i64) -> Out<Val> {
    let from_start = if at < 0 { at + items.len() as i64 } else { at };
    let found = usize::try_from(from_start).ok().and_then(|at| items.get(at));
    found.cloned().ok_or_else(|| Fault::missing("index out of bounds"))
}
