//! Terms over one sequence: their arguments become an operation, which is applied to the first argument.

use std::sync::Arc;

use datum::{Datum, Object, ObjectBuilder, Text};

use super::{
    Context, ResultKind, arg_at, closure_of_right_side, closures, datum_at, func_at, func_only_at, order_by,
    per_item, value_at,
};
use crate::args::{Arg, Args, integer};
use crate::backtrace::{Frame, TermPath};
use crate::error::EvalError;
use crate::op::field::object_of;
use crate::operation::{self, Extras, Operation};
use crate::purity;
use crate::scope::Scope;
use crate::select::{Filter, OnMissing};
use crate::signature::Op;
use crate::stream;
use crate::term::{Call, Term};
use crate::transform;
use crate::value::Value;

/// How the `index` of a term is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexOption {
    /// An index is an error: there is no table here.
    Refuse,
    /// The caller has handled it.
    Ignore,
}

/// Evaluates a call of a term over a sequence.
pub(super) fn value(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    let context = context.plain();
    let [first, rest @ ..] = call.args.as_slice() else {
        return Err(EvalError::internal("a sequence term without arguments"));
    };
    if let Some(answer) = pieces(call.op, first, rest, context) {
        return answer.map(Value::Datum);
    }
    let source = value_at(first, context).map_err(|error| error.at(0))?;
    if let Some(answer) = field(call.op, &source, rest) {
        return answer.map(Value::Datum);
    }
    if let Value::Datum(single) = &source {
        operation::check_source(call.op, single)?;
    }
    if call.op == Op::OrderBy {
        return order_by::order_by(call, source, context);
    }
    let each = match &source {
        Value::Datum(Datum::Array(_)) | Value::Stream(_) | Value::Grouped(_) | Value::Grouping(_) => true,
        Value::Datum(_) | Value::Func(_) => false,
    };
    if operation::wants_table(call) {
        return Err(source.mismatch("TABLE").at(0));
    }
    if each && transform::is_over_objects(call.op) {
        return per_item::operation(call, context)?.apply(source, context.env);
    }
    match operation(call, context, IndexOption::Refuse)? {
        Some(operation) => operation.apply(source, context.env),
        None => Err(super::not_here(call.op)),
    }
}

/// Fast path for a constant field of an object, the most frequent term in functions.
fn field(op: Op, source: &Value, rest: &[Term]) -> Option<Result<Datum, EvalError>> {
    let (Op::Bracket | Op::GetField, [Term::Datum(Datum::String(name))]) = (op, rest) else {
        return None;
    };
    let Value::Datum(item @ Datum::Object(_)) = source else { return None };
    let term = if op == Op::Bracket { "bracket" } else { "get_field" };
    Some(
        object_of(item, term)
            .and_then(|object| object.get(name).ok_or_else(|| EvalError::no_attribute(name, object))),
    )
}

/// Fast path for terms over `split`, such as `count`, that do not need to build the array of pieces.
fn pieces(op: Op, first: &Term, rest: &[Term], context: Context<'_>) -> Option<Result<Datum, EvalError>> {
    let Term::Call(split) = first else { return None };
    if split.op != Op::Split || split.traits.splices || split.traits.open {
        return None;
    }
    let [text, Term::Datum(Datum::String(separator))] = split.args.as_slice() else { return None };
    let wanted = match (op, rest) {
        (Op::Count, []) => None,
        (Op::IsEmpty, []) => None,
        (Op::Nth | Op::Bracket, [Term::Datum(Datum::Number(position))])
            if position.fract() == 0.0 && (0.0..1e9).contains(position) =>
        {
            Some(*position as usize)
        }
        _ => return None,
    };
    if separator.is_empty() {
        return None;
    }
    let text = match datum_at(text, context) {
        Ok(Datum::String(text)) => text,
        Ok(other) => return Some(Err(EvalError::type_error("STRING", &other).at(0).at(0))),
        Err(error) => return Some(Err(error.at(0).at(0))),
    };
    // Pieces must be counted for `count`, and if they might exceed the array limit.
    let is_counted = op == Op::Count || text.len() >= context.env.array_limit;
    let count = if is_counted { count_pieces(&text, separator) } else { 0 };
    if let Err(error) = context.env.check_array(count) {
        return Some(Err(error.at(0)));
    }
    Some(match wanted {
        None if op == Op::IsEmpty => Ok(Datum::Bool(false)),
        None => Ok(Datum::Number(count as f64)),
        Some(position) => text
            .split(separator.as_ref() as &str)
            .nth(position)
            .map(|piece| Datum::String(text.slice_ref(piece)))
            .ok_or_else(|| EvalError::out_of_bounds(position as i64)),
    })
}

