//! What a query asks of whoever runs scripts.

use std::time::Duration;

use datum::Datum;
use reql::Cancel;

/// A function that a session keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionId(pub u64);

/// What a script came to.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptAnswer {
    /// A value.
    Datum(Datum),
    /// A function, kept until it is released or the session ends.
    Function(FunctionId),
    /// An error of the script or its value, in the words of the language.
    Error(String),
}

/// Why a script has no answer. The session is of no use afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptFailure {
    /// It took longer than it may, and was ended.
    TimedOut,
    /// The query was told to stop, and the script was ended.
    Cancelled,
    /// Whoever ran it came to an end, as it does when a script takes too much memory.
    Crashed,
    /// There are as many of them as there may be.
    TooMany(usize),
}

/// How far a script may go.
#[derive(Clone, Copy, Debug)]
pub struct ScriptLimits<'a> {
    /// How long it may take.
    pub timeout: Duration,
    /// The most items an array may have that it answers.
    pub array_limit: usize,
    /// Set when the query should stop.
    pub cancel: &'a Cancel,
}

/// Runs scripts, each query's apart from all others.
pub trait Scripts: Send + Sync {
    /// A place for the scripts of one query. Blocks while one is made, which takes milliseconds.
    fn session(&self) -> Result<Box<dyn ScriptSession>, ScriptFailure>;
}

/// The scripts of one query: they see each other's global variables and nothing else.
pub trait ScriptSession: Send {
    /// Runs `source` and answers the value of its last statement.
    fn eval(&mut self, source: &str, limits: ScriptLimits<'_>) -> Result<ScriptAnswer, ScriptFailure>;

    /// Calls a function with values.
    fn call(
        &mut self,
        function: FunctionId,
        values: &[Datum],
        limits: ScriptLimits<'_>,
    ) -> Result<ScriptAnswer, ScriptFailure>;

    /// Forgets a function.
    fn release(&mut self, function: FunctionId) -> Result<(), ScriptFailure>;
}
