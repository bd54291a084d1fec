//! `range` with open bounds.

use reql::EvalError;
use reql::stream::RangeItems;

use crate::stream::Pipe;
use crate::value::{Args, Seq, Value};

/// `range`: the integers from 0 or a start, without the end.
pub(crate) fn range(mut args: Args<'_>) -> Result<Value, EvalError> {
    let (start, end) = match args.len() {
        0 => (0, None),
        1 => (0, Some(args.integer(0)?)),
        _ => (args.integer(0)?, Some(args.integer(1)?)),
    };
    Ok(Value::Seq(Seq::stream(Pipe::of_items(RangeItems::new(start, end)))))
}
