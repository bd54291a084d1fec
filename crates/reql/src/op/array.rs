//! `append`, `prepend`, `insert_at`, `splice_at`, `delete_at`, `change_at`.

use std::ops::Range;

use datum::{Array, Datum};

use crate::EvalError;
use crate::args::Args;

/// `append`: the array with a value added at its end.
pub fn append(args: &Args<'_>) -> Result<Datum, EvalError> {
    let value = std::slice::from_ref(args.datum(1)?);
    let items = args.plain_array(0)?;
    replace(args, items, items.len()..items.len(), value)
}

/// `prepend`: the array with a value added at its start.
pub fn prepend(args: &Args<'_>) -> Result<Datum, EvalError> {
    let value = std::slice::from_ref(args.datum(1)?);
    replace(args, args.plain_array(0)?, 0..0, value)
}

/// `insert_at`: the array with a value inserted at a position; −1 is the end.
pub fn insert_at(args: &Args<'_>) -> Result<Datum, EvalError> {
    let (items, at) = gap(args)?;
    replace(args, items, at..at, std::slice::from_ref(args.datum(2)?))
}

/// `splice_at`: the array with the items of another inserted at a position; −1 is the end.
pub fn splice_at(args: &Args<'_>) -> Result<Datum, EvalError> {
    let (items, at) = gap(args)?;
    replace(args, items, at..at, args.plain_array(2)?)
}

/// `change_at`: the array with the item at a position replaced.
pub fn change_at(args: &Args<'_>) -> Result<Datum, EvalError> {
    let items = within_limit(args)?;
    let at = position(args, 1, items.len())?;
    let value = std::slice::from_ref(args.datum(2)?);
    within(at, items)?;
    replace(args, items, at..at + 1, value)
}

/// `delete_at`: the array without the item at a position, or without the items from one position up to, but not
/// including, another.
pub fn delete_at(args: &Args<'_>) -> Result<Datum, EvalError> {
    let items = within_limit(args)?;
    if args.len() < 3 {
        let at = position(args, 1, items.len())?;
        within(at, items)?;
        return replace(args, items, at..at + 1, &[]);
    }
    let start = position(args, 1, items.len())?;
    let end = position(args, 2, items.len())?;
    for index in [start, end] {
        if index > items.len() {
            return Err(beyond(index, items));
        }
    }
    if start > end {
        return Err(EvalError::logic(format!("Start index `{start}` is greater than end index `{end}`.")));
    }
    replace(args, items, start..end, &[])
}

/// The array to change, which may not exceed the array limit even if the result will not. Source: terms/arr.cc of
/// RethinkDB.
fn within_limit<'a>(args: &Args<'a>) -> Result<&'a Array, EvalError> {
    let items = args.plain_array(0)?;
    args.env.check_array(items.len())?;
    Ok(items)
}

/// The array, and the insertion position that argument 1 names. The inserted value is evaluated before a position
/// beyond the array is an error. Source: terms/arr.cc of RethinkDB.
fn gap<'a>(args: &Args<'a>) -> Result<(&'a Array, usize), EvalError> {
    let items = within_limit(args)?;
    let at = position(args, 1, items.len() + 1)?;
    args.datum(2)?;
    if at > items.len() { Err(beyond(at, items)) } else { Ok((items, at)) }
}

/// Fails unless there is an item at the position that argument 1 names.
fn within(at: usize, items: &Array) -> Result<(), EvalError> {
    if at >= items.len() { Err(beyond(at, items)) } else { Ok(()) }
}

/// Argument `i` as a position among `count` items, counted from the end if negative.
fn position(args: &Args<'_>, i: usize, count: usize) -> Result<usize, EvalError> {
    let index = args.plain_integer(i)?;
    let from_end = if index < 0 { index + count as i64 } else { index };
    usize::try_from(from_end).map_err(|_| EvalError::out_of_bounds(index))
}

fn beyond(index: usize, items: &Array) -> EvalError {
    let size = items.len();
    EvalError::non_existence(format!("Index `{index}` out of bounds for array of size: `{size}`."))
}

/// `items` with the items in `range` replaced by `new`.
fn replace(args: &Args<'_>, items: &Array, range: Range<usize>, new: &[Datum]) -> Result<Datum, EvalError> {
    let count = items.len() - range.len() + new.len();
    args.env.check_array(count)?;
    let mut replaced = Vec::with_capacity(count);
    replaced.extend_from_slice(&items[..range.start]);
    replaced.extend_from_slice(new);
    replaced.extend_from_slice(&items[range.end..]);
    Ok(Datum::from(replaced))
}
