//! `inner_join` and `outer_join` with a table or a stream.

use std::sync::Arc;

use datum::{Array, Datum};
use reql::purity;
use reql::stream::{Endless, Items, Join, Joined, Right, pair};
use reql::{Call, Closure, Env, EvalError, Op, Scope, Term};

use crate::context::Cx;
use crate::stream::{Pipe, Source};
use crate::value::{Seq, Slice, Value};

/// A right side with at most this many items is read once; a larger one for every left item.
const RIGHT_KEPT_MAX: usize = 10_000;

/// `inner_join`, `outer_join`: the pairs for which a predicate is true.
pub(crate) fn join(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let [left, right, predicate] = call.args.as_slice() else {
        return Err(EvalError::internal("a join without arguments"));
    };
    let outer = call.op == Op::OuterJoin;
    let left = match cx.eval(left, scope).map_err(|error| error.at(0))? {
        Value::Grouped(groups) => return cx.call_per_group(call, scope, groups),
        left => left,
    };
    let is_array = left.is_eager();
    let left = left.seq_of_argument(0, cx)?.pipe.open(cx)?;
    let right = right_side(cx, right, scope)?;
    let predicate = reql::closure_of_predicate(predicate, scope, &cx.env())?;
    cx.check_stopped()?;
    let joined: Box<dyn Items> = match right {
        RightSide::Kept(right) => {
            Box::new(Joined::new(left, Join { right: Right::Kept(right), predicate, outer }))
        }
        RightSide::Reopened(right) => {
            let (cx, current) = (cx.shared()?, None);
            Box::new(ReopenedJoin { cx, left, right, predicate, outer, current })
        }
    };
    joined_value(cx, call.op, joined, is_array)
}

/// The value of a join: an array if the left side is one, whatever the right side is, else a stream. Source:
/// terms/rewrites.cc and datum_stream.cc of RethinkDB 2.4.
pub(super) fn joined_value(
    cx: &Cx,
    op: Op,
    mut joined: Box<dyn Items>,
    is_array: bool,
) -> Result<Value, EvalError> {
    if let Some(trace) = cx.trace_room() {
        trace.at_top(op.name().to_lowercase());
    }
    if !is_array {
        return Ok(Value::Seq(Seq::stream(Pipe::of_source(Source::Items(joined)))));
    }
    let env = cx.env();
    env.check_batches()?;
    let items = reql::stream::collect(&mut *joined, &env)?;
    Ok(Value::Datum(Datum::Array(items)))
}

/// The right side of a join.
enum RightSide {
    /// In memory.
    Kept(Array),
    /// Read again for every left item.
    Reopened(Reopened),
}

/// A sequence that can be read repeatedly.
enum Reopened {
    /// The rows of a table.
    Rows(Slice),
    /// The result of a function without arguments.
    Answer(Closure),
}

impl Reopened {
    fn open(&self, cx: &Cx) -> Result<Box<dyn Items>, EvalError> {
        match self {
            Reopened::Rows(slice) => slice.clone().into_seq(cx)?.pipe.open(cx),
            Reopened::Answer(closure) => cx.call_value(closure, &[])?.seq_of_argument(1, cx)?.pipe.open(cx),
        }
    }
}

/// Evaluates the right side. Its errors are reported when there is a left item.
fn right_side(cx: &Cx, term: &Term, scope: &Scope<'_>) -> Result<RightSide, EvalError> {
    if !purity::is_random(term)
        && let Ok(value) = cx.eval(term, scope)
        && let Ok(right) = kept_or_again(cx, value)
    {
        return Ok(right);
    }
    cx.check_stopped()?;
    reql::closure_of_right_side(term, scope).map(|closure| RightSide::Reopened(Reopened::Answer(closure)))
}

fn kept_or_again(cx: &Cx, value: Value) -> Result<RightSide, EvalError> {
    let reopened = match &value {
        Value::Table(slice) => Some(slice.clone()),
        _ => None,
    };
    let mut items = value.into_seq(cx)?.pipe.open(cx)?;
    if let Some(endless) = items.endless() {
        return Err(endless.error());
    }
    let env = cx.env();
    let mut kept = Vec::new();
    while let Some(item) = items.next(&env)? {
        env.check_cancel()?;
        kept.push(item);
        match &reopened {
            Some(slice) if kept.len() > RIGHT_KEPT_MAX => {
                return Ok(RightSide::Reopened(Reopened::Rows(slice.clone())));
            }
            _ => {}
        }
    }
    Ok(RightSide::Kept(Array::from(kept)))
}

/// A join that reads its right side for every left item.
struct ReopenedJoin {
    cx: Arc<Cx>,
    left: Box<dyn Items>,
    right: Reopened,
    predicate: Closure,
    outer: bool,
    current: Option<Current>,
}

/// A left item and the rest of the right side.
struct Current {
    left: Datum,
    right: Box<dyn Items>,
    matched: bool,
}

impl Items for ReopenedJoin {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            env.check_cancel()?;
            let Some(current) = &mut self.current else {
                let Some(left) = self.left.next(env)? else { return Ok(None) };
                let right = self.right.open(&self.cx)?;
                if let Some(endless) = right.endless() {
                    return Err(endless.error());
                }
                self.current = Some(Current { left, right, matched: false });
                continue;
            };
            if let Some(right) = current.right.next(env)? {
                let values = [current.left.clone(), right];
                if self.predicate.test(&values, env).map_err(|error| error.at(2))? {
                    current.matched = true;
                    let [left, right] = values;
                    return Ok(Some(pair(left, Some(right))));
                }
                continue;
            }
            let alone = self.current.take().filter(|current| self.outer && !current.matched);
            if let Some(current) = alone {
                return Ok(Some(pair(current.left, None)));
            }
        }
    }

    fn endless(&self) -> Option<Endless> {
        self.left.endless()
    }

    fn is_exhausted(&self) -> bool {
        self.current.is_none() && self.left.is_exhausted()
    }
}
