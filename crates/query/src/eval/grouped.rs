//! Terms over groups: most are applied to each group.

use datum::Datum;
use reql::IndexOption;
use reql::Operation;
use reql::{Call, Closure, EvalError, Op, Scope};
use reql::{Grouped as Groups, GroupedKind};

use super::dispatch;
use crate::args::Args;
use crate::context::Cx;
use crate::group::Grouped;
use crate::term::sequence;
use crate::value::{Value, datums};

/// Whether a term is applied to each group rather than to all of them at once.
pub(super) fn is_per_group(op: Op) -> bool {
    !matches!(op, Op::TypeOf | Op::Info | Op::Ungroup | Op::Literal | Op::Default)
}

/// A term over a sequence, applied to groups.
pub(super) fn apply(cx: &Cx, call: &Call, scope: &Scope<'_>, grouped: Grouped) -> Result<Value, EvalError> {
    let env = cx.env();
    let Some(operation) = reql::operation(call, scope, &env, IndexOption::Refuse)? else {
        return Err(EvalError::internal(format!("{} is no operation", call.op.name())));
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

/// Any other term, applied to the value of each group; its other arguments are evaluated for each.
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
        let answer = dispatch::apply(Args::new(cx, call, scope, values))?;
        groups.push((key, into_group(cx, answer)?));
    }
    Ok(ready_value(groups))
}

/// A function called with the value of each group.
pub(super) fn call(cx: &Cx, grouped: Grouped, func: &Closure, rest: Vec<Value>) -> Result<Value, EvalError> {
    let rest = datums(cx, rest, 2)?;
    let ready = grouped.into_ready(cx)?;
    let mut groups = Vec::with_capacity(ready.groups.len());
    for (key, value) in ready.groups {
        let mut values = vec![value];
        values.extend(rest.iter().cloned());
        groups.push((key, into_group(cx, cx.call_value(func, &values)?)?));
    }
    Ok(ready_value(groups))
}

/// A value as it is kept for a group: sequences become arrays.
fn into_group(cx: &Cx, value: Value) -> Result<Datum, EvalError> {
    match value {
        lazy @ (Value::Seq(_) | Value::Table(_)) => sequence::to_array(cx, lazy),
        other => other.into_datum(cx),
    }
}

fn ready_value(groups: Vec<(Datum, Datum)>) -> Value {
    Value::Grouped(Grouped::Ready(Groups { kind: GroupedKind::Data, groups }))
}
