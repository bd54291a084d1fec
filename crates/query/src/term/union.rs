//! `union`: sequences one after the other, or merged by their order.

use datum::Datum;
use reql::EvalError;
use reql::stream::{Chained, Items, Merged};

use crate::stream::Pipe;
use crate::value::{Args, Origin, Seq, Value};

/// `union`: an array if all inputs are arrays, otherwise a stream.
pub(crate) fn union(mut args: Args<'_>) -> Result<Value, EvalError> {
    let cx = args.cx;
    let orders = reql::interleave(args.call, args.scope, &cx.env())?;
    let eager = args.all_eager();
    let mut inputs: Vec<Box<dyn Items>> = Vec::with_capacity(args.len());
    let mut origins: Vec<Option<Origin>> = Vec::with_capacity(args.len());
    for i in 0..args.len() {
        let seq = args.seq(i)?;
        origins.push(seq.followed());
        inputs.push(seq.pipe.open(cx)?);
    }
    let origin = orders.is_none().then(|| Box::new(Origin::Union(origins)));
    let pipe = match orders {
        None => Pipe::of_items(Chained::new(inputs)),
        Some(orders) => Pipe::of_items(Merged::new(inputs, orders)),
    };
    if !eager {
        return Ok(Value::Seq(Seq { origin, ..Seq::stream(pipe) }));
    }
    let env = cx.env();
    env.check_batches()?;
    let items = reql::stream::collect(&mut *pipe.open(cx)?, &env)?;
    Ok(Value::Datum(Datum::Array(items)))
}
