//! Terms on groups: most are applied to each group.

use datum::Datum;
use reql::IndexOption;
use reql::Operation;
use reql::{Call, Closure, EvalError, Op, Scope, Term};
use reql::{Grouped as Groups, GroupedKind};

use super::dispatch;
use crate::context::Cx;
use crate::term::sequence;
use crate::value::{Args, Grouped, Value, datums};
use crate::write::has_changed;

/// Whether a term is applied to each of `groups`, and not to all of them at once. Terms that read a sequence take
/// groups of sequences as one value, and fail. Source: `can_be_grouped` and `is_grouped_seq_op` in the terms of
/// RethinkDB 2.4.
pub(super) fn is_per_group(op: Op, groups: &Grouped) -> bool {
    match op {
        Op::TypeOf | Op::Info | Op::Ungroup | Op::Literal | Op::Default => false,
        Op::Map => !groups.is_stream(),
        _ => true,
    }
}

/// Applies a term on sequences to groups.
pub(super) fn apply(cx: &Cx, call: &Call, scope: &Scope<'_>, grouped: Grouped) -> Result<Value, EvalError> {
    let env = cx.env();
    let Some(operation) = reql::operation(call, scope, &env, IndexOption::Refuse)? else {
        return Err(EvalError::internal(format!("{} is not an operation", call.op.name())));
    };
    match (grouped, operation) {
        (Grouped::Lazy { pipe, by, mut steps }, Operation::Step(step)) => {
            steps.push(step);
            Ok(Value::Grouped(Grouped::Lazy { pipe, by, steps }))
        }
        (grouped, Operation::Terminal(steps, terminal)) => {
            grouped.end(cx, steps, terminal).map(Value::of_closed)
        }
        (grouped, operation) => {
            let ready = reql::Value::Grouped(Box::new(grouped.into_ready(cx)?));
            operation.apply(ready, &env).map(Value::of_closed)
        }
    }
}

/// Applies any other term to the value of each group; the other arguments are evaluated for each.
pub(super) fn each(cx: &Cx, call: &Call, scope: &Scope<'_>, values: Vec<Value>) -> Result<Value, EvalError> {
    let Some(Value::Grouped(grouped)) = values.into_iter().next() else {
        return Err(EvalError::internal("not grouped"));
    };
    let ready = grouped.into_ready(cx)?;
    let mut groups = Vec::with_capacity(ready.groups.len());
    for (key, value) in ready.groups {
        let mut values = vec![Value::Datum(value)];
        for (i, term) in call.args.iter().enumerate().skip(1) {
            values.push(cx.eval(term, scope).map_err(|error| error.at(i))?);
        }
        let answer =
            dispatch::apply(Args::new(cx, call, scope, values)).and_then(|answer| answer.into_datum(cx));
        groups.push((key, answer.map_err(|error| failed_after(call.op, &groups, error))?));
    }
    Ok(ready_value(groups))
}

/// Applies a term that evaluates its own arguments to each group, after its first argument turned out to be grouped.
pub(super) fn again(cx: &Cx, call: &Call, scope: &Scope<'_>, grouped: Grouped) -> Result<Value, EvalError> {
    let ready = grouped.into_ready(cx)?;
    let is_step = matches!(call.op, Op::InnerJoin | Op::OuterJoin);
    let kind = if is_step { ready.kind } else { GroupedKind::Data };
    let mut call = call.clone();
    let mut groups = Vec::with_capacity(ready.groups.len());
    for (key, value) in ready.groups {
        if let Some(first) = call.args.first_mut() {
            *first = Term::Datum(value);
        }
        let answer = cx.plain_call(&call, scope).map_err(|error| failed_after(call.op, &groups, error))?;
        let answer = match is_step {
            // In RethinkDB these are steps of a sequence, which drop groups that become empty.
            true => sequence::to_array(cx, answer)?,
            false => answer.into_datum(cx)?,
        };
        let emptied = matches!(&answer, Datum::Array(items) if items.is_empty());
        if kind == GroupedKind::Data || !emptied {
            groups.push((key, answer));
        }
    }
    Ok(Value::Grouped(Grouped::Ready(Groups { kind, groups })))
}

/// Calls a function with the value of each group.
pub(super) fn call(cx: &Cx, grouped: Grouped, func: &Closure, rest: Vec<Value>) -> Result<Value, EvalError> {
    let rest = datums(cx, rest, 2)?;
    let ready = grouped.into_ready(cx)?;
    let mut groups = Vec::with_capacity(ready.groups.len());
    for (key, value) in ready.groups {
        let mut values = vec![value];
        values.extend(rest.iter().cloned());
        groups.push((key, cx.call_value(func, &values)?.into_datum(cx)?));
    }
    Ok(ready_value(groups))
}

/// The error of a group, indeterminate if earlier groups have written: that is not undone.
fn failed_after(op: Op, before: &[(Datum, Datum)], error: EvalError) -> EvalError {
    let is_write = matches!(op, Op::Insert | Op::Update | Op::Replace | Op::Delete | Op::ForEach);
    let changed =
        |(_, answer): &(Datum, Datum)| matches!(answer, Datum::Object(result) if has_changed(result));
    if is_write && before.iter().any(changed) { error.indeterminate() } else { error }
}

fn ready_value(groups: Vec<(Datum, Datum)>) -> Value {
    Value::Grouped(Grouped::Ready(Groups { kind: GroupedKind::Data, groups }))
}
