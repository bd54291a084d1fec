//! Terms that treat an array as a set.

use std::collections::HashSet;

use datum::{Array, Datum};

use crate::EvalError;
use crate::args::Args;

/// `set_insert`: the distinct items of the array, and the value.
pub fn set_insert(args: &Args<'_>) -> Result<Datum, EvalError> {
    let value = std::slice::from_ref(args.datum(1)?);
    let items = args.plain_array(0)?;
    distinct(items.iter().chain(value), &HashSet::new(), args)
}

/// `set_union`: the distinct items of both arrays.
pub fn set_union(args: &Args<'_>) -> Result<Datum, EvalError> {
    let (items, more) = both(args)?;
    distinct(items.iter().chain(more.iter()), &HashSet::new(), args)
}

/// `set_intersection`: the distinct items of the second array that are in the first.
pub fn set_intersection(args: &Args<'_>) -> Result<Datum, EvalError> {
    let (wanted, items) = both(args)?;
    let wanted: HashSet<&Datum> = wanted.iter().collect();
    distinct(items.iter().filter(|item| wanted.contains(item)), &HashSet::new(), args)
}

/// `set_difference`: the distinct items of the first array that are not in the second.
pub fn set_difference(args: &Args<'_>) -> Result<Datum, EvalError> {
    let (items, unwanted) = both(args)?;
    let unwanted: HashSet<&Datum> = unwanted.iter().collect();
    distinct(items.iter(), &unwanted, args)
}

/// Both arrays. A missing value in either takes precedence over type errors. Source: terms/arr.cc of RethinkDB.
fn both<'a>(args: &Args<'a>) -> Result<(&'a Array, &'a Array), EvalError> {
    args.datum(1)?;
    Ok((args.plain_array(0)?, args.plain_array(1)?))
}

/// Each distinct item at its first position, except unwanted ones.
fn distinct<'d>(
    items: impl Iterator<Item = &'d Datum>,
    unwanted: &HashSet<&'d Datum>,
    args: &Args<'_>,
) -> Result<Datum, EvalError> {
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for item in items {
        if !unwanted.contains(item) && seen.insert(item) {
            args.env.check_array(kept.len() + 1)?;
            kept.push(item.clone());
        }
    }
    Ok(Datum::from(kept))
}
