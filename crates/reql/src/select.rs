//! How sequence terms look into an item: a value of it, or a yes or no about it.

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

/// A value of an item: one of its fields, or what a function makes of it.
#[derive(Clone, Debug)]
pub enum Selector {
    /// The field of this name. Anything but a string is an error once there is an item.
    Field(Datum),
    /// What a function answers.
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
    /// The value of `item`.
    pub fn value(&self, item: &Datum, env: &Env<'_>) -> Result<Datum, EvalError> {
        match self {
            Selector::Field(Datum::String(field)) => field_of_item(item, field),
            Selector::Field(other) => {
                // The item is looked at before the name. Source: obj_or_seq.cc of RethinkDB 2.4.
                if !matches!(item, Datum::Object(_) | Datum::Array(_)) {
                    field_of(item, &Text::from_static(""), "get_field")?;
                }
                Err(EvalError::type_error("STRING", other))
            }
            Selector::Func(closure) => closure.call(std::slice::from_ref(item), env),
        }
    }

    /// The value of `item`, or nothing when something of it is missing.
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
    /// Whether its function can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Selector::Field(_) => true,
            Selector::Func(closure) => closure.func.closed,
        }
    }
}

/// What `get_field` makes of an item: of an array, the fields of those of its items that have it.
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

/// A yes or no about an item of `count`, `contains` and `offsets_of`.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// The item equals this.
    Equals(Datum),
    /// The function answers something true.
    Func(Closure),
    /// The item would stay in a `filter`.
    Filter(Filter),
}

impl Predicate {
    /// What `contains` means by an argument: errors about missing things are errors.
    #[must_use]
    pub fn strict(arg: Arg) -> Self {
        match arg {
            Arg::Datum(value) => Predicate::Equals(value),
            Arg::Func(closure) => Predicate::Func(closure),
        }
    }

    /// What `count` and `offsets_of` mean by an argument: an item about which something needed is
    /// missing does not count.
    #[must_use]
    pub fn lenient(arg: Arg) -> Self {
        match arg {
            Arg::Datum(value) => Predicate::Equals(value),
            func @ Arg::Func(_) => Predicate::Filter(Filter::new(func, OnMissing::Drop)),
        }
    }

    /// Whether it holds for `item`.
    pub fn test(&self, item: &Datum, env: &Env<'_>) -> Result<bool, EvalError> {
        match self {
            Predicate::Equals(value) => Ok(item == value),
            Predicate::Func(closure) => closure.test(std::slice::from_ref(item), env),
            Predicate::Filter(filter) => filter.decides(item, env, |error| error),
        }
    }

    /// Whether its function can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Predicate::Equals(_) => true,
            Predicate::Func(closure) => closure.func.closed,
            Predicate::Filter(filter) => filter.is_closed(),
        }
    }
}

/// What `filter` does with an item about which something needed is missing.
#[derive(Clone, Debug, Default)]
pub enum OnMissing {
    /// Leaves it out.
    #[default]
    Drop,
    /// Keeps it.
    Keep,
    /// Raises the error about the missing thing.
    Raise,
    /// The option itself could not be evaluated: raises this instead.
    Fail(EvalError),
}

/// What `filter` asks of an item.
#[derive(Clone, Debug)]
pub struct Filter {
    /// What the item is held against.
    pub test: FilterTest,
    /// What is done when something needed is missing.
    pub on_missing: OnMissing,
}

/// What an item is held against.
#[derive(Clone, Debug)]
pub enum FilterTest {
    /// An object every member of which the item must have; anything else is true or false for all.
    Value(Datum),
    /// A function whose answer counts by its truth.
    Truth(Closure),
    /// A function that was written as an object: its answer is held against the item.
    Pattern(Closure),
    /// Values, ascending, none of which the item may equal: what `difference` asks.
    NotIn(Arc<[Datum]>),
}

impl Filter {
    /// The filter that an argument of `filter` means.
    #[must_use]
    pub fn new(arg: Arg, on_missing: OnMissing) -> Self {
        let test = match arg {
            Arg::Datum(value) => FilterTest::Value(value),
            Arg::Func(closure) if is_object(&closure.func.body) => FilterTest::Pattern(closure),
            Arg::Func(closure) => FilterTest::Truth(closure),
        };
        Filter { test, on_missing }
    }

    /// The filter that `difference` is: what equals one of `unwanted` goes.
    #[must_use]
    pub fn without(unwanted: &Array) -> Self {
        let sorted = sorting::sorted_by(unwanted.to_vec(), sorting::is_short, Ord::cmp);
        Filter { test: FilterTest::NotIn(sorted.into()), on_missing: OnMissing::Drop }
    }

    /// Whether `item` stays, as the argument of a `filter` says, which is its second one.
    pub fn keeps(&self, item: &Datum, env: &Env<'_>) -> Result<bool, EvalError> {
        self.decides(item, env, |error| error.at(1))
    }

    /// Whether `item` stays; `placed` leads from the term to what it is held against.
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

    /// Whether its function can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match &self.test {
            FilterTest::Value(_) | FilterTest::NotIn(_) => true,
            FilterTest::Truth(closure) | FilterTest::Pattern(closure) => closure.func.closed,
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

/// The members of an object that `walk` came to; times and shapes have some, too.
fn members_of<'v>(value: &'v Datum, walk: Walk<'_>) -> Option<Cow<'v, Object>> {
    match value {
        Datum::Object(object) => Some(walk.read(object)),
        _ if has_members(value) => pseudo::to_object(value).map(Cow::Owned),
        _ => None,
    }
}

/// Whether `item` has every member of `pattern`: what has members recursively, anything else by equality, and what a
/// literal stands for by equality too. A pattern without members is a yes or no for all.
/// Source: `filter_match` in func.cc of RethinkDB 2.4.
fn matches(pattern: &Datum, item: &Datum, walk: Walk<'_>) -> Result<bool, EvalError> {
    let Some(pattern) = members_of(pattern, walk) else { return Ok(pattern.is_truthy()) };
    if pseudo::is_literal(&pattern) {
        return Ok(pattern.get(pseudo::LITERAL_VALUE).is_some_and(|value| value == *item));
    }
    let members = members_of(item, walk);
    for (field, wanted) in pattern.iter() {
        // Asked only now: an empty pattern fits everything.
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
