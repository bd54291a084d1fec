//! Values of terms: datums, and values that only exist on a node, such as tables and streams.

mod args;
mod grouped;
mod names;
mod origin;
mod row;
mod seq;
mod slice;

use std::sync::Arc;

use cluster::DbId;
use datum::{Datum, Text};
use reql::{Closure, EvalError, Foreign};

use crate::context::Cx;
use crate::stream::{Pipe, Source};

pub(crate) use args::Args;
pub(crate) use grouped::Grouped;
pub(crate) use names::{check_name, is_name, name_at, user_name};
pub(crate) use origin::{FirstRows, JoinOrigin, Origin, SystemKeys, SystemRows, UNORDERED};
pub(crate) use row::Row;
pub(crate) use seq::Seq;
pub(crate) use slice::Slice;

/// The value of a term.
pub(crate) enum Value {
    Datum(Datum),
    /// A table, or a part of one in the order of an index.
    Db(DbRef),
    /// A table, or a part of one in the order of an index.
    Table(Slice),
    /// One row of a table, read when it is needed.
    Row(Row),
    /// A lazy sequence.
    Seq(Seq),
    /// A sequence or value per group.
    Grouped(Grouped),
    /// A function.
    Func(Closure),
}

/// A database that exists.
#[derive(Clone, Debug)]
pub(crate) struct DbRef {
    pub name: Text,
    /// Its id; `None` for the database of the system tables.
    pub id: Option<DbId>,
}

impl Value {
    /// Converts the result of closed evaluation.
    pub fn of_closed(value: reql::Value) -> Value {
        match value {
            reql::Value::Datum(datum) => Value::Datum(datum),
            reql::Value::Func(closure) => Value::Func(closure),
            reql::Value::Stream(items) => Value::Seq(Seq::stream(Pipe::of_source(Source::Items(items)))),
            reql::Value::Grouped(groups) => Value::Grouped(Grouped::Ready(*groups)),
            reql::Value::Grouping(grouping) => Value::Grouped(Grouped::Lazy {
                pipe: Pipe::of_source(Source::Items(grouping.items)),
                by: grouping.by,
                steps: grouping.steps,
            }),
        }
    }

