//! The environment of an evaluation: limits, the query's time, cancellation, random numbers, and the evaluator of
//! terms that need more than their arguments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datum::cancel::CancelToken;
use datum::{Datum, Text, Time};

use crate::batches::BatchLimits;
use crate::error::EvalError;
use crate::scope::Scope;
use crate::term::Call;

/// Default limit on the items of an array.
pub const ARRAY_LIMIT_DEFAULT: usize = 100_000;

/// An option of the whole query, and its value. An error in it is raised when a term asks for the option, as in RethinkDB.
pub type GlobalOption = (Text, Result<Datum, EvalError>);

/// The environment of one query's evaluation. Cheap to copy; shared by the threads of the query.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The value of `now`, the same throughout the query.
    pub now: Time,
    /// The most items an array may hold.
    pub array_limit: usize,
    /// Set when the query is cancelled.
    pub cancel: &'a Cancel,
    /// Source of random numbers.
    pub random: &'a dyn RandomSource,
    /// Options of the whole query, the defaults of optional arguments.
    pub globals: &'a [GlobalOption],
    /// Evaluates open terms; `None` inside a shard.
    pub open: Option<&'a dyn OpenTerms>,
}

impl Env<'_> {
    /// Fails if the query is cancelled, or holds more memory than it may. Cheap enough for every iteration of a
    /// loop.
    pub fn check_cancel(&self) -> Result<(), EvalError> {
        self.cancel.check()
    }

    /// Fails if an array may not have `count` items, or there is no memory for them.
    pub fn check_array(&self, count: usize) -> Result<(), EvalError> {
        if count > self.array_limit {
            return Err(EvalError::array_limit(self.array_limit));
        }
        self.cancel.check_memory()
    }

    /// Fails if the query's batch options are invalid. Called wherever a sequence is read inside a query, as in
    /// RethinkDB. For the final sequence, the code that cuts it into batches checks them.
    pub fn check_batches(&self) -> Result<(), EvalError> {
        match self.globals {
            [] => Ok(()),
            globals => BatchLimits::of_options(|name| global(globals, name)).map(drop),
        }
    }
}

impl<'a> Env<'a> {
    /// The option of the whole query with this name. Fails if its evaluation has failed.
    pub fn global(&self, name: &str) -> Result<Option<&'a Datum>, EvalError> {
        global(self.globals, name)
    }
}

/// The option with this name. Fails if its evaluation has failed.
pub fn global<'a>(globals: &'a [GlobalOption], name: &str) -> Result<Option<&'a Datum>, EvalError> {
    let found = globals.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_ref().map_err(Clone::clone)).transpose()
}

/// Evaluates open terms, which access tables, the network or the current state of the cluster.
///
/// The closed evaluator passes on every call that contains such a term.
pub trait OpenTerms: Send + Sync {
    /// Evaluates `call` with the variables of `scope`: to a datum, a function, or another kind of value.
    fn eval_open(&self, call: &Call, scope: &Scope<'_>) -> Result<OpenValue, EvalError>;
}

/// The value of an open term in the closed evaluator.
pub enum OpenValue {
    Datum(Datum),
    /// A row of a table, which is a datum except in texts of errors about its type.
    Row(Datum),
    /// A function in another language.
    Func(Arc<dyn Foreign>),
    /// Any other value, with its type and text for error messages.
    Other {
        /// The type, as in `Expected type DATUM but found TABLE`.
        kind: &'static str,
        /// The text that follows the type.
        printed: String,
    },
}

/// A function in another language, run by the code that made it.
pub trait Foreign: Send + Sync {
    /// Calls the function with any number of values.
    fn call(&self, values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError>;

    /// The source that `info` shows.
    fn source(&self) -> String;
}

/// A flag that cancels a query.
#[derive(Debug, Default)]
pub struct Cancel {
    is_set: AtomicBool,
    /// Whether it was set because a value is nested too deeply.
    is_too_deep: AtomicBool,
    ignores_memory: bool,
}

impl Cancel {
    /// A flag that is not set.
    #[must_use]
    pub const fn new() -> Self {
        Self::unset(false)
    }

    /// The flag of an evaluation that must always give the same result, on every server and however little memory
    /// is left. It is never set, and the memory limit is ignored.
    #[must_use]
    pub const fn never() -> Self {
        Self::unset(true)
    }

    const fn unset(ignores_memory: bool) -> Self {
        Cancel { is_set: AtomicBool::new(false), is_too_deep: AtomicBool::new(false), ignores_memory }
    }

    /// Cancels the query.
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
    }

    /// Fails if the query is cancelled or a value was nested too deeply, or if the query that this thread works for
    /// holds more memory than it may.
    pub fn check(&self) -> Result<(), EvalError> {
        if self.is_set() {
            self.unless_too_deep()?;
            return Err(EvalError::cancelled());
        }
        self.check_memory()
    }

    /// Fails if a walk through a value went too deep.
    pub(crate) fn unless_too_deep(&self) -> Result<(), EvalError> {
        if self.is_too_deep.load(Ordering::Relaxed) { Err(EvalError::too_deep()) } else { Ok(()) }
    }

    fn check_memory(&self) -> Result<(), EvalError> {
        if self.ignores_memory { Ok(()) } else { io::memory::check().map_err(EvalError::memory) }
    }

    /// Whether the query is cancelled.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }
}

/// A thread that works for a query uses its flag as its cancel token, so that walks through enormous values end
/// with the query. Such a walk then has an arbitrary result: code that returns or writes a result checks the flag
/// first.
impl CancelToken for Cancel {
    fn is_cancelled(&self) -> bool {
        self.is_set()
    }

    fn cancel_too_deep(&self) {
        self.is_too_deep.store(true, Ordering::Relaxed);
        self.set();
    }
}

/// A source of random numbers.
pub trait RandomSource: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// Random numbers determined by a seed (SplitMix64); the seed comes from the code that starts the query.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// The sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        SeededRandom(AtomicU64::new(seed))
    }
}

impl RandomSource for SeededRandom {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}
