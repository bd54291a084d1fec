//! The traits for running scripts.

use std::time::Duration;

use datum::Datum;
use reql::Cancel;

/// A function that a session keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionId(pub u64);

/// The result of a script.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptAnswer {
    /// A value.
    Datum(Datum),
    /// A function, kept until it is released or the session ends.
    Function(FunctionId),
    /// An error of the script or its value, with the message of the language.
    Error(String),
}

/// Why a script has no result. The session cannot be used afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptFailure {
    /// The timeout was exceeded; the script was ended.
    TimedOut,
    /// The query was cancelled; the script was ended.
    Cancelled,
    /// The process that ran it has ended, for instance because the script used too much memory.
    Crashed,
    /// This many scripts run already, which is the limit.
    TooMany(usize),
}

/// Bounds the time of a script and the size of its result.
#[derive(Clone, Copy, Debug)]
pub struct ScriptLimits<'a> {
    pub timeout: Duration,
    /// Most items of an array in the result.
    pub array_limit: usize,
    pub cancel: &'a Cancel,
}

/// Runs scripts, with a separate session for each query.
pub trait Scripts: Send + Sync {
    /// Starts a session for the scripts of one query. Blocks for some milliseconds.
    fn session(&self) -> Result<Box<dyn ScriptSession>, ScriptFailure>;
}

/// The scripts of one query: they share global variables, and nothing with other queries.
pub trait ScriptSession: Send {
    /// Runs `source` and returns the value of its last statement.
    fn eval(&mut self, source: &str, limits: ScriptLimits<'_>) -> Result<ScriptAnswer, ScriptFailure>;

    /// Calls a function with values.
    fn call(
        &mut self,
        function: FunctionId,
        values: &[Datum],
        limits: ScriptLimits<'_>,
    ) -> Result<ScriptAnswer, ScriptFailure>;

    /// Frees a function that a script returned.
    fn release(&mut self, function: FunctionId) -> Result<(), ScriptFailure>;
}
