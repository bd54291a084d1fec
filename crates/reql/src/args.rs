//! The evaluated arguments of a term, with typed access to them.
//!
//! An accessor that fails adds the argument to the error's backtrace. The `plain_` accessors do not: RethinkDB
//! checks those values after it has taken the datum out of the argument, so that the error belongs to the term.

use datum::{Array, Datum, Object, Text};

use crate::closure::Closure;
use crate::env::Env;
use crate::error::EvalError;
pub use crate::integer::{integer, narrow};

/// Longest string that a term may make: 128 MiB, the largest size of a request.
pub const TEXT_BYTES_MAX: usize = 128 << 20;

/// One evaluated argument.
#[derive(Clone, Debug)]
pub enum Arg {
    /// A value.
    Datum(Datum),
    /// A function.
    Func(Closure),
}

/// The arguments of a term. Their number was checked against the signature.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    /// Positional arguments; if one failed, only those before it.
    pub values: &'a [Arg],
    /// The argument whose evaluation failed.
    failed: Option<Failed<'a>>,
    /// Optional arguments the query gave to this term.
    pub optargs: &'a [(Text, Datum)],
    /// The environment of the evaluation.
    pub env: &'a Env<'a>,
}

/// An argument whose evaluation failed.
#[derive(Clone, Copy)]
struct Failed<'a> {
    /// The number of arguments, including the failed one and those after it.
    count: usize,
    error: &'a EvalError,
}

