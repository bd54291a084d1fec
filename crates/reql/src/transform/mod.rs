//! Steps that turn one item of a sequence into none, one or several.
//!
//! The same steps serve arrays in memory, rows inside a shard and streams at the top of a query.

mod over_objects;

use datum::{Array, Datum, Text};

use crate::args::{Arg, Args};
use crate::closure::{CallResult, Closure};
use crate::env::Env;
use crate::error::EvalError;
use crate::items::Items;
use crate::op::field::{field_of, object_of};
use crate::op::geo::ShapeTest;
use crate::op::merge::{merge_datums, merge_item};
use crate::op::pathspec::PathSpec;
use crate::op::project::{item_has_fields, pluck_item, without_item};
use crate::select::{Filter, Predicate};

pub(crate) use over_objects::step_of;
pub use over_objects::{PerItem, check_object, is_over_objects};

/// One step.
#[derive(Clone, Debug)]
pub enum Transform {
    /// `map` over one sequence.
    Map(Closure),
    /// `concat_map`: emits the items of the sequence that the function returns.
    ConcatMap(Closure),
    Filter(Filter),
    /// The items for which a predicate holds, for `count` with an argument.
    Matching(Predicate),
    /// `get_field` and `bracket` with a name: the field of those items that have it.
    Field {
        name: Text,
        /// The name of the term, for messages.
        term: &'static str,
    },
    Pluck(PathSpec),
    Without(PathSpec),
    /// `has_fields`: the items that have the fields.
    HasFields(PathSpec),
    /// `with_fields`: the items that have the fields, reduced to these.
    WithFields(PathSpec),
    /// `intersects` and `includes`: the shapes for which the relation holds.
    Shape(ShapeTest),
    /// `merge`; the first argument is a placeholder for the item.
    Merge(Vec<Arg>),
    /// A term over objects whose arguments are evaluated for each item.
    PerItem(PerItem),
    /// `zip`: merges the right side of a join into the left.
    Zip,
}

/// The items that a step emits for one item.
pub enum Emitted {
    /// Nothing.
    None,
    /// One item.
    One(Datum),
    /// Several.
    Many(Array),
    Stream(ItemStream),
}

/// The stream that the function of `concat_map` returned for one item, of any length. Its items are produced on
/// demand.
pub struct ItemStream(Box<dyn Items>);

impl ItemStream {
    /// The next item; `None` after the last.
    pub fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        self.0.next(env).map_err(|error| error.at(1))
    }
}

/// Whether a sequence must be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Read on.
    Continue,
    /// Stop: later items cannot change the result.
    Stop,
}

/// Terms that keep some of the items drop those in which something is missing, among them nulls. Source: the
/// filters that terms/obj_or_seq.cc of RethinkDB 2.4 makes of them.
fn unless_missing(emitted: Result<Emitted, EvalError>) -> Result<Emitted, EvalError> {
    match emitted {
        Err(error) if error.is_non_existence() => Ok(Emitted::None),
        emitted => emitted,
    }
}

