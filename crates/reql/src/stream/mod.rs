//! Sequences whose items are made when they are asked for.
//!
//! [`Items`] is what a stream is. The closed language has few sources of its own (`range`,
//! arrays); tables are sources at the top of a query. What is built on a source is the same for
//! all of them and lives in the modules here.

mod fold;
mod join;
mod merge;
mod slice;
mod source;
mod step;

use datum::Array;

use crate::env::Env;
use crate::error::EvalError;

pub use crate::items::Items;
pub use fold::{Emit, Fold, Folded};
pub use join::{Join, Joined, Right, pair};
pub use merge::{Chained, Merged};
pub use slice::{Slice, Sliced, nth};
pub use source::{ArrayItems, RangeItems};
pub use step::{Offsets, Stepped, Zipped, check_map_arity};

/// All items, as an array; fails beyond the array limit.
pub fn collect(items: &mut dyn Items, env: &Env<'_>) -> Result<Array, EvalError> {
    gather(items, env, |count| env.check_array(count))
}

/// All items, to be read again and again; no array of the query's, so that only memory limits them.
pub fn collect_unlimited(items: &mut dyn Items, env: &Env<'_>) -> Result<Array, EvalError> {
    gather(items, env, |_| Ok(()))
}

fn gather(
    items: &mut dyn Items,
    env: &Env<'_>,
    may_be: impl Fn(usize) -> Result<(), EvalError>,
) -> Result<Array, EvalError> {
    if items.is_infinite() {
        return Err(EvalError::infinite());
    }
    let mut all = Vec::new();
    while let Some(item) = items.next(env)? {
        env.check_cancel()?;
        may_be(all.len() + 1)?;
        all.push(item);
    }
    Ok(Array::from(all))
}
