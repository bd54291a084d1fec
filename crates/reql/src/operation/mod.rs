//! Operations: sequence terms whose arguments, except the sequence itself, are known.
//!
//! An operation is made once and applied to an array, to a stream, or to each of several groups. A pipeline can
//! also take it apart to run its steps closer to the rows.

mod build;

use datum::{Array, Datum, pseudo};

use crate::args::Arg;
use crate::env::Env;
use crate::error::EvalError;
use crate::group::GroupBy;
use crate::op::string::{code_points, slice_code_points};
use crate::order::{self, Order};
use crate::pipeline::Pipeline;
use crate::select::Predicate;
use crate::signature::Op;
use crate::stream::{self, ArrayItems, Emit, Fold, Items, Join, Joined, Offsets, Slice, Sliced, Stepped};
use crate::terminal::{Counted, Partial, Terminal};
use crate::transform::{self, Flow, Transform};
use crate::value::{Grouped, GroupedKind, Grouping, Value};

pub use build::{Extras, build, is_operation};
pub(crate) use build::{is_open, slice, wants_table};

/// A sequence term with all its arguments but the first.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A transformation of each item, which also applies to a single object for terms over objects.
    Step(Transform),
    /// An aggregate of all items.
    Terminal(Vec<Transform>, Terminal),
    Group(GroupBy),
    /// `order_by` in memory.
    OrderBy(Vec<Order>),
    /// `slice`, `skip`; also for strings and binaries.
    Slice(Slice),
    Limit(u32),
    Nth(i32),
    IsEmpty,
    /// `contains`: each value and each function must match a different item.
    Contains(Vec<Predicate>),
    OffsetsOf(Predicate),
    Sample(usize),
    Fold(Fold),
    /// `inner_join`, `outer_join`.
    Join(Join),
}

impl Operation {
    /// Evaluates the term for this first argument.
    pub fn apply(&self, source: Value, env: &Env<'_>) -> Result<Value, EvalError> {
        match source {
            Value::Datum(Datum::Array(items)) => self.on_array(&items, env),
            Value::Datum(single) => self.on_single(&single, env).map(Value::Datum),
            Value::Stream(items) => self.on_stream(items, env),
            Value::Grouped(grouped) => self.on_groups(*grouped, env),
            Value::Grouping(grouping) => self.on_grouping(*grouping, env),
            Value::Func(_) => Err(self.refused("FUNCTION", "VALUE FUNCTION")),
        }
    }

    /// The error for a first argument that is neither a datum nor a sequence but a value of this kind. Source:
    /// terms/arr.cc and terms/obj_or_seq.cc of RethinkDB 2.4.
    #[must_use]
    pub fn refused(&self, kind: &str, printed: &str) -> EvalError {
        let error = match self {
            Operation::Slice(_) => EvalError::logic("Cannot slice non-sequences."),
            Operation::Step(step) => match step.over_objects() {
                Some(term) => {
                    let why = format!("Cannot perform {term} on a non-object non-sequence `{printed}`.");
                    EvalError::logic(why)
                }
                None => EvalError::value_type_error("SEQUENCE", kind, printed),
            },
            _ => EvalError::value_type_error("SEQUENCE", kind, printed),
        };
        error.at(0)
    }