impl Transform {
    /// Processes one item.
    pub fn step(&self, item: Datum, env: &Env<'_>) -> Result<Emitted, EvalError> {
        let keep = |keep: bool, item: Datum| if keep { Emitted::One(item) } else { Emitted::None };
        match self {
            Transform::Map(closure) => one(closure.call(&[item], env)).map_err(|error| error.at(1)),
            Transform::ConcatMap(closure) => {
                match closure.call_for_items(&[item], env).map_err(|error| error.at(1))? {
                    CallResult::Datum(Datum::Array(items)) => Ok(Emitted::Many(items)),
                    CallResult::Datum(other) => Err(closure.at_result(EvalError::not_a_sequence(&other), 1)),
                    CallResult::Items(items) => Ok(Emitted::Stream(ItemStream(items))),
                }
            }
            Transform::Filter(filter) => {
                let keeps = filter.keeps(&item, env)?;
                Ok(keep(keeps, item))
            }
            Transform::Matching(predicate) => {
                let matches = predicate.test(&item, env).map_err(|error| error.at(1))?;
                Ok(keep(matches, item))
            }
            Transform::Field { name, term } => match &item {
                Datum::Object(object) => Ok(object.get(name).map_or(Emitted::None, Emitted::One)),
                other => unless_missing(field_of(other, name, term).map(Emitted::One)),
            },
            Transform::HasFields(spec) => {
                unless_missing(item_has_fields(&item, spec, env.cancel).map(|has_them| keep(has_them, item)))
            }
            Transform::Shape(test) => {
                unless_missing(test.holds(&item, env.cancel).map(|holds| keep(holds, item)))
            }
            Transform::WithFields(spec) => {
                unless_missing(item_has_fields(&item, spec, env.cancel).map(|has_them| keep(has_them, item)))
                    .and_then(|kept| match kept {
                        Emitted::One(item) => one(pluck_item(&item, spec, env.cancel)),
                        other => Ok(other),
                    })
            }
            Transform::Pluck(_) | Transform::Without(_) | Transform::Merge(_) => one(self.item(&item, env)),
            Transform::PerItem(term) => match term.for_item(&item, env) {
                Ok(step) => step.step(item, env),
                Err(error) if term.leaves_out() => unless_missing(Err(error)),
                Err(error) => Err(error),
            },
            Transform::Zip => one(zip(&item, env)),
        }
    }

    /// The result for a single value that is not a sequence: defined for terms over objects, an error for all
    /// others.
    pub fn item(&self, item: &Datum, env: &Env<'_>) -> Result<Datum, EvalError> {
        match self {
            Transform::Field { name, term } => field_of(item, name, term),
            Transform::Pluck(spec) => pluck_item(item, spec, env.cancel),
            Transform::Without(spec) => without_item(item, spec, env.cancel),
            Transform::HasFields(spec) => item_has_fields(item, spec, env.cancel).map(Datum::Bool),
            Transform::Shape(test) => test.holds(item, env.cancel).map(Datum::Bool),
            Transform::WithFields(spec) => {
                let has_them = item_has_fields(item, spec, env.cancel)?;
                pluck_item(&Datum::Bool(has_them), spec, env.cancel)
            }
            Transform::Merge(values) => merge_item(item, &Args::new(values, &[], env)),
            Transform::PerItem(term) => term.for_item(item, env)?.item(item, env),
            Transform::Map(_)
            | Transform::ConcatMap(_)
            | Transform::Filter(_)
            | Transform::Matching(_)
            | Transform::Zip => Err(EvalError::not_a_sequence(item)),
        }
    }

    /// Fails for a single value that a term over objects does not accept; the error names its first argument. For
    /// an item of a sequence, the error belongs to the term itself. Source: terms/obj_or_seq.cc of RethinkDB.
    pub fn check_single(&self, single: &Datum) -> Result<(), EvalError> {
        let checked = match self {
            Transform::Field { term, .. } => object_of(single, term).map(drop),
            Transform::HasFields(_) | Transform::WithFields(_) => object_of(single, "has_fields").map(drop),
            Transform::Pluck(_) | Transform::Without(_) | Transform::Merge(_) => {
                object_of(single, self.name()).map(drop)
            }
            Transform::Shape(test) => test.check(single),
            Transform::PerItem(term) => check_object(term.op, single),
            _ => Ok(()),
        };
        checked.map_err(|error| error.at(0))
    }