impl<'a> Args<'a> {
    /// Arguments without a failed one.
    #[must_use]
    pub fn new(values: &'a [Arg], optargs: &'a [(Text, Datum)], env: &'a Env<'a>) -> Args<'a> {
        Args { values, failed: None, optargs, env }
    }

    /// `count` arguments of which only those before the failed one have values. Access to any other argument fails
    /// with `error`. A term that finds an earlier argument invalid therefore reports that first, as if each
    /// argument were evaluated on access. Source: `args_t::arg` of RethinkDB.
    #[must_use]
    pub fn until(
        values: &'a [Arg],
        count: usize,
        error: &'a EvalError,
        optargs: &'a [(Text, Datum)],
        env: &'a Env<'a>,
    ) -> Args<'a> {
        Args { values, failed: Some(Failed { count, error }), optargs, env }
    }

    /// The number of positional arguments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.failed.map_or(self.values.len(), |failed| failed.count)
    }

    /// Whether there are no positional arguments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Argument `i`, if it exists and has a value.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&'a Arg> {
        self.values.get(i)
    }

    /// Argument `i` as a datum; a function is a type error.
    pub fn datum(&self, i: usize) -> Result<&'a Datum, EvalError> {
        match self.values.get(i) {
            Some(Arg::Datum(datum)) => Ok(datum),
            Some(Arg::Func(_)) => {
                Err(EvalError::value_type_error("DATUM", "FUNCTION", "VALUE FUNCTION").at(i))
            }
            None => Err(match self.failed {
                Some(failed) => failed.error.clone(),
                None => EvalError::internal(format!("argument {i} is missing")),
            }),
        }
    }

    /// Argument `i` as a function; a datum is a type error.
    pub fn func(&self, i: usize) -> Result<&'a Closure, EvalError> {
        match self.values.get(i) {
            Some(Arg::Func(closure)) => Ok(closure),
            _ => Err(EvalError::not_a_function(self.datum(i)?).at(i)),
        }
    }

    /// Argument `i` as a number.
    pub fn number(&self, i: usize) -> Result<f64, EvalError> {
        match self.datum(i)? {
            Datum::Number(number) => Ok(*number),
            other => Err(EvalError::type_error("NUMBER", other).at(i)),
        }
    }

    /// Argument `i` as an integer within ±2^53.
    pub fn integer(&self, i: usize) -> Result<i64, EvalError> {
        integer(self.number(i)?).map_err(|error| error.at(i))
    }

    /// Argument `i` as an integer of 32 bits.
    pub fn narrow(&self, i: usize) -> Result<i32, EvalError> {
        narrow(self.number(i)?).map_err(|error| error.at(i))
    }

    /// Argument `i` as an integer; a value of another type is an error of the term.
    pub fn plain_integer(&self, i: usize) -> Result<i64, EvalError> {
        match self.datum(i)? {
            Datum::Number(number) => integer(*number),
            other => Err(EvalError::type_error("NUMBER", other)),
        }
    }

    /// Argument `i` as a string.
    pub fn string(&self, i: usize) -> Result<&'a Text, EvalError> {
        match self.datum(i)? {
            Datum::String(text) => Ok(text),
            other => Err(EvalError::type_error("STRING", other).at(i)),
        }
    }

    /// Argument `i` as a string; a value of another type is an error of the term.
    pub fn plain_string(&self, i: usize) -> Result<&'a Text, EvalError> {
        match self.datum(i)? {
            Datum::String(text) => Ok(text),
            other => Err(EvalError::type_error("STRING", other)),
        }
    }

    /// Argument `i` as an array; a value of another type is an error of the term.
    pub fn plain_array(&self, i: usize) -> Result<&'a Array, EvalError> {
        match self.datum(i)? {
            Datum::Array(array) => Ok(array),
            other => Err(EvalError::type_error("ARRAY", other)),
        }
    }

    /// Argument `i` as an object (a pseudotype is not one); a value of another type is an error of the term.
    pub fn plain_object(&self, i: usize) -> Result<&'a Object, EvalError> {
        match self.datum(i)? {
            Datum::Object(object) => Ok(object),
            other => Err(EvalError::type_error("OBJECT", other)),
        }
    }

    /// The optional argument of this name that the term itself has.
    #[must_use]
    pub fn own_optarg(&self, name: &str) -> Option<&'a Datum> {
        self.optargs.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The optional argument of this name, from the term or else from the options of the query.
    pub fn optarg(&self, name: &str) -> Result<Option<&'a Datum>, EvalError> {
        match self.own_optarg(name) {
            Some(own) => Ok(Some(own)),
            None => self.env.global(name),
        }
    }

    /// An error about the value of an optional argument. An option of the query has no place in its term, so that the backtrace is
    /// empty.
    #[must_use]
    pub fn at_optarg(&self, name: &str, error: EvalError) -> EvalError {
        if self.own_optarg(name).is_some() { error.at(name) } else { error.frameless() }
    }

    /// An optional argument as a boolean.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, EvalError> {
        Ok(self.optarg(name)?.map(Datum::is_truthy))
    }

    /// An optional argument as a string.
    pub fn optional_string(&self, name: &str) -> Result<Option<&'a Text>, EvalError> {
        match self.optarg(name)? {
            None => Ok(None),
            Some(Datum::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.at_optarg(name, EvalError::type_error("STRING", other))),
        }
    }

    /// An optional argument as a number.
    pub fn optional_number(&self, name: &str) -> Result<Option<f64>, EvalError> {
        match self.optarg(name)? {
            None => Ok(None),
            Some(Datum::Number(number)) => Ok(Some(*number)),
            Some(other) => Err(self.at_optarg(name, EvalError::type_error("NUMBER", other))),
        }
    }
}

/// Fails if a string may not have this many bytes. Called before the string is made.
pub fn check_text(bytes: usize) -> Result<(), EvalError> {
    if bytes <= TEXT_BYTES_MAX { Ok(()) } else { Err(text_too_long()) }
}

/// The error for a string over the size limit.
#[must_use]
pub fn text_too_long() -> EvalError {
    EvalError::resource(format!("String over size limit of {TEXT_BYTES_MAX} bytes."))
}

/// A number as a datum. Fails if it is not finite.
pub fn finite(number: f64) -> Result<Datum, EvalError> {
    if number.is_finite() {
        return Ok(Datum::Number(number));
    }
    let name = if number.is_nan() {
        "nan"
    } else if number > 0.0 {
        "inf"
    } else {
        "-inf"
    };
    Err(EvalError::logic(format!("Non-finite number: {name}")))
}
