//! `changes`: a feed of the changes of a sequence or of one document.

use reql::EvalError;

use crate::feed::{FeedItems, FeedOptions, FeedPlan};
use crate::stream::Pipe;
use crate::value::{Args, Seq, Value};

/// `changes`: an infinite stream.
pub(crate) fn changes(mut args: Args<'_>) -> Result<Value, EvalError> {
    let options = FeedOptions::of(&args)?;
    let followed = args.take(0)?;
    let plan = FeedPlan::of(args.cx, followed)?;
    let items = FeedItems::open(args.cx, plan, options)?;
    Ok(Value::Seq(Seq::stream(Pipe::of_items(items))))
}
