//! `map` over several sequences, and `concat_map` with functions that return streams.

use std::sync::Arc;

use datum::Datum;
use reql::stream::{Endless, Items, Zipped};
use reql::{Closure, Env, EvalError, Term};

use super::sequence;
use super::sequence::SequenceCall;
use crate::context::Cx;
use crate::stream::Pipe;
use crate::value::{Args, Seq, Value};

/// `map` over several sequences: it ends with the shortest one.
pub(crate) fn map(mut args: Args<'_>) -> Result<Value, EvalError> {
    let cx = args.cx;
    let last = args.len() - 1;
    let eager = (0..last).all(|i| args.is_eager(i));
    let closure = args.func(last)?;
    let mut inputs: Vec<Box<dyn Items>> = Vec::with_capacity(last);
    for i in 0..last {
        inputs.push(args.seq(i)?.pipe.open(cx)?);
    }
    let mut zipped = Zipped::new(inputs, closure)?;
    if !eager {
        return Ok(Value::Seq(Seq::stream(Pipe::of_items(zipped))));
    }
    let env = cx.env();
    env.check_batches()?;
    let items = reql::stream::collect(&mut zipped, &env)?;
    Ok(Value::Datum(Datum::Array(items)))
}

/// `concat_map`: the items of a function's result for each item. An open function may return a stream.
pub(crate) fn concat_map(over: SequenceCall<'_>) -> Result<Value, EvalError> {
    let (cx, call) = (over.cx, over.call);
    let open = matches!(call.args.get(1), Some(Term::Func(func)) if !func.closed);
    let func = match call.args.get(1) {
        Some(term) if open => cx.eval(term, over.scope)?,
        _ => return sequence::apply(over),
    };
    let closure = func.into_func(cx).map_err(|error| error.at(1))?;
    let eager = over.first.is_eager();
    let items = over.first.seq_of_argument(0, cx)?.pipe.open(cx)?;
    let mut flat = FlatMap { cx: cx.shared()?, items, closure, current: None };
    if !eager {
        return Ok(Value::Seq(Seq::stream(Pipe::of_items(flat))));
    }
    let env = cx.env();
    env.check_batches()?;
    let items = reql::stream::collect(&mut flat, &env)?;
    Ok(Value::Datum(Datum::Array(items)))
}

/// The items of a function's results.
struct FlatMap {
    cx: Arc<Cx>,
    items: Box<dyn Items>,
    closure: Closure,
    current: Option<Box<dyn Items>>,
}

impl Items for FlatMap {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(item) = current.next(env)? {
                    return Ok(Some(item));
                }
                self.current = None;
            }
            env.check_cancel()?;
            let Some(item) = self.items.next(env)? else { return Ok(None) };
            let answer = self.cx.call_value(&self.closure, &[item]).map_err(|error| error.at(1))?;
            let seq = answer.seq_of_argument(1, &self.cx);
            let seq = seq.map_err(|error| self.closure.at_result(error, 1))?;
            self.current = Some(seq.pipe.open(&self.cx)?);
        }
    }

    fn endless(&self) -> Option<Endless> {
        self.items.endless()
    }

    fn is_exhausted(&self) -> bool {
        self.current.is_none() && self.items.is_exhausted()
    }
}
