//! The evaluated arguments of an open term, and conversions that terms need.
//!
//! Positional arguments are values already; optional ones are evaluated when the term reads them. A conversion that
//! fails names the argument in the error's backtrace.

use datum::{Datum, Text};
use reql::{Call, Closure, EvalError, Op, Scope};

use super::seq::Seq;
use super::slice::Slice;
use super::{DbRef, Value};
use crate::context::Cx;
use crate::table::TableRef;

/// The arguments of an open term.
pub(crate) struct Args<'a> {
    /// The query.
    pub cx: &'a Cx,
    /// The term.
    pub call: &'a Call,
    /// The variables around it.
    pub scope: &'a Scope<'a>,
    values: Vec<Option<Value>>,
}

impl<'a> Args<'a> {
    /// Evaluated arguments.
    pub fn new(cx: &'a Cx, call: &'a Call, scope: &'a Scope<'a>, values: Vec<Value>) -> Args<'a> {
        Args { cx, call, scope, values: values.into_iter().map(Some).collect() }
    }

    /// The operation of the term.
    pub fn op(&self) -> Op {
        self.call.op
    }

    /// The number of positional arguments.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Takes argument `i`. Each can be taken once.
    pub fn take(&mut self, i: usize) -> Result<Value, EvalError> {
        let value = self.values.get_mut(i).and_then(Option::take);
        value
            .ok_or_else(|| EvalError::internal(format!("argument {i} of {} is missing", self.call.op.name())))
    }

    /// Argument `i`, by reference.
    pub fn peek(&self, i: usize) -> Option<&Value> {
        self.values.get(i).and_then(Option::as_ref)
    }

    /// Whether argument `i` is in memory as a whole, and not a table or a stream.
    pub fn is_eager(&self, i: usize) -> bool {
        self.peek(i).is_some_and(Value::is_eager)
    }

    /// Whether all arguments are.
    pub fn all_eager(&self) -> bool {
        (0..self.len()).all(|i| self.is_eager(i))
    }

    /// Argument `i` as a datum.
    pub fn datum(&mut self, i: usize) -> Result<Datum, EvalError> {
        self.take(i)?.into_datum(self.cx).map_err(|error| error.at(i))
    }

    /// Argument `i` as a string.
    pub fn string(&mut self, i: usize) -> Result<Text, EvalError> {
        match self.datum(i)? {
            Datum::String(text) => Ok(text),
            other => Err(EvalError::type_error("STRING", &other).at(i)),
        }
    }

    /// Argument `i` as a string. The error for another type is about the term and not the argument, as in RethinkDB
    /// where it checks a datum.
    pub fn plain_string(&mut self, i: usize) -> Result<Text, EvalError> {
        match self.datum(i)? {
            Datum::String(text) => Ok(text),
            other => Err(EvalError::type_error("STRING", &other)),
        }
    }

    /// Argument `i` as an integer within ±2^53.
    pub fn integer(&mut self, i: usize) -> Result<i64, EvalError> {
        match self.datum(i)? {
            Datum::Number(number) => reql::args::integer(number).map_err(|error| error.at(i)),
            other => Err(EvalError::type_error("NUMBER", &other).at(i)),
        }
    }

    /// Argument `i` as a function.
    pub fn func(&mut self, i: usize) -> Result<Closure, EvalError> {
        self.take(i)?.into_func(self.cx).map_err(|error| error.at(i))
    }

    /// Argument `i` as a sequence.
    pub fn seq(&mut self, i: usize) -> Result<Seq, EvalError> {
        self.take(i)?.seq_of_argument(i, self.cx)
    }

    /// Argument `i` as a whole table.
    pub fn table(&mut self, i: usize) -> Result<TableRef, EvalError> {
        match self.take(i)? {
            Value::Table(slice) if slice.is_whole() => Ok(slice.table),
            other => Err(other.not_a(self.cx, "TABLE").at(i)),
        }
    }

    /// Argument `i` as a table or a part of one.
    pub fn slice(&mut self, i: usize) -> Result<Slice, EvalError> {
        match self.take(i)? {
            Value::Table(slice) => Ok(slice),
            other => Err(other.not_a(self.cx, "TABLE_SLICE").at(i)),
        }
    }

    /// Argument `i` as a database.
    pub fn db(&mut self, i: usize) -> Result<DbRef, EvalError> {
        match self.take(i)? {
            Value::Db(db) => Ok(db),
            other => Err(other.not_a(self.cx, "DATABASE").at(i)),
        }
    }

    /// Whether the term itself has this optional argument.
    pub fn has_optarg(&self, name: &str) -> bool {
        self.call.optarg(name).is_some()
    }

    /// The optional argument with this name: the term's own, else the whole query's.
    pub fn optarg(&self, name: &str) -> Result<Option<Value>, EvalError> {
        match self.call.optarg(name) {
            Some(term) => self.cx.eval(term, self.scope).map(Some).map_err(|error| error.at(name)),
            None => Ok(self.cx.global(name)?.cloned().map(Value::Datum)),
        }
    }

    /// An error about the value of an optional argument. An option of the whole query has no place in its term, so that the
    /// backtrace is empty.
    pub fn at_optarg(&self, name: &str, error: EvalError) -> EvalError {
        if self.has_optarg(name) { error.at(name) } else { error.frameless() }
    }

    /// An optional argument as a datum.
    pub fn optional_datum(&self, name: &str) -> Result<Option<Datum>, EvalError> {
        match self.optarg(name)? {
            None => Ok(None),
            Some(value) => value.into_datum(self.cx).map(Some).map_err(|error| self.at_optarg(name, error)),
        }
    }

    /// An optional argument as a string.
    pub fn optional_string(&self, name: &str) -> Result<Option<Text>, EvalError> {
        match self.optional_datum(name)? {
            None => Ok(None),
            Some(Datum::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.at_optarg(name, EvalError::type_error("STRING", &other))),
        }
    }

    /// An optional argument as a number.
    pub fn optional_number(&self, name: &str) -> Result<Option<f64>, EvalError> {
        match self.optional_datum(name)? {
            None => Ok(None),
            Some(Datum::Number(number)) => Ok(Some(number)),
            Some(other) => Err(self.at_optarg(name, EvalError::type_error("NUMBER", &other))),
        }
    }

    /// An optional argument as an integer.
    pub fn optional_integer(&self, name: &str) -> Result<Option<i64>, EvalError> {
        let number = self.optional_number(name)?;
        number.map(reql::args::integer).transpose().map_err(|error| self.at_optarg(name, error))
    }

    /// An optional argument as a bool; absent is false.
    pub fn flag(&self, name: &str) -> Result<bool, EvalError> {
        Ok(self.optional_datum(name)?.is_some_and(|datum| datum.is_truthy()))
    }
}