    /// Evaluates the term for an array; a resulting sequence is an array, too.
    pub fn on_array(&self, items: &Array, env: &Env<'_>) -> Result<Value, EvalError> {
        if !matches!(self, Operation::Slice(_) | Operation::Nth(_) | Operation::Group(_)) {
            env.check_batches()?;
        }
        let source = || ArrayItems::new(items.clone());
        let array = match self {
            Operation::Step(step) => transform::map_array(step, items, env)?,
            // The term after `group` reads the items one by one, so they need not form an array in between.
            Operation::Group(_) => return self.on_stream(Box::new(source()), env),
            Operation::OrderBy(orders) => order::sort(items, orders, env)?,
            Operation::Slice(slice) => slice.of_array(items),
            Operation::Limit(count) => Slice::limit(i64::from(*count)).of_array(items),
            Operation::Nth(position) => return nth_of_array(items, *position).map(Value::Datum),
            Operation::OffsetsOf(predicate) => {
                stream::collect(&mut Offsets::new(source(), predicate.clone()), env)?
            }
            Operation::Join(join) => stream::collect(&mut Joined::new(source(), join.clone()), env)?,
            Operation::Fold(fold) => match fold.clone().over(Box::new(source()), env)? {
                Emit::Value(value) => return Ok(Value::Datum(value)),
                Emit::Stream(mut emitted) => stream::collect(&mut emitted, env)?,
            },
            Operation::Terminal(..) | Operation::IsEmpty | Operation::Contains(_) | Operation::Sample(_) => {
                return self.end(&mut source(), env).map(Value::Datum);
            }
        };
        Ok(Value::Datum(Datum::Array(array)))
    }

    /// Evaluates the term for a stream. A resulting sequence is a stream, except if all items were needed to make
    /// it.
    pub fn on_stream(&self, mut items: Box<dyn Items>, env: &Env<'_>) -> Result<Value, EvalError> {
        if self.reads_eagerly() {
            env.check_batches()?;
        }
        let stream: Box<dyn Items> = match self {
            Operation::Step(step) => Box::new(Stepped::new(items, step.clone())),
            Operation::Slice(slice) => Box::new(Sliced::new(items, *slice)?),
            Operation::Limit(count) => Box::new(Sliced::new(items, Slice::limit(i64::from(*count)))?),
            Operation::OffsetsOf(predicate) => Box::new(Offsets::new(items, predicate.clone())),
            Operation::Join(join) => Box::new(Joined::new(items, join.clone())),
            Operation::Fold(fold) => match fold.clone().over(items, env)? {
                Emit::Value(value) => return Ok(Value::Datum(value)),
                Emit::Stream(emitted) => Box::new(emitted),
            },
            Operation::OrderBy(orders) => {
                let items = stream::collect(&mut *items, env)?;
                let sorted = order::sort(&items, orders, env)?;
                return Ok(Value::Datum(Datum::Array(sorted)));
            }
            Operation::Group(by) => {
                let grouping = Grouping { items, by: by.clone(), steps: Vec::new() };
                return Ok(Value::Grouping(Box::new(grouping)));
            }
            Operation::Nth(position) => {
                return stream::nth(&mut *items, *position, env).map(Value::Datum);
            }
            Operation::Terminal(..) | Operation::IsEmpty | Operation::Contains(_) | Operation::Sample(_) => {
                return self.end(&mut *items, env).map(Value::Datum);
            }
        };
        Ok(Value::Stream(stream))
    }

    /// Evaluates the term for a value that is not a sequence, which is an error for most terms.
    fn on_single(&self, single: &Datum, env: &Env<'_>) -> Result<Datum, EvalError> {
        match (self, single) {
            (Operation::Step(step), _) => step.check_single(single).and_then(|()| step.item(single, env)),
            (Operation::Terminal(steps, Terminal::Count), _) if steps.is_empty() => {
                let count = match single {
                    Datum::String(text) => code_points(text),
                    Datum::Binary(bytes) => bytes.len(),
                    Datum::Object(object) => object.len(),
                    Datum::Time(_) | Datum::Geometry(_) => {
                        pseudo::to_object(single).unwrap_or_default().len()
                    }
                    _ => return Err(EvalError::not_a_sequence(single)),
                };
                Ok(Datum::Number(count as f64))
            }
            (Operation::Slice(slice), Datum::String(text)) => {
                let (from, to) = slice.within(code_points(text));
                Ok(Datum::String(slice_code_points(text, from, to)))
            }
            (Operation::Slice(slice), Datum::Binary(bytes)) => {
                let (from, to) = slice.within(bytes.len());
                Ok(Datum::Binary(bytes.slice(from..to)))
            }
            // Also for null: here it is a mistake in the query. Source: terms/arr.cc of RethinkDB 2.4.
            (Operation::Slice(_), _) => {
                let found = single.kind().name();
                let message = format!("Expected ARRAY, BINARY, or STRING, but found {found}.");
                Err(EvalError::logic(message).at(0))
            }
            _ => Err(EvalError::not_a_sequence(single)),
        }
    }