    /// The name of the step in messages, if it is a term over objects.
    pub(crate) fn over_objects(&self) -> Option<&'static str> {
        match self {
            Transform::Field { term, .. } => Some(term),
            Transform::HasFields(_) | Transform::WithFields(_) => Some("has_fields"),
            Transform::Pluck(_) | Transform::Without(_) | Transform::Merge(_) => Some(self.name()),
            Transform::Shape(test) => Some(test.relation().term()),
            Transform::PerItem(term) => over_objects::name_of(term.op),
            _ => None,
        }
    }

    /// The name of the term, for people.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Transform::Map(_) => "map",
            Transform::ConcatMap(_) => "concat_map",
            Transform::Filter(_) => "filter",
            Transform::Matching(_) => "filter (of count)",
            Transform::Field { term, .. } => term,
            Transform::Pluck(_) => "pluck",
            Transform::Without(_) => "without",
            Transform::HasFields(_) => "has_fields",
            Transform::WithFields(_) => "with_fields",
            Transform::Shape(_) => "intersects or includes",
            Transform::Merge(_) => "merge",
            Transform::PerItem(_) => "a term over objects, its arguments for each item",
            Transform::Zip => "zip",
        }
    }

    /// Whether all its functions can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.functions().iter().all(|closure| closure.func.closed)
    }

    /// Whether its time depends on the size of the item only: it calls no function, and compares no shapes.
    #[must_use]
    pub fn is_brief(&self) -> bool {
        self.functions().is_empty() && !matches!(self, Transform::Shape(_))
    }

    /// The functions that it calls for each item.
    #[must_use]
    pub fn functions(&self) -> Vec<&Closure> {
        match self {
            Transform::Map(closure) | Transform::ConcatMap(closure) => vec![closure],
            Transform::Filter(filter) => filter.function().into_iter().collect(),
            Transform::Matching(predicate) => predicate.function().into_iter().collect(),
            Transform::Merge(layers) => {
                let functions = layers.iter().filter_map(|arg| match arg {
                    Arg::Func(closure) => Some(closure),
                    Arg::Datum(_) => None,
                });
                functions.collect()
            }
            Transform::PerItem(term) => term.args.iter().collect(),
            _ => Vec::new(),
        }
    }
}

fn one(result: Result<Datum, EvalError>) -> Result<Emitted, EvalError> {
    result.map(Emitted::One)
}

fn zip(item: &Datum, env: &Env<'_>) -> Result<Datum, EvalError> {
    let not_joined = || EvalError::logic("ZIP can only be called on the result of a join.");
    let joined = object_of(item, "zip").map_err(|_| not_joined())?;
    let left = joined.get("left").ok_or_else(not_joined)?;
    match joined.get("right") {
        Some(right) => merge_datums(&left, &right, env.cancel),
        None => Ok(left),
    }
}

/// Runs `item` through all `steps` and passes the results to `sink`.
pub fn run<S>(steps: &[Transform], mut item: Datum, env: &Env<'_>, sink: &mut S) -> Result<Flow, EvalError>
where
    S: FnMut(Datum) -> Result<Flow, EvalError>,
{
    for (i, step) in steps.iter().enumerate() {
        item = match step.step(item, env)? {
            Emitted::One(next) => next,
            Emitted::None => return Ok(Flow::Continue),
            Emitted::Many(items) => {
                for item in items.iter() {
                    env.check_cancel()?;
                    if run(&steps[i + 1..], item.clone(), env, sink)? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
                return Ok(Flow::Continue);
            }
            Emitted::Stream(mut part) => {
                while let Some(item) = part.next(env)? {
                    env.check_cancel()?;
                    if run(&steps[i + 1..], item, env, sink)? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
                return Ok(Flow::Continue);
            }
        };
    }
    sink(item)
}

/// The array of all items that `step` emits for the items of an array.
pub fn map_array(step: &Transform, items: &Array, env: &Env<'_>) -> Result<Array, EvalError> {
    let mut out = Vec::with_capacity(items.len());
    for item in items.iter() {
        env.check_cancel()?;
        match step.step(item.clone(), env)? {
            Emitted::None => {}
            Emitted::One(item) => out.push(item),
            Emitted::Many(items) => out.extend(items.iter().cloned()),
            Emitted::Stream(mut part) => {
                while let Some(item) = part.next(env)? {
                    env.check_cancel()?;
                    out.push(item);
                    env.check_array(out.len())?;
                }
            }
        }
        env.check_array(out.len())?;
    }
    Ok(Array::from(out))
}
