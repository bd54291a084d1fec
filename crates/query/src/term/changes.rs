//! `changes`: a feed of the changes of a sequence, of one document, or of an aggregate.

use reql::{Call, EvalError, IndexOption, Op, Operation, Pipeline, Scope, Term};

use super::by_index::{self, Extreme};
use super::sequence::SequenceCall;
use crate::context::Cx;
use crate::feed::{self, FeedOptions, Followed};
use crate::value::{Args, Grouped, Origin, Seq, Slice, Value};

/// `changes`: an infinite stream.
pub(crate) fn changes(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let Some(source) = call.args.first() else {
        return Err(EvalError::internal("CHANGES without arguments"));
    };
    let source = source_of(cx, source, scope).map_err(|error| error.at(0))?;
    let options = FeedOptions::of(&Args::new(cx, call, scope, Vec::new()))?;
    let followed = match source {
        FeedSource::Value(value) => Followed::of(cx, value)?,
        FeedSource::Rows(origin) => Followed::of_origin(cx, origin)?,
        FeedSource::Aggregate(origin, pipeline) => Followed::of_aggregate(cx, origin, pipeline)?,
    };
    feed::open(cx, followed, options).map(Seq::stream).map(Value::Seq)
}

/// The argument of `changes`.
enum FeedSource {
    Value(Value),
    /// Rows that were not read.
    Rows(Origin),
    /// An aggregate of these rows, which was not evaluated.
    Aggregate(Origin, Pipeline),
}

/// Evaluates the argument, up to an aggregate of rows: only the sequence below that is evaluated.
fn source_of(cx: &Cx, term: &Term, scope: &Scope<'_>) -> Result<FeedSource, EvalError> {
    let call = match term {
        Term::Call(call) if call.traits.open && !call.traits.splices => call,
        other => return cx.eval(other, scope).map(FeedSource::Value),
    };
    match (call.op, call.args.first()) {
        (Op::Count | Op::Sum | Op::Avg | Op::Min | Op::Max | Op::Reduce | Op::Distinct, Some(first)) => {
            let first = cx.eval(first, scope).map_err(|error| error.at(0))?;
            aggregate_source(SequenceCall { cx, call, scope, first })
        }
        _ => cx.eval(term, scope).map(FeedSource::Value),
    }
}

fn aggregate_source(over: SequenceCall<'_>) -> Result<FeedSource, EvalError> {
    let (cx, op) = (over.cx, over.call.op);
    let over = match op {
        Op::Min | Op::Max if !matches!(over.first, Value::Grouped(_)) => match by_index::extreme_of(over)? {
            Extreme::First(slice) => return first_row(cx, slice),
            Extreme::OfItems(over) => over,
        },
        _ => over,
    };
    match rows_of(&over)? {
        Some((origin, pipeline)) => Ok(FeedSource::Aggregate(origin, pipeline)),
        None => cx.apply_to(over.call, over.scope, over.first).map(FeedSource::Value),
    }
}

/// The first row of a table in the order of an index.
fn first_row(cx: &Cx, slice: Slice) -> Result<FeedSource, EvalError> {
    let seq = slice.into_seq(cx)?;
    match seq.followed() {
        Some(origin) => Ok(FeedSource::Rows(origin.limited(1))),
        None => Ok(FeedSource::Value(Value::Seq(seq))),
    }
}

/// The rows that an aggregate is made of, and how; `None` if it is not an aggregate of rows, or finds its items by an index.
fn rows_of(over: &SequenceCall<'_>) -> Result<Option<(Origin, Pipeline)>, EvalError> {
    let SequenceCall { cx, call, scope, first } = over;
    let distinct_by_key = |slice: &Slice| slice.index_name() == slice.table.primary_key();
    if call.op == Op::Distinct && by_index::names_index(over) {
        return Ok(None);
    }
    let (origin, group, mut grouped_steps) = match first {
        // Its rows are distinct already.
        Value::Table(slice) if call.op == Op::Distinct && distinct_by_key(slice) => return Ok(None),
        Value::Table(slice) => (slice.clone().into_seq(cx)?.followed(), None, Vec::new()),
        Value::Seq(seq) => (seq.followed(), None, Vec::new()),
        Value::Grouped(Grouped::Lazy { pipe, by, steps }) => {
            (Origin::of_pipe(pipe), Some(by.clone()), steps.clone())
        }
        _ => return Ok(None),
    };
    let Some(origin) = origin else { return Ok(None) };
    let Some(Operation::Terminal(steps, terminal)) =
        reql::operation(call, scope, &cx.env(), IndexOption::Refuse)?
    else {
        return Ok(None);
    };
    grouped_steps.extend(steps);
    Ok(Some((origin, Pipeline { steps: Vec::new(), group, grouped_steps, terminal })))
}
