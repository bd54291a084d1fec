//! Selectors and predicates: how sequence terms compute a value of an item, or test it.

use std::borrow::Cow;
use std::sync::Arc;

use datum::{Array, Datum, Object, Text, pseudo};

use crate::args::Arg;
use crate::closure::Closure;
use crate::deep;
use crate::env::Env;
use crate::error::EvalError;
use crate::op::field::{field_of, object_of};
use crate::op::merge::has_members;
use crate::sorting;
use crate::term::Term;
use crate::walk::Walk;

/// A value of an item: one of its fields, or the result of a function.
#[derive(Clone, Debug)]
pub enum Selector {
    /// The field of this name. If it is not a string, that is an error once there is an item.
    Field(Datum),
    /// The result of a function.
    Func(Closure),
}

impl From<Arg> for Selector {
    fn from(arg: Arg) -> Self {
        match arg {
            Arg::Datum(field) => Selector::Field(field),
            Arg::Func(closure) => Selector::Func(closure),
        }
    }
}

impl Selector {
    /// Computes the value of `item`.
    pub fn value(&self, item: &Datum, env: &Env<'_>) -> Result<Datum, EvalError> {
        match self {
            Selector::Field(Datum::String(field)) => field_of_item(item, field),
            Selector::Field(other) => {
                // The item is checked before the name. Source: obj_or_seq.cc of RethinkDB 2.4.
                if !matches!(item, Datum::Object(_) | Datum::Array(_)) {
                    field_of(item, &Text::from_static(""), "get_field")?;
                }
                Err(EvalError::type_error("STRING", other))
            }
            Selector::Func(closure) => closure.call(std::slice::from_ref(item), env),
        }
    }

    /// Computes the value of `item`; `None` if it fails because something is missing.
    pub fn present(&self, item: &Datum, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        match self {
            Selector::Field(Datum::String(field)) => match item {
                Datum::Object(object) => Ok(object.get(field)),
                other => absent_if_missing(field_of_item(other, field)),
            },
            _ => absent_if_missing(self.value(item, env)),
        }
    }
}

impl Selector {
    /// Whether the selector can run inside a shard: its function uses only its arguments.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Selector::Field(_) => true,
            Selector::Func(closure) => closure.func.closed,
        }
    }
}

/// `get_field` of an item: for an array, the fields of those items that have it.
fn field_of_item(item: &Datum, field: &Text) -> Result<Datum, EvalError> {
    let Datum::Array(items) = item else { return field_of(item, field, "get_field") };
    let mut found = Vec::new();
    for item in items.iter().filter(|item| **item != Datum::Null) {
        found.extend(object_of(item, "get_field")?.get(field));
    }
    Ok(found.into())
}

fn absent_if_missing(result: Result<Datum, EvalError>) -> Result<Option<Datum>, EvalError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_non_existence() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A test of an item in `count`, `contains` and `offsets_of`.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// The item equals this value.
    Equals(Datum),
    /// The result of the function is truthy.
    Func(Closure),
    /// A `filter` would keep the item.
    Filter(Filter),
}

impl Predicate {
    /// The predicate for an argument of `contains`: missing fields are errors.
    #[must_use]
    pub fn strict(arg: Arg) -> Self {
        match arg {
            Arg::Datum(value) => Predicate::Equals(value),
            Arg::Func(closure) => Predicate::Func(closure),
        }
    }

    /// The predicate for an argument of `count` and `offsets_of`: an item that lacks a needed field does not count.
    #[must_use]
    pub fn lenient(arg: Arg) -> Self {
        match arg {
            Arg::Datum(value) => Predicate::Equals(value),
            func @ Arg::Func(_) => Predicate::Filter(Filter::new(func, OnMissing::Drop)),
        }
    }

    /// Whether the predicate holds for `item`.
    pub fn test(&self, item: &Datum, env: &Env<'_>) -> Result<bool, EvalError> {
        match self {
            Predicate::Equals(value) => Ok(item == value),
            Predicate::Func(closure) => closure.test(std::slice::from_ref(item), env),
            Predicate::Filter(filter) => filter.decides(item, env, |error| error),
        }
    }

    /// Whether the predicate can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.function().is_none_or(|closure| closure.func.closed)
    }

    /// The function that it calls for each item, if it calls one.
    #[must_use]
    pub fn function(&self) -> Option<&Closure> {
        match self {
            Predicate::Equals(_) => None,
            Predicate::Func(closure) => Some(closure),
            Predicate::Filter(filter) => filter.function(),
        }
    }
}

/// How `filter` treats an item that lacks a needed field.
#[derive(Clone, Debug, Default)]
pub enum OnMissing {
    #[default]
    Drop,
    Keep,
    /// Raises the error about the missing field.
    Raise,
    /// Raises the error of the option, which could not be evaluated.
    Fail(EvalError),
}

/// The test of a `filter`.
#[derive(Clone, Debug)]
pub struct Filter {
    pub test: FilterTest,
    /// What happens if a needed field is missing.
    pub on_missing: OnMissing,
}

