//! Makes an operation from the arguments of a term.

use datum::Datum;

use super::{Operation, taken};
use crate::args::{Arg, Args};
use crate::closure::Closure;
use crate::error::EvalError;
use crate::group::GroupBy;
use crate::order::{self, Order};
use crate::select::{Filter, OnMissing, Predicate, Selector};
use crate::signature::Op;
use crate::stream::{Fold, Join, Right, Slice, check_map_arity};
use crate::term::Call;
use crate::terminal::Terminal;
use crate::transform::{Transform, is_over_objects, step_of};

/// Arguments that are neither a datum nor a function.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// The `default` of `filter`.
    pub on_missing: OnMissing,
    /// The arguments of `order_by` after the first.
    pub orders: Vec<Order>,
    /// The `emit` of `fold`.
    pub emit: Option<Closure>,
    /// The `final_emit` of `fold`.
    pub final_emit: Option<Closure>,
    /// Whether there is an index, so that `group` and `order_by` need no other argument.
    pub indexed: bool,
}

/// The operation of `op` with these arguments; `None` if it is not a term over sequences.
///
/// The first argument of `args` is a placeholder for the sequence.
///
/// An `index` is an error, since there is no table here. A caller that handles the index omits it and sets
/// `indexed` in `extras`, because an index can replace all other arguments.
pub fn build(op: Op, args: &Args<'_>, extras: Extras) -> Result<Option<Operation>, EvalError> {
    let operation = match op {
        Op::Map | Op::ConcatMap | Op::Filter | Op::Zip => step(op, args, extras)?,
        Op::Bracket => field(args)?,
        op if is_over_objects(op) => Operation::Step(step_of(op, args)?),
        Op::Difference => difference(args)?,
        Op::Count | Op::Sum | Op::Avg | Op::Min | Op::Max | Op::Reduce | Op::Distinct => terminal(op, args)?,
        Op::Group => group(args, extras.indexed)?,
        Op::OrderBy => order_by(args, extras)?,
        Op::Limit | Op::Skip | Op::Slice | Op::Nth => position(op, args)?,
        Op::Sample => sample(args)?,
        Op::IsEmpty => Operation::IsEmpty,
        Op::Contains => {
            let predicates = args.values.iter().skip(1).cloned().map(Predicate::strict);
            Operation::Contains(predicates.collect())
        }
        Op::OffsetsOf => Operation::OffsetsOf(Predicate::lenient(taken(args.values, 1)?)),
        Op::Fold => Operation::Fold(Fold {
            base: args.datum(1)?.clone(),
            next: args.func(2)?.clone(),
            emit: extras.emit,
            final_emit: extras.final_emit,
        }),
        Op::InnerJoin | Op::OuterJoin => join(op, args)?,
        _ => return Ok(None),
    };
    Ok(Some(operation))
}

/// Whether [`build`] knows the term `op`.
#[must_use]
pub fn is_operation(op: Op) -> bool {
    is_over_objects(op)
        || matches!(
            op,
            Op::Map
                | Op::ConcatMap
                | Op::Filter
                | Op::Zip
                | Op::Bracket
                | Op::Difference
                | Op::Count
                | Op::Sum
                | Op::Avg
                | Op::Min
                | Op::Max
                | Op::Reduce
                | Op::Distinct
                | Op::Group
                | Op::OrderBy
                | Op::Limit
                | Op::Skip
                | Op::Slice
                | Op::Nth
                | Op::Sample
                | Op::IsEmpty
                | Op::Contains
                | Op::OffsetsOf
                | Op::Fold
                | Op::InnerJoin
                | Op::OuterJoin
        )
}

fn step(op: Op, args: &Args<'_>, extras: Extras) -> Result<Operation, EvalError> {
    Ok(Operation::Step(match op {
        Op::Map => {
            let closure = args.func(1)?;
            check_map_arity(closure, 1)?;
            Transform::Map(closure.clone())
        }
        Op::ConcatMap => Transform::ConcatMap(args.func(1)?.clone()),
        Op::Filter => Transform::Filter(Filter::new(taken(args.values, 1)?, extras.on_missing)),
        _ => Transform::Zip,
    }))
}

fn field(args: &Args<'_>) -> Result<Operation, EvalError> {
    match args.datum(1)? {
        Datum::String(name) => Ok(Operation::Step(Transform::Field { name: name.clone(), term: "bracket" })),
        Datum::Number(_) => args.narrow(1).map(Operation::Nth),
        other => Err(EvalError::typed(
            other,
            format!(
                "Expected NUMBER or STRING as second argument to `bracket` but found {}.",
                other.kind().name()
            ),
        )),
    }
}

fn difference(args: &Args<'_>) -> Result<Operation, EvalError> {
    match args.datum(1)? {
        Datum::Array(unwanted) => Ok(Operation::Step(Transform::Filter(Filter::without(unwanted)))),
        other => Err(EvalError::not_a_sequence(other)),
    }
}