/// The number of pieces that splitting at `separator` makes.
fn count_pieces(text: &str, separator: &str) -> usize {
    // So short that the count fits into one byte: the compiler then compares many bytes at once.
    const LANE: usize = 128;
    match separator.as_bytes() {
        &[only] => {
            let lanes = text.as_bytes().chunks(LANE);
            let found = |lane: &[u8]| lane.iter().map(|byte| u8::from(*byte == only)).sum::<u8>();
            1 + lanes.map(|lane| usize::from(found(lane))).sum::<usize>()
        }
        _ => 1 + text.matches(separator).count(),
    }
}

/// Evaluates all arguments of `call` but the first, and makes its operation.
pub(super) fn operation(
    call: &Call,
    context: Context<'_>,
    index: IndexOption,
) -> Result<Option<Operation>, EvalError> {
    if !operation::is_operation(call.op) {
        return Ok(None);
    }
    if call.op == Op::Slice {
        return slice(call, context).map(Some);
    }
    let mut values = Vec::with_capacity(call.args.len());
    values.push(Arg::Datum(Datum::Null));
    // An ignored index may come from the term or from the options of the query.
    let mut extras = Extras { indexed: index == IndexOption::Ignore, ..Extras::default() };
    if call.op == Op::OrderBy {
        extras.orders = order_by::orders(&call.args[1..], context, |i| vec![Frame::from(i + 1)])?;
    } else {
        for (i, term) in call.args.iter().enumerate().skip(1) {
            match argument(call.op, i, term, context).map_err(|error| error.at(i)) {
                Ok(Arg::Datum(other)) if call.op == Op::Difference && !matches!(other, Datum::Array(_)) => {
                    return difference_that_fails(EvalError::not_a_sequence(&other)).map(Some);
                }
                Ok(value) => values.push(value),
                Err(error) if call.op == Op::Difference => return difference_that_fails(error).map(Some),
                Err(error) => return Err(error),
            }
        }
    }
    let mut optargs = Vec::new();
    for (name, term) in &call.optargs {
        match (call.op, &**name) {
            (_, "index") if extras.indexed => {}
            // The index may be wrapped in ASC or DESC; only its presence matters here.
            (_, "index") => optargs.push((name.clone(), Datum::Null)),
            (Op::Filter, "default") => {}
            (Op::Fold, "emit") => extras.emit = Some(function(name, term, context)?),
            (Op::Fold, "final_emit") => extras.final_emit = Some(function(name, term, context)?),
            _ => {
                let value = datum_at(term, context).map_err(|error| error.at(name))?;
                optargs.push((name.clone(), value));
            }
        }
    }
    if call.op == Op::Filter {
        extras.on_missing = on_missing(call, context);
    }
    let args = Args::new(&values, &optargs, context.env);
    operation::build(call.op, &args, extras)
}

/// `slice`, whose arguments are evaluated when they are needed.
fn slice(call: &Call, context: Context<'_>) -> Result<Operation, EvalError> {
    let is_open = |name: &'static str| {
        let given = call.optarg(name).map(|term| datum_at(term, context)).transpose();
        let given = given.map_err(|error| error.at(name))?.map(|given| (Text::from_static(name), given));
        operation::is_open(&Args::new(&[], given.as_slice(), context.env), name)
    };
    let position = |i: usize| match call.args.get(i).map(|term| datum_at(term, context)).transpose() {
        Ok(Some(Datum::Number(number))) => integer(number).map_err(|error| error.at(i)),
        Ok(Some(other)) => Err(EvalError::type_error("NUMBER", &other).at(i)),
        Ok(None) => Err(EvalError::internal("slice without a position")),
        Err(error) => Err(error.at(i)),
    };
    operation::slice(call.args.len(), is_open, position).map(Operation::Slice)
}

