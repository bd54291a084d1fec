//! What an evaluation may know besides its arguments: limits, the query's time, whether it
//! should stop, chance, and the door to terms that touch the world.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datum::cancel::CancelToken;
use datum::{Datum, Text, Time};

use crate::batches::BatchLimits;
use crate::error::EvalError;
use crate::scope::Scope;
use crate::term::Call;

/// Items an array may hold unless the query says otherwise.
pub const ARRAY_LIMIT_DEFAULT: usize = 100_000;

/// The surroundings of one query's evaluation. Cheap to copy, shared by its threads.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// What `now` answers all through the query.
    pub now: Time,
    /// The most items an array may hold.
    pub array_limit: usize,
    /// Set when the query should stop.
    pub cancel: &'a Cancel,
    /// Where random numbers come from.
    pub chance: &'a dyn Chance,
    /// Options of the whole query, used by terms that were not given an optional argument.
    pub globals: &'a [(Text, Datum)],
    /// How terms that touch the world are evaluated; `None` inside a shard.
    pub open: Option<&'a dyn OpenTerms>,
}

impl Env<'_> {
    /// Fails if the query was told to stop, or holds more memory than it may. Cheap enough for
    /// every step of a loop.
    pub fn check_cancel(&self) -> Result<(), EvalError> {
        self.cancel.check()
    }

    /// Fails if an array may not hold `count` items, or there is no memory left for them.
    pub fn check_array(&self, count: usize) -> Result<(), EvalError> {
        if count > self.array_limit {
            return Err(EvalError::array_limit(self.array_limit));
        }
        self.cancel.check_memory()
    }

    /// Fails if the batches that the query asks for cannot be. Asked wherever a sequence is read inside a query,
    /// as in RethinkDB; of the last one, whoever cuts it asks.
    pub fn check_batches(&self) -> Result<(), EvalError> {
        BatchLimits::of_options(self.globals).map(drop)
    }

    /// The option of the whole query with this name.
    #[must_use]
    pub fn global(&self, name: &str) -> Option<&Datum> {
        self.globals.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

/// Evaluates calls that touch tables, the network or the present state of things.
///
/// The closed evaluator hands over every call that has such a term anywhere below it.
pub trait OpenTerms: Send + Sync {
    /// What `call` answers where the variables of `scope` are bound: a datum, a function, or what is neither.
    fn eval_open(&self, call: &Call, scope: &Scope<'_>) -> Result<OpenValue, EvalError>;
}

/// What an open term answers to the closed language.
pub enum OpenValue {
    /// A value.
    Datum(Datum),
    /// A function in another language.
    Func(Arc<dyn Foreign>),
    /// Neither: what messages call it, and how they show it.
    Other {
        /// As in `Expected type DATUM but found TABLE`.
        kind: &'static str,
        /// What stands below that.
        printed: String,
    },
}

/// A function in another language, run by whoever made it.
pub trait Foreign: Send + Sync {
    /// The datum it answers. It may be called with any number of values.
    fn call(&self, values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError>;

    /// What `info` shows as its source.
    fn source(&self) -> String;
}

/// A flag by which a query is told to stop.
#[derive(Debug, Default)]
pub struct Cancel {
    is_set: AtomicBool,
    /// Whether it was set because a value was too deep.
    is_too_deep: AtomicBool,
    ignores_memory: bool,
}

impl Cancel {
    /// A flag that is not set.
    #[must_use]
    pub const fn new() -> Self {
        Self::unset(false)
    }

    /// The flag of an evaluation that must give what it gives whoever needs it and however little
    /// memory is left: nobody sets it, and memory is not looked at.
    #[must_use]
    pub const fn never() -> Self {
        Self::unset(true)
    }

    const fn unset(ignores_memory: bool) -> Self {
        Cancel { is_set: AtomicBool::new(false), is_too_deep: AtomicBool::new(false), ignores_memory }
    }

    /// Tells the query to stop.
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
    }

    /// Fails if the query was told to stop or came too deep, or if this thread works for a query that holds
    /// more memory than it may.
    pub fn check(&self) -> Result<(), EvalError> {
        if self.is_set() {
            self.unless_too_deep()?;
            return Err(EvalError::cancelled());
        }
        self.check_memory()
    }

    /// Fails if a walk through a value came too deep.
    pub(crate) fn unless_too_deep(&self) -> Result<(), EvalError> {
        if self.is_too_deep.load(Ordering::Relaxed) { Err(EvalError::too_deep()) } else { Ok(()) }
    }

    fn check_memory(&self) -> Result<(), EvalError> {
        if self.ignores_memory { Ok(()) } else { io::memory::check().map_err(EvalError::memory) }
    }

    /// Whether the query was told to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }
}

/// A thread that works for a query keeps its flag, so that walks through enormous values end with it. What
/// comes out of them then is anything: whoever answers or writes asks the flag first.
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
pub trait Chance: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// Random numbers that a seed repeats (SplitMix64); the seed comes from whoever starts the query.
#[derive(Debug)]
pub struct SeededChance(AtomicU64);

impl SeededChance {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        SeededChance(AtomicU64::new(seed))
    }
}

impl Chance for SeededChance {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}