    /// Evaluates a term that consumes a sequence.
    fn end(&self, items: &mut dyn Items, env: &Env<'_>) -> Result<Datum, EvalError> {
        match self {
            Operation::Terminal(steps, terminal) => {
                let (partial, _) = accumulate(steps, terminal, items, env)?;
                terminal.finish(partial)
            }
            Operation::IsEmpty => Ok(Datum::Bool(items.next(env)?.is_none())),
            Operation::Contains(predicates) => contains(predicates, items, env).map(Datum::Bool),
            Operation::Sample(count) => sample(*count, items, env).map(Datum::from),
            _ => Err(EvalError::internal("not the end of a sequence")),
        }
    }

    /// Evaluates the term for each group.
    fn on_groups(&self, grouped: Grouped, env: &Env<'_>) -> Result<Value, EvalError> {
        if grouped.kind == GroupedKind::Stream {
            self.check_groups()?;
        }
        // A join is a step of the stream in RethinkDB, too.
        let is_step = matches!(self, Operation::Step(_) | Operation::Join(_));
        let keeps_stream = grouped.kind == GroupedKind::Stream && is_step;
        let mut groups = Vec::with_capacity(grouped.groups.len());
        for (key, value) in grouped.groups {
            let value = match (self, &value) {
                (Operation::Terminal(steps, terminal), Datum::Array(items))
                    if grouped.kind == GroupedKind::Stream =>
                {
                    let mut items = ArrayItems::new(items.clone());
                    match accumulate(steps, terminal, &mut items, env)? {
                        (_, Counted::No) => continue,
                        (partial, Counted::Yes) => terminal.finish(partial)?,
                    }
                }
                _ => self.apply(Value::Datum(value), env)?.into_datum()?,
            };
            let emptied = matches!(&value, Datum::Array(items) if items.is_empty());
            if !(keeps_stream && emptied) {
                groups.push((key, value));
            }
        }
        let kind = if keeps_stream { GroupedKind::Stream } else { GroupedKind::Data };
        Ok(Value::Grouped(Box::new(Grouped { kind, groups })))
    }

    /// Evaluates the term for the groups of a stream. The groups are collected only if that is necessary.
    fn on_grouping(&self, mut grouping: Grouping, env: &Env<'_>) -> Result<Value, EvalError> {
        self.check_groups()?;
        match self {
            Operation::Step(step) => {
                grouping.steps.push(step.clone());
                Ok(Value::Grouping(Box::new(grouping)))
            }
            Operation::Terminal(steps, terminal) => {
                env.check_batches()?;
                run_groups(grouping, steps.clone(), terminal.clone(), env)
            }
            _ => {
                let collected = run_groups(grouping, Vec::new(), Terminal::Collect, env)?;
                self.apply(collected, env)
            }
        }
    }

    /// Fails for terms that need the items of each group of a stream. Source: the terms in terms/seq.cc of
    /// RethinkDB 2.4 that are `grouped_seq_op_term_t` and ask for the items.
    fn check_groups(&self) -> Result<(), EvalError> {
        match self {
            Operation::Group(_) => Err(EvalError::logic(
                "Cannot call `group` on the output of `group` (did you mean to `ungroup`?).",
            )),
            Operation::Fold(fold) => fold.check_arity().and(Err(EvalError::grouped_stream().at(0))),
            _ => Ok(()),
        }
    }

