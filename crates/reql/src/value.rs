//! What a closed term can evaluate to.

use datum::Datum;

use crate::closure::Closure;
use crate::error::EvalError;
use crate::stream::Items;

/// The value of a term.
pub enum Value {
    /// A datum; arrays are always datums.
    Datum(Datum),
    /// A function.
    Func(Closure),
    /// A sequence whose items are made when they are asked for.
    Stream(Box<dyn Items>),
    /// One value for each key of a `group`.
    Grouped(Box<Grouped>),
}

/// What `group` makes of a sequence, and what the terms after it make of that.
#[derive(Clone, Debug)]
pub struct Grouped {
    /// Whether the groups are still sequences of items or already results.
    pub kind: GroupedKind,
    /// Keys and values, ascending by key. Each value of a grouped stream is an array.
    pub groups: Vec<(Datum, Datum)>,
}

/// How far grouped values have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupedKind {
    /// Sequences: transformations drop a group that becomes empty.
    Stream,
    /// Results.
    Data,
}

impl Value {
    /// The datum; anything else is a type error.
    pub fn into_datum(self) -> Result<Datum, EvalError> {
        match self {
            Value::Datum(datum) => Ok(datum),
            other => {
                let name = other.mismatch_name();
                Err(EvalError::value_type_error("DATUM", name, &format!("VALUE {name}")))
            }
        }
    }

    /// What `type_of` answers.
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
        }
    }

    /// The name in messages about a value of the wrong type.
    #[must_use]
    pub fn mismatch_name(&self) -> &'static str {
        match self {
            Value::Datum(_) => "DATUM",
            Value::Func(_) => "FUNCTION",
            Value::Stream(_) => "SEQUENCE",
            Value::Grouped(_) => "GROUPED_DATA",
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Datum(datum) => datum.fmt(f),
            Value::Grouped(grouped) => grouped.fmt(f),
            Value::Func(_) | Value::Stream(_) => f.write_str(self.mismatch_name()),
        }
    }
}

/// `Cannot convert <type> to SEQUENCE`
#[must_use]
pub fn not_a_sequence(found: &Datum) -> EvalError {
    EvalError::typed(found, format!("Cannot convert {} to SEQUENCE", found.kind().name()))
}

/// An infinite sequence where all items are needed.
#[must_use]
pub fn infinite() -> EvalError {
    EvalError::logic(
        "Cannot use an infinite stream with an aggregation function (`reduce`, `count`, etc.) or \
         coerce it to an array.",
    )
}