    /// The result of `type_of`.
    pub fn type_of(&self) -> &'static str {
        match self {
            Value::Datum(datum) => datum.kind().name(),
            Value::Db(_) => "DB",
            Value::Table(slice) if slice.is_whole() => "TABLE",
            Value::Table(_) => "TABLE_SLICE",
            Value::Row(_) => "SELECTION<OBJECT>",
            Value::Seq(Seq { table: Some(_), eager: true, .. }) => "SELECTION<ARRAY>",
            Value::Seq(Seq { table: Some(_), .. }) => "SELECTION<STREAM>",
            Value::Seq(_) => "STREAM",
            Value::Grouped(grouped) => grouped.type_of(),
            Value::Func(_) => "FUNCTION",
        }
    }

    /// The name used in `Expected type X but found Y:`.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Datum(_) => "DATUM",
            Value::Db(_) => "DATABASE",
            Value::Table(slice) if slice.is_whole() => "TABLE",
            Value::Table(_) => "TABLE_SLICE",
            Value::Row(_) => "SINGLE_SELECTION",
            Value::Seq(Seq { table: Some(_), .. }) => "SELECTION",
            Value::Seq(_) => "SEQUENCE",
            Value::Grouped(groups) if groups.is_stream() => "SEQUENCE",
            Value::Grouped(_) => "GROUPED_DATA",
            Value::Func(_) => "FUNCTION",
        }
    }

    /// The value in a message.
    pub fn print(&self) -> String {
        match self {
            Value::Datum(datum) => datum.pretty(),
            Value::Db(db) => format!("db(\"{}\")", db.name),
            Value::Table(slice) if slice.is_whole() => format!("table(\"{}\")", slice.table.name()),
            Value::Table(slice) => format!("SELECTION ON table({})", slice.table.name()),
            Value::Row(row) => format!("SELECTION ON table({})", row.table.name()),
            Value::Seq(Seq { table: Some(table), .. }) => format!("SELECTION ON table({})", table.name()),
            Value::Seq(_) | Value::Grouped(_) | Value::Func(_) => format!("VALUE {}", self.kind()),
        }
    }

    /// `Expected type <expected> but found <this>:` and the value; the class is NON_EXISTENCE if it is null.
    pub fn mismatch(&self, expected: &str) -> EvalError {
        let error = EvalError::value_type_error(expected, self.kind(), &self.print());
        match self {
            Value::Datum(null @ Datum::Null) => EvalError::typed(null, error.message().to_owned()),
            _ => error,
        }
    }

    /// The same for a value that may be a row, which is read to be shown.
    pub fn not_a(self, cx: &Cx, expected: &str) -> EvalError {
        match self {
            Value::Row(row) => {
                row.into_datum(cx).map_or_else(|error| error, |row| no_selection(&row, expected))
            }
            other => other.mismatch(expected),
        }
    }

    /// The value as a datum. Rows are read now; other values fail.
    pub fn into_datum(self, cx: &Cx) -> Result<Datum, EvalError> {
        match self {
            Value::Datum(datum) => Ok(datum),
            Value::Row(row) => row.into_datum(cx),
            other => Err(other.mismatch("DATUM")),
        }
    }

    /// The value as a function.
    pub fn into_func(self, cx: &Cx) -> Result<Closure, EvalError> {
        match self {
            Value::Func(closure) => Ok(closure),
            other => Err(other.not_a(cx, "FUNCTION")),
        }
    }

    /// The function in another language, if the value is one.
    pub fn as_foreign(&self) -> Option<Arc<dyn Foreign>> {
        match self {
            Value::Func(closure) => closure.as_foreign().cloned(),
            _ => None,
        }
    }

    /// Whether the value is in memory as a whole: an array, a single value, or rows that were read.
    pub fn is_eager(&self) -> bool {
        matches!(self, Value::Datum(_) | Value::Row(_) | Value::Seq(Seq { eager: true, .. }))
    }

    /// Argument `i` of a term as a lazy sequence. The error for another datum is about the term, other errors are about
    /// the argument. Source: `as_seq` in val.cc of RethinkDB.
    pub fn seq_of_argument(self, i: usize, cx: &Cx) -> Result<Seq, EvalError> {
        match self {
            datum @ Value::Datum(_) => datum.into_seq(cx),
            other => other.into_seq(cx).map_err(|error| error.at(i)),
        }
    }

    /// The value as a lazy sequence, which arrays become; other values fail.
    pub fn into_seq(self, cx: &Cx) -> Result<Seq, EvalError> {
        match self {
            Value::Table(slice) => slice.into_seq(cx),
            Value::Seq(seq) => Ok(seq),
            Value::Datum(Datum::Array(array)) => Ok(Seq::stream(Pipe::of_array(array))),
            Value::Datum(other) => Err(reql::not_a_sequence(&other)),
            Value::Grouped(groups) if groups.is_stream() => Err(EvalError::grouped_stream()),
            other => Err(other.not_a(cx, "SEQUENCE")),
        }
    }
}

/// The error for a single row, or null for none, where another type is expected.
pub(crate) fn no_selection(row: &Datum, expected: &str) -> EvalError {
    let printed = row.pretty();
    EvalError::typed(row, format!("Expected type {expected} but found SINGLE_SELECTION:\n{printed}"))
}

/// Arguments from `first` on as datums, to call a function with.
pub(crate) fn datums(cx: &Cx, values: Vec<Value>, first: usize) -> Result<Vec<Datum>, EvalError> {
    let datum = |(i, value): (usize, Value)| value.into_datum(cx).map_err(|error| error.at(i + first));
    values.into_iter().enumerate().map(datum).collect()
}