/// Evaluates one argument. Literals are legal in values to merge or match, and some terms take sequences.
fn argument(op: Op, i: usize, term: &Term, context: Context<'_>) -> Result<Arg, EvalError> {
    match (op, i, term) {
        (Op::Merge | Op::Filter, _, _) => func_at(term, context.with_literals()),
        (Op::ConcatMap, 1, Term::Func(func)) => {
            closures::close(func, context.scope, ResultKind::Sequence).map(Arg::Func)
        }
        (Op::Difference, 1, _) => collected(term, context).map(Arg::Datum),
        (Op::InnerJoin | Op::OuterJoin, 1, _) => match collected(term, context) {
            Ok(items @ Datum::Array(_)) if !purity::is_random(term) => Ok(Arg::Datum(items)),
            _ => closure_of_right_side(term, context.scope).map(Arg::Func),
        },
        (Op::InnerJoin | Op::OuterJoin, 2, _) => per_item::constant(term, context).map(Arg::Func),
        (Op::Map | Op::ConcatMap | Op::Reduce, _, _) | (Op::Fold, 2, _) => func_only_at(term, context),
        (Op::Group | Op::Sum | Op::Avg | Op::Min | Op::Max, _, _) => func_at(term, context),
        _ => arg_at(term, context),
    }
}

/// A datum, or all items of a stream.
fn collected(term: &Term, context: Context<'_>) -> Result<Datum, EvalError> {
    match value_at(term, context)? {
        Value::Stream(mut items) => stream::collect_unlimited(&mut *items, context.env).map(Datum::Array),
        Value::Datum(datum) => Ok(datum),
        other => Err(other.no_sequence()),
    }
}

/// `difference` whose second argument fails with `error`. RethinkDB evaluates it for each item of the first, in the function of a
/// `filter`: without an item nothing fails, and where something is missing, the item is left out.
pub fn difference_that_fails(error: EvalError) -> Result<Operation, EvalError> {
    let nothing = vec![Term::Datum(Datum::Object(Object::default())), Term::Datum(Datum::from(""))];
    let missing = Term::Call(Box::new(Call::new(Op::Bracket, nothing, Vec::new())));
    let test = per_item::deferred(&missing, &Scope::empty(), ResultKind::Datum)?;
    let on_missing = if error.is_non_existence() { OnMissing::Drop } else { OnMissing::Fail(error) };
    Ok(Operation::Step(transform::Transform::Filter(Filter::new(Arg::Func(test), on_missing))))
}

fn function(name: &Text, term: &Term, context: Context<'_>) -> Result<crate::closure::Closure, EvalError> {
    match func_at(term, context).map_err(|error| error.at(name))? {
        Arg::Func(closure) => Ok(closure),
        Arg::Datum(datum) => Err(EvalError::not_a_function(&datum).at(name)),
    }
}

/// The `default` of a filter, which the query has no option for. An error in the option itself is raised only when the option is
/// needed. Source: `lazy_literal_optarg` of RethinkDB.
fn on_missing(call: &Call, context: Context<'_>) -> OnMissing {
    let Some(term) = call.optarg("default") else { return OnMissing::Drop };
    match datum_at(term, context) {
        Ok(value) if value.is_truthy() => OnMissing::Keep,
        Ok(_) => OnMissing::Drop,
        Err(error) if error.is_empty_error() => OnMissing::Raise,
        Err(error) => OnMissing::Fail(error.at("default").anchored(path_of(call).as_ref())),
    }
}

/// The path to a filter, if the path of its function is known.
fn path_of(filter: &Call) -> Option<Arc<TermPath>> {
    match filter.args.get(1) {
        Some(Term::Func(func)) => func.path.as_ref()?.outer().cloned(),
        _ => None,
    }
}

/// `ungroup`: the groups as an array of `{group, reduction}`.
pub(super) fn ungroup(call: &Call, context: Context<'_>) -> Result<Value, EvalError> {
    let Some(first) = call.args.first() else {
        return Err(EvalError::internal("ungroup without an argument"));
    };
    let value = value_at(first, context.plain()).map_err(|error| error.at(0))?;
    match operation::collect_groups(value, context.env)? {
        Value::Grouped(grouped) => {
            context.env.check_array(grouped.groups.len())?;
            let rows = grouped.groups.into_iter().map(|(key, value)| {
                let mut row = ObjectBuilder::new();
                row.insert(Text::from_static("group"), key);
                row.insert(Text::from_static("reduction"), value);
                Datum::Object(row.build())
            });
            Ok(Value::Datum(Datum::from(rows.collect::<Vec<_>>())))
        }
        other => Err(other.mismatch("GROUPED_DATA").at(0)),
    }
}
