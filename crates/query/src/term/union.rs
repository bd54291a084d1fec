//! `union`: sequences one after the other, or merged by an order they already have.

use datum::Datum;
use reql::Order;
use reql::stream::{Chained, Items, Merged};
use reql::{EvalError, Op, Term};

use crate::args::Args;
use crate::seq::Seq;
use crate::stream::Pipe;
use crate::value::Value;

/// `union`: an array if all inputs are arrays, otherwise a stream.
pub(crate) fn union(mut args: Args<'_>) -> Result<Value, EvalError> {
    let cx = args.cx;
    let orders = orders(&args)?;
    let eager = args.all_eager();
    let mut inputs: Vec<Box<dyn Items>> = Vec::with_capacity(args.len());
    for i in 0..args.len() {
        inputs.push(args.seq(i)?.pipe.open(cx)?);
    }
    let pipe = match orders {
        None => Pipe::of_items(Chained::new(inputs)),
        Some(orders) => Pipe::of_items(Merged::new(inputs, orders)),
    };
    if !eager {
        return Ok(Value::Seq(Seq::stream(pipe)));
    }
    let env = cx.env();
    env.check_batches()?;
    let items = reql::stream::collect(&mut *pipe.open(cx)?, &env)?;
    Ok(Value::Datum(Datum::Array(items)))
}

/// What `interleave` asks for: an order to merge by, or none.
fn orders(args: &Args<'_>) -> Result<Option<Vec<Order>>, EvalError> {
    let Some(term) = args.call.optarg("interleave") else {
        return Ok(None);
    };
    let fields: Vec<Term>;
    let terms = match term {
        Term::Datum(Datum::Bool(_)) => return Ok(None),
        Term::Datum(Datum::Array(names)) => {
            fields = names.iter().cloned().map(Term::Datum).collect();
            fields.as_slice()
        }
        Term::Call(call) if call.op == Op::MakeArray => call.args.as_slice(),
        term => std::slice::from_ref(term),
    };
    let orders = reql::orders(terms, args.scope, &args.cx.env());
    orders.map(Some).map_err(|error| error.at("interleave"))
}
