//! The evaluated arguments of a term, and the questions terms ask of them.
//!
//! Every question that fails names the argument in the error's backtrace, but for those about what RethinkDB asks of a
//! datum that it has taken out of its argument: what is wrong with that is wrong with the term.

use datum::{Array, Datum, Object, Text};

use crate::closure::Closure;
use crate::env::Env;
use crate::error::EvalError;
pub use crate::integer::{integer, narrow};

/// Most bytes of a string that a term makes: 128 MiB, as much as a request may have.
pub const TEXT_BYTES_MAX: usize = 128 << 20;

/// One evaluated argument.
#[derive(Clone, Debug)]
pub enum Arg {
    /// A value.
    Datum(Datum),
    /// A function.
    Func(Closure),
}

/// What a term is evaluated with. The number of values was checked against the signature.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    /// Positional arguments; when one failed, those before it.
    pub values: &'a [Arg],
    /// The argument that failed.
    failed: Option<Failed<'a>>,
    /// Optional arguments the query gave to this term.
    pub optargs: &'a [(Text, Datum)],
    /// The surroundings.
    pub env: &'a Env<'a>,
}

/// An argument without a value.
#[derive(Clone, Copy)]
struct Failed<'a> {
    /// How many arguments there are, with it and those behind it.
    count: usize,
    error: &'a EvalError,
}

impl<'a> Args<'a> {
    /// Arguments that were all evaluated.
    #[must_use]
    pub fn new(values: &'a [Arg], optargs: &'a [(Text, Datum)], env: &'a Env<'a>) -> Args<'a> {
        Args { values, failed: None, optargs, env }
    }

    /// `count` arguments of which those before the failed one have values. Whoever asks for another gets `error`, so
    /// that a term which finds something wrong with an earlier one says that, as if each were evaluated when it is
    /// asked for. Source: `args_t::arg` of RethinkDB.
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

    /// Argument `i`, if there are that many.
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

    /// Argument `i` as an integer; another value is the term's fault.
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

    /// Argument `i` as a string; another value is the term's fault.
    pub fn plain_string(&self, i: usize) -> Result<&'a Text, EvalError> {
        match self.datum(i)? {
            Datum::String(text) => Ok(text),
            other => Err(EvalError::type_error("STRING", other)),
        }
    }

    /// Argument `i` as an array; another value is the term's fault.
    pub fn plain_array(&self, i: usize) -> Result<&'a Array, EvalError> {
        match self.datum(i)? {
            Datum::Array(array) => Ok(array),
            other => Err(EvalError::type_error("ARRAY", other)),
        }
    }

    /// Argument `i` as an object, which a pseudotype is not; another value is the term's fault.
    pub fn plain_object(&self, i: usize) -> Result<&'a Object, EvalError> {
        match self.datum(i)? {
            Datum::Object(object) => Ok(object),
            other => Err(EvalError::type_error("OBJECT", other)),
        }
    }

    /// The optional argument of this name: the term's own, else the whole query's.
    #[must_use]
    pub fn optarg(&self, name: &str) -> Option<&'a Datum> {
        let own = self.optargs.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        own.or_else(|| self.env.global(name))
    }

    /// An optional argument as a truth value.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.optarg(name).map(Datum::is_truthy)
    }

    /// An optional argument as a string.
    pub fn optional_string(&self, name: &str) -> Result<Option<&'a Text>, EvalError> {
        match self.optarg(name) {
            None => Ok(None),
            Some(Datum::String(text)) => Ok(Some(text)),
            Some(other) => Err(EvalError::type_error("STRING", other).at(name)),
        }
    }

    /// An optional argument as a number.
    pub fn optional_number(&self, name: &str) -> Result<Option<f64>, EvalError> {
        match self.optarg(name) {
            None => Ok(None),
            Some(Datum::Number(number)) => Ok(Some(*number)),
            Some(other) => Err(EvalError::type_error("NUMBER", other).at(name)),
        }
    }
}

/// Fails if a string may not have this many bytes. Asked before the string is made.
pub fn check_text(bytes: usize) -> Result<(), EvalError> {
    if bytes <= TEXT_BYTES_MAX { Ok(()) } else { Err(text_too_long()) }
}

/// The error of a string that would be longer than any may be.
#[must_use]
pub fn text_too_long() -> EvalError {
    EvalError::resource(format!("String over size limit of {TEXT_BYTES_MAX} bytes."))
}

/// A number as a datum, unless it is not finite.
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