    /// Whether the term reads its stream at once, instead of when its own items are read.
    fn reads_eagerly(&self) -> bool {
        match self {
            Operation::Step(_)
            | Operation::Slice(_)
            | Operation::Limit(_)
            | Operation::OffsetsOf(_)
            | Operation::Join(_)
            | Operation::Group(_)
            | Operation::Terminal(_, Terminal::Collect) => false,
            Operation::Fold(fold) => fold.emit.is_none(),
            Operation::Terminal(..)
            | Operation::OrderBy(_)
            | Operation::Nth(_)
            | Operation::IsEmpty
            | Operation::Contains(_)
            | Operation::Sample(_) => true,
        }
    }

    /// Whether all its functions can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Operation::Step(step) => step.is_closed(),
            Operation::Terminal(steps, terminal) => {
                steps.iter().all(Transform::is_closed) && terminal.is_closed()
            }
            Operation::Group(by) => by.is_closed(),
            Operation::OrderBy(orders) => orders.iter().all(|order| order.selector.is_closed()),
            Operation::Contains(predicates) => predicates.iter().all(Predicate::is_closed),
            Operation::OffsetsOf(predicate) => predicate.is_closed(),
            Operation::Fold(fold) => fold.is_closed(),
            Operation::Join(join) => join.is_closed(),
            Operation::Slice(_)
            | Operation::Limit(_)
            | Operation::Nth(_)
            | Operation::IsEmpty
            | Operation::Sample(_) => true,
        }
    }
}

/// Fails if `op` checks its first argument before the others and `single`, which is not a sequence, is not
/// accepted. Source: the order of arguments in terms/seq.cc, terms/rewrites.cc and terms/obj_or_seq.cc of RethinkDB
/// 2.4.
pub fn check_source(op: Op, single: &Datum) -> Result<(), EvalError> {
    match single {
        Datum::Array(_) => Ok(()),
        single if checks_source_first(op) || op == Op::Nth => Err(EvalError::not_a_sequence(single)),
        single => transform::check_object(op, single).map_err(|error| error.at(0)),
    }
}

/// Whether a term checks its sequence before its other arguments.
#[must_use]
pub fn checks_source_first(op: Op) -> bool {
    matches!(
        op,
        Op::Map
            | Op::ConcatMap
            | Op::Reduce
            | Op::Fold
            | Op::Contains
            | Op::Difference
            | Op::InnerJoin
            | Op::OuterJoin
            | Op::Limit
    )
}

/// Whether a term accepts only sequences as its first argument.
#[must_use]
pub fn is_of_sequences(op: Op) -> bool {
    checks_source_first(op)
        || matches!(
            op,
            Op::Filter
                | Op::OrderBy
                | Op::Group
                | Op::Distinct
                | Op::Sample
                | Op::OffsetsOf
                | Op::IsEmpty
                | Op::Zip
                | Op::Sum
                | Op::Avg
                | Op::Min
                | Op::Max
        )
}

/// Runs all items through `steps` into `terminal`. Also returns whether any of them counted.
fn accumulate(
    steps: &[Transform],
    terminal: &Terminal,
    items: &mut dyn Items,
    env: &Env<'_>,
) -> Result<(Partial, Counted), EvalError> {
    if let Some(endless) = items.endless() {
        return Err(endless.error());
    }
    let (mut partial, mut taken) = (terminal.start(), Counted::No);
    while let Some(item) = items.next(env)? {
        env.check_cancel()?;
        transform::run(steps, item, env, &mut |item| {
            if terminal.add(&mut partial, item, env)? == Counted::Yes {
                taken = Counted::Yes;
            }
            Ok(Flow::Continue)
        })?;
    }
    Ok((partial, taken))
}