fn terminal(op: Op, args: &Args<'_>) -> Result<Operation, EvalError> {
    let argument = args.get(1).cloned();
    if args.own_optarg("index").is_some() {
        return Err(index_refused(op, argument.is_some()));
    }
    let selector = || argument.clone().map(Selector::from);
    let terminal = match op {
        Op::Count => {
            let steps = argument.clone().map(|arg| Transform::Matching(Predicate::lenient(arg)));
            return Ok(Operation::Terminal(steps.into_iter().collect(), Terminal::Count));
        }
        Op::Sum => Terminal::Sum(selector()),
        Op::Avg => Terminal::Avg(selector()),
        Op::Min => Terminal::Min(selector()),
        Op::Max => Terminal::Max(selector()),
        Op::Reduce => Terminal::Reduce(args.func(1)?.clone()),
        _ => Terminal::Distinct,
    };
    Ok(Operation::Terminal(Vec::new(), terminal))
}

/// The error for an index: only tables have indexes.
fn index_refused(op: Op, with_function: bool) -> EvalError {
    let term = op.name().to_lowercase();
    match op {
        Op::Sum | Op::Avg => EvalError::logic(format!("Cannot call {term} on an index.")),
        Op::Min | Op::Max if with_function => {
            EvalError::logic(format!("Cannot provide both a function and an index to {term}."))
        }
        Op::Distinct => EvalError::logic("Can only perform an indexed distinct on a TABLE."),
        _ => EvalError::value_type_error("TABLE", "SEQUENCE", "VALUE SEQUENCE").at(0),
    }
}

/// Whether a term names an index and nothing else to order or group by, so that its first argument must be a table.
pub(crate) fn wants_table(call: &Call) -> bool {
    let has_index = call.optarg("index").is_some();
    match call.op {
        Op::Min | Op::Max => has_index && call.args.len() == 1,
        Op::Group => has_index,
        _ => false,
    }
}

fn group(args: &Args<'_>, indexed: bool) -> Result<Operation, EvalError> {
    if args.own_optarg("index").is_some() {
        return Err(index_refused(Op::Group, false));
    }
    let selectors: Vec<_> = args.values.iter().skip(1).cloned().map(Selector::from).collect();
    if selectors.is_empty() && !indexed {
        return Err(EvalError::logic("Cannot group by nothing."));
    }
    let multi = args.flag("multi")?.unwrap_or(false);
    Ok(Operation::Group(GroupBy { selectors, multi }))
}

fn order_by(args: &Args<'_>, extras: Extras) -> Result<Operation, EvalError> {
    if args.own_optarg("index").is_some() {
        return Err(order::needs_table());
    }
    if extras.orders.is_empty() && !extras.indexed {
        return Err(order::nothing_to_order_by());
    }
    Ok(Operation::OrderBy(extras.orders))
}

fn position(op: Op, args: &Args<'_>) -> Result<Operation, EvalError> {
    match op {
        Op::Limit => {
            let count = args.narrow(1)?;
            let negative = |_| EvalError::logic(format!("LIMIT takes a non-negative argument (got {count})"));
            u32::try_from(count).map(Operation::Limit).map_err(negative)
        }
        Op::Skip => Ok(Operation::Slice(Slice::skip(args.integer(1)?))),
        Op::Nth => args.narrow(1).map(Operation::Nth),
        _ => slice(args.len(), |name| is_open(args, name), |i| args.integer(i)).map(Operation::Slice),
    }
}

/// A `slice` with `count` arguments. It checks each of its bounds before the position it belongs to, and the right
/// bound only if there is a right position. Source: `slice_term_t` in terms/arr.cc of RethinkDB 2.4.
pub(crate) fn slice(
    count: usize,
    is_open: impl Fn(&'static str) -> Result<Option<bool>, EvalError>,
    position: impl Fn(usize) -> Result<i64, EvalError>,
) -> Result<Slice, EvalError> {
    let left_open = is_open("left_bound")?.unwrap_or(false);
    let left = position(1)?;
    let (mut right_closed, mut right) = (true, -1);
    if count > 2 {
        right_closed = is_open("right_bound")? == Some(false);
        right = position(2)?;
    }
    Ok(Slice { left, right, left_open, right_closed })
}

/// Whether a bound is open; `None` if the option is missing.
pub(crate) fn is_open(args: &Args<'_>, name: &str) -> Result<Option<bool>, EvalError> {
    match args.optional_string(name)?.map(|text| text.as_ref()) {
        None => Ok(None),
        Some("open") => Ok(Some(true)),
        Some("closed") => Ok(Some(false)),
        Some(other) => {
            let printed = Datum::from(other).to_json_string();
            let message = format!("Expected `open` or `closed` for optarg `{name}` (got `{printed}`).");
            Err(EvalError::logic(message))
        }
    }
}

fn sample(args: &Args<'_>) -> Result<Operation, EvalError> {
    let count = args.integer(1)?;
    let Ok(count) = usize::try_from(count) else {
        let message = format!("Number of items to sample must be non-negative, got `{count}`.");
        return Err(EvalError::logic(message));
    };
    Ok(Operation::Sample(count))
}

fn join(op: Op, args: &Args<'_>) -> Result<Operation, EvalError> {
    let right = match taken(args.values, 1)? {
        Arg::Func(closure) => Right::Anew(closure),
        Arg::Datum(Datum::Array(items)) => Right::Kept(items),
        Arg::Datum(other) => return Err(EvalError::not_a_sequence(&other)),
    };
    let predicate = match taken(args.values, 2)? {
        Arg::Func(closure) => closure,
        Arg::Datum(_) => args.func(2)?.clone(),
    };
    Ok(Operation::Join(Join { right, predicate, outer: op == Op::OuterJoin }))
}