/// A test of an item.
#[derive(Clone, Debug)]
pub enum FilterTest {
    /// An object whose members the item must have; any other value is true or false for all items.
    Value(Datum),
    /// A function whose result counts by its truthiness.
    Truth(Closure),
    /// A function written as an object: its result is a pattern for the item.
    Pattern(Closure),
    /// Sorted values that the item may not equal: the test of `difference`.
    NotIn(Arc<[Datum]>),
}

impl Filter {
    /// The filter for an argument of `filter`.
    #[must_use]
    pub fn new(arg: Arg, on_missing: OnMissing) -> Self {
        let test = match arg {
            Arg::Datum(value) => FilterTest::Value(value),
            Arg::Func(closure) if is_object(&closure.func.body) => FilterTest::Pattern(closure),
            Arg::Func(closure) => FilterTest::Truth(closure),
        };
        Filter { test, on_missing }
    }

    /// The filter for `difference`: drops items that equal one of `unwanted`.
    #[must_use]
    pub fn without(unwanted: &Array) -> Self {
        let sorted = sorting::sorted_by(unwanted.to_vec(), sorting::is_short, Ord::cmp);
        Filter { test: FilterTest::NotIn(sorted.into()), on_missing: OnMissing::Drop }
    }

    /// Whether to keep `item`, in a `filter`, whose test is argument 1.
    pub fn keeps(&self, item: &Datum, env: &Env<'_>) -> Result<bool, EvalError> {
        self.decides(item, env, |error| error.at(1))
    }

    /// Whether to keep `item`. `placed` adds the frames from the term to its test to an error.
    fn decides(
        &self,
        item: &Datum,
        env: &Env<'_>,
        placed: impl Fn(EvalError) -> EvalError,
    ) -> Result<bool, EvalError> {
        match self.holds(item, env) {
            Err(error) if error.is_non_existence() => match &self.on_missing {
                OnMissing::Drop => Ok(false),
                OnMissing::Keep => Ok(true),
                OnMissing::Raise => Err(placed(error)),
                OnMissing::Fail(other) => Err(other.clone()),
            },
            decided => decided.map_err(placed),
        }
    }

    /// Whether the filter can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.function().is_none_or(|closure| closure.func.closed)
    }

    /// The function that it calls for each item, if it calls one.
    #[must_use]
    pub fn function(&self) -> Option<&Closure> {
        match &self.test {
            FilterTest::Value(_) | FilterTest::NotIn(_) => None,
            FilterTest::Truth(closure) | FilterTest::Pattern(closure) => Some(closure),
        }
    }

    fn holds(&self, item: &Datum, env: &Env<'_>) -> Result<bool, EvalError> {
        match &self.test {
            FilterTest::Value(pattern) => matches(pattern, item, Walk::until(env.cancel)),
            FilterTest::Truth(closure) => closure.test(std::slice::from_ref(item), env),
            FilterTest::Pattern(closure) => {
                let pattern = closure.call(std::slice::from_ref(item), env)?;
                matches(&pattern, item, Walk::until(env.cancel))
            }
            FilterTest::NotIn(unwanted) => Ok(unwanted.binary_search(item).is_err()),
        }
    }
}

fn is_object(body: &Term) -> bool {
    match body {
        Term::Datum(value) => has_members(value),
        Term::Call(call) => call.op == crate::signature::Op::MakeObj,
        _ => false,
    }
}

/// The members of an object that `walk` reached; times and geometries have members, too.
fn members_of<'v>(value: &'v Datum, walk: Walk<'_>) -> Option<Cow<'v, Object>> {
    match value {
        Datum::Object(object) => Some(walk.read(object)),
        _ if has_members(value) => pseudo::to_object(value).map(Cow::Owned),
        _ => None,
    }
}

/// Whether `item` has every member of `pattern`: objects are compared recursively, other values and the contents of
/// literals by equality. A pattern that is not an object counts as true or false for all items. Source:
/// `filter_match` in func.cc of RethinkDB 2.4.
fn matches(pattern: &Datum, item: &Datum, walk: Walk<'_>) -> Result<bool, EvalError> {
    let Some(pattern) = members_of(pattern, walk) else { return Ok(pattern.is_truthy()) };
    if pseudo::is_literal(&pattern) {
        return Ok(pattern.get(pseudo::LITERAL_VALUE).is_some_and(|value| value == *item));
    }
    let members = members_of(item, walk);
    for (field, wanted) in pattern.iter() {
        // Checked late: an empty pattern matches everything.
        let Some(item) = &members else { return Err(EvalError::type_error("OBJECT", item)) };
        let found = item.get(&field).ok_or_else(|| EvalError::no_attribute_of_pattern(&field))?;
        let holds = match has_members(&wanted) && has_members(&found) {
            true => {
                let walk = walk.deeper()?;
                deep::level(|| matches(&wanted, &found, walk))?
            }
            false => wanted == found,
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}