/// Collects the groups of a stream that is not grouped yet; any other value is unchanged.
pub fn collect_groups(value: Value, env: &Env<'_>) -> Result<Value, EvalError> {
    match value {
        Value::Grouping(grouping) => run_groups(*grouping, Vec::new(), Terminal::Collect, env),
        other => Ok(other),
    }
}

/// Adds every item to its groups, through `steps`, into `terminal`.
fn run_groups(
    mut grouping: Grouping,
    mut steps: Vec<Transform>,
    terminal: Terminal,
    env: &Env<'_>,
) -> Result<Value, EvalError> {
    if let Some(endless) = grouping.items.endless() {
        return Err(endless.error());
    }
    grouping.steps.append(&mut steps);
    let pipeline =
        Pipeline { steps: Vec::new(), group: Some(grouping.by), grouped_steps: grouping.steps, terminal };
    let mut tally = pipeline.start();
    while let Some(item) = grouping.items.next(env)? {
        env.check_cancel()?;
        pipeline.push(&mut tally, item, env)?;
    }
    pipeline.finish(tally)
}

fn nth_of_array(items: &Array, position: i32) -> Result<Datum, EvalError> {
    let position = i64::from(position);
    let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let from_start = if position < 0 { position + len } else { position };
    let found = usize::try_from(from_start).ok().and_then(|at| items.get(at));
    found.cloned().ok_or_else(|| EvalError::out_of_bounds(position))
}

/// Whether each value and each function matches a different item; one item may match a value and also a function.
/// False for an empty sequence, even without arguments. Source: `contains_term_t` in terms/arr.cc of RethinkDB 2.4.
fn contains(predicates: &[Predicate], items: &mut dyn Items, env: &Env<'_>) -> Result<bool, EvalError> {
    let is_value = |(_, predicate): &(usize, &Predicate)| matches!(predicate, Predicate::Equals(_));
    let (mut values, mut functions): (Vec<_>, Vec<_>) = predicates.iter().enumerate().partition(is_value);
    while let Some(item) = items.next(env)? {
        env.check_cancel()?;
        for wanted in [&mut values, &mut functions] {
            leave_out_first(wanted, &item, env)?;
        }
        if values.is_empty() && functions.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the first predicate that holds for an item. Each comes with the position of its argument.
fn leave_out_first(
    wanted: &mut Vec<(usize, &Predicate)>,
    item: &Datum,
    env: &Env<'_>,
) -> Result<(), EvalError> {
    for position in 0..wanted.len() {
        let (argument, predicate) = wanted[position];
        if predicate.test(item, env).map_err(|error| error.at(argument + 1))? {
            wanted.swap_remove(position);
            break;
        }
    }
    Ok(())
}

/// `count` items, each with equal probability (reservoir sampling), in any order.
fn sample(count: usize, items: &mut dyn Items, env: &Env<'_>) -> Result<Vec<Datum>, EvalError> {
    if let Some(endless) = items.endless() {
        return Err(endless.error());
    }
    // The limit applies to the requested count, even if there are fewer items. Source: terms/random.cc of
    // RethinkDB.
    env.check_array(count)?;
    let mut chosen = Vec::new();
    let mut seen: u64 = 0;
    while let Some(item) = items.next(env)? {
        env.check_cancel()?;
        seen += 1;
        if chosen.len() < count {
            chosen.push(item);
        } else if let Some(place) =
            usize::try_from(env.random.next_u64() % seen).ok().and_then(|place| chosen.get_mut(place))
        {
            *place = item;
        }
    }
    for end in (2..=chosen.len()).rev() {
        let place = env.random.next_u64() % end as u64;
        chosen.swap(end - 1, usize::try_from(place).unwrap_or(0));
    }
    Ok(chosen)
}

/// The argument at a position.
fn taken(values: &[Arg], position: usize) -> Result<Arg, EvalError> {
    let missing = || EvalError::internal(format!("argument {position} is missing"));
    values.get(position).cloned().ok_or_else(missing)
}
