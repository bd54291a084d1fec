//! Streams: sequences whose items are produced on demand.
//!
//! A stream implements [`Items`]. The closed evaluator has only arrays and `range` as sources; tables are sources
//! at the top of a query. The modules here build on any source.

mod fold;
mod join;
mod merge;
mod slice;
mod source;
mod step;

use datum::Array;

use crate::env::Env;
use crate::error::EvalError;

pub use crate::items::{Endless, Items};
pub use fold::{Emit, Fold, Folded};
pub use join::{Join, Joined, Right, pair};
pub use merge::{Chained, Merged};
pub use slice::{Slice, Sliced, nth};
pub use source::{ArrayItems, RangeItems};
pub use step::{Offsets, Stepped, Zipped, check_map_arity};

/// Collects all items into an array. Fails beyond the array limit.
pub fn collect(items: &mut dyn Items, env: &Env<'_>) -> Result<Array, EvalError> {
    gather(items, env, |count| env.check_array(count))
}

/// Collects all items, to be read repeatedly. The result is not an array of the query, so only memory limits it.
pub fn collect_unlimited(items: &mut dyn Items, env: &Env<'_>) -> Result<Array, EvalError> {
    gather(items, env, |_| Ok(()))
}

fn gather(
    items: &mut dyn Items,
    env: &Env<'_>,
    may_be: impl Fn(usize) -> Result<(), EvalError>,
) -> Result<Array, EvalError> {
    if let Some(endless) = items.endless() {
        return Err(endless.error());
    }
    let mut all = Vec::new();
    while let Some(item) = items.next(env)? {
        env.check_cancel()?;
        may_be(all.len() + 1)?;
        all.push(item);
    }
    Ok(Array::from(all))
}
