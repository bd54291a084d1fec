//! The scripts of one query. They share a session, which starts with the first script and is replaced after a failure,
//! and the functions of that session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use datum::Datum;
use parking_lot::Mutex;
use reql::EvalError;

use super::sandbox::{FunctionId, ScriptAnswer, ScriptFailure, ScriptLimits, ScriptSession, Scripts};

/// Most functions that a session keeps; the least recently used one is released first.
const FUNCTIONS_MAX: usize = 100;

/// Runs the scripts of one query, one at a time.
#[derive(Default)]
pub(crate) struct ScriptRunner {
    session: Mutex<Option<Running>>,
}

/// A script and its timeout.
#[derive(Clone, Copy)]
pub(crate) struct Script<'a> {
    pub source: &'a str,
    pub timeout: Duration,
}

struct Running {
    session: Box<dyn ScriptSession>,
    /// Functions by their source, the most recently used one last.
    functions: VecDeque<(String, FunctionId)>,
}

/// The result of a script.
pub(crate) enum ScriptValue {
    Datum(Datum),
    Function,
}

impl ScriptRunner {
    /// Runs a script, unless it is known to be a function.
    pub fn eval(
        &self,
        scripts: &Arc<dyn Scripts>,
        script: Script<'_>,
        limits: ScriptLimits<'_>,
    ) -> Result<ScriptValue, EvalError> {
        self.with(scripts, script, |running| match running.function(script, limits)? {
            ScriptAnswer::Datum(value) => Ok(Ok(ScriptValue::Datum(value))),
            ScriptAnswer::Function(_) => Ok(Ok(ScriptValue::Function)),
            ScriptAnswer::Error(why) => Ok(Err(EvalError::logic(why))),
        })
    }

    /// Calls the function that a script evaluates to.
    pub fn call(
        &self,
        scripts: &Arc<dyn Scripts>,
        script: Script<'_>,
        values: &[Datum],
        limits: ScriptLimits<'_>,
    ) -> Result<Datum, EvalError> {
        self.with(scripts, script, |running| {
            let function = match running.function(script, limits)? {
                ScriptAnswer::Function(function) => function,
                ScriptAnswer::Datum(_) => return Ok(Err(no_function(script.source))),
                ScriptAnswer::Error(why) => return Ok(Err(EvalError::logic(why))),
            };
            match running.session.call(function, values, limits)? {
                ScriptAnswer::Datum(value) => Ok(Ok(value)),
                ScriptAnswer::Function(_) => {
                    let why = "Returning functions from within `r.js` is unsupported.";
                    Ok(Err(EvalError::logic(why)))
                }
                ScriptAnswer::Error(why) => Ok(Err(EvalError::logic(why))),
            }
        })
    }

    /// Runs `work` with the session, which is dropped if that fails.
    fn with<T>(
        &self,
        scripts: &Arc<dyn Scripts>,
        script: Script<'_>,
        work: impl FnOnce(&mut Running) -> Result<Result<T, EvalError>, ScriptFailure>,
    ) -> Result<T, EvalError> {
        let mut session = self.session.lock();
        let mut running = match session.take() {
            Some(running) => running,
            None => {
                let made = scripts.session().map_err(|failure| failed(failure, script))?;
                Running { session: made, functions: VecDeque::new() }
            }
        };
        let answer = work(&mut running).map_err(|failure| failed(failure, script))?;
        *session = Some(running);
        answer
    }
}

impl Running {
    /// The known function of a script, or the result of running it.
    fn function(
        &mut self,
        script: Script<'_>,
        limits: ScriptLimits<'_>,
    ) -> Result<ScriptAnswer, ScriptFailure> {
        if let Some(at) = self.functions.iter().position(|(source, _)| source == script.source) {
            let known = self.functions.remove(at);
            if let Some((source, function)) = known {
                self.functions.push_back((source, function));
                return Ok(ScriptAnswer::Function(function));
            }
        }
        let answer = self.session.eval(script.source, limits)?;
        if let ScriptAnswer::Function(function) = answer {
            if self.functions.len() >= FUNCTIONS_MAX
                && let Some((_, oldest)) = self.functions.pop_front()
            {
                self.session.release(oldest)?;
            }
            self.functions.push_back((script.source.to_owned(), function));
        }
        Ok(answer)
    }
}

fn failed(failure: ScriptFailure, script: Script<'_>) -> EvalError {
    let Script { source, timeout } = script;
    match failure {
        ScriptFailure::Cancelled => EvalError::cancelled(),
        ScriptFailure::TimedOut => {
            let millis = timeout.as_millis();
            let (seconds, rest) = (millis / 1000, millis % 1000);
            EvalError::logic(format!(
                "JavaScript query `{source}` timed out after {seconds}.{rest:03} seconds."
            ))
        }
        ScriptFailure::TooMany(limit) => {
            EvalError::resource(format!("Too many queries run JavaScript at once (limit {limit})."))
        }
        ScriptFailure::Crashed => {
            EvalError::internal(format!("Javascript query `{source}` caused a crash in a worker process."))
        }
    }
}

fn no_function(source: &str) -> EvalError {
    EvalError::logic(format!(
        "Javascript query `{source}` returned a value when it should have returned a function."
    ))
}
