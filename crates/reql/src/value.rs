//! The values of closed terms.

use datum::Datum;

use crate::closure::Closure;
use crate::error::EvalError;
use crate::group::GroupBy;
use crate::stream::Items;
use crate::transform::Transform;

/// The value of a term.
pub enum Value {
    /// A datum; arrays are always datums.
    Datum(Datum),
    /// A function.
    Func(Closure),
    /// A sequence whose items are produced on demand.
    Stream(Box<dyn Items>),
    /// One value for each key of a `group`.
    Grouped(Box<Grouped>),
    /// A stream that is to be grouped. Collecting the groups may turn out to be unnecessary.
    Grouping(Box<Grouping>),
}

/// A stream that is to be grouped.
pub struct Grouping {
    pub items: Box<dyn Items>,
    /// How they are grouped.
    pub by: GroupBy,
    /// Steps for the items of each group.
    pub steps: Vec<Transform>,
}

/// The result of `group`, and of the terms after it.
#[derive(Clone, Debug)]
pub struct Grouped {
    /// Whether the groups are still sequences of items, or results.
    pub kind: GroupedKind,
    /// Keys and values, ascending by key. Each value of a grouped stream is an array.
    pub groups: Vec<(Datum, Datum)>,
}

/// The kind of grouped values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupedKind {
    /// Sequences: a transformation drops a group that becomes empty.
    Stream,
    /// Results.
    Data,
}

impl Value {
    /// The datum; anything else is a type error.
    pub fn into_datum(self) -> Result<Datum, EvalError> {
        match self {
            Value::Datum(datum) => Ok(datum),
            other => Err(other.mismatch("DATUM")),
        }
    }

    /// Why this is not a sequence. Groups are not one, even if each of them is.
    #[must_use]
    pub fn no_sequence(&self) -> EvalError {
        match self {
            Value::Datum(datum) => EvalError::not_a_sequence(datum),
            Value::Grouping(_) => EvalError::grouped_stream(),
            Value::Grouped(grouped) if grouped.kind == GroupedKind::Stream => EvalError::grouped_stream(),
            other => other.mismatch("SEQUENCE"),
        }
    }

    /// `Expected type <expected> but found <this>:` and the value; NON_EXISTENCE if that is null.
    #[must_use]
    pub fn mismatch(&self, expected: &str) -> EvalError {
        let name = self.mismatch_name();
        match self {
            Value::Datum(datum) => EvalError::typed(
                datum,
                format!("Expected type {expected} but found {name}:\n{}", datum.pretty()),
            ),
            _ => EvalError::value_type_error(expected, name, &format!("VALUE {name}")),
        }
    }

    /// The result of `type_of`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Datum(datum) => datum.kind().name(),
            Value::Func(_) => "FUNCTION",
            Value::Stream(_) => "STREAM",
            Value::Grouped(grouped) => match grouped.kind {
                GroupedKind::Stream => "GROUPED_STREAM",
                GroupedKind::Data => "GROUPED_DATA",
            },
            Value::Grouping(_) => "GROUPED_STREAM",
        }
    }

    /// The name of the type in messages about a wrong type.
    #[must_use]
    pub fn mismatch_name(&self) -> &'static str {
        match self {
            Value::Datum(_) => "DATUM",
            Value::Func(_) => "FUNCTION",
            Value::Stream(_) | Value::Grouping(_) => "SEQUENCE",
            Value::Grouped(grouped) => match grouped.kind {
                GroupedKind::Stream => "SEQUENCE",
                GroupedKind::Data => "GROUPED_DATA",
            },
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Datum(datum) => datum.fmt(f),
            Value::Grouped(grouped) => grouped.fmt(f),
            Value::Func(_) | Value::Stream(_) | Value::Grouping(_) => f.write_str(self.mismatch_name()),
        }
    }
}
