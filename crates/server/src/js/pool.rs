//! Sandboxes for the queries that want one: one each, used again by the next query after it forgot
//! everything.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use datum::Datum;
use parking_lot::Mutex;
use query::{FunctionId, ScriptAnswer, ScriptFailure, ScriptLimits, ScriptSession, Scripts};

use super::frame::{Answer, Limits, Question};
use super::process::{Program, Sandbox};

/// Sandboxes at once; each may take some hundred megabytes.
const SANDBOXES_MAX: usize = 32;
/// Sandboxes kept for the next query.
const IDLE_MAX: usize = 2;
/// Processor time a sandbox may take beyond a script's timeout before the system ends it.
const CPU_SECONDS_SPARE: u64 = 2;

/// Starts sandboxes and hands them out.
pub struct JsPool {
    shared: Arc<Shared>,
}

struct Shared {
    program: Program,
    idle: Mutex<Vec<Sandbox>>,
    running: AtomicUsize,
}

impl JsPool {
    /// Sandboxes that `path` is, when called with `args`.
    #[must_use]
    pub fn new(path: PathBuf, args: &[&str]) -> JsPool {
        let program = Program { path, args: args.iter().map(Into::into).collect() };
        let shared = Shared { program, idle: Mutex::default(), running: AtomicUsize::new(0) };
        JsPool { shared: Arc::new(shared) }
    }

    /// Sandboxes that are this program under another command.
    #[must_use]
    pub fn of_this_program() -> JsPool {
        // Not by its name, under which there may be a newer version by now.
        let path = match cfg!(target_os = "linux") {
            true => PathBuf::from("/proc/self/exe"),
            false => std::env::current_exe().unwrap_or_else(|_| PathBuf::from("rekindle")),
        };
        JsPool::new(path, &["js-sandbox"])
    }
}

impl Scripts for JsPool {
    fn session(&self) -> Result<Box<dyn ScriptSession>, ScriptFailure> {
        let place = Place::take(&self.shared)?;
        let used = std::iter::from_fn(|| self.shared.idle.lock().pop()).find_map(|mut sandbox| {
            let alive = sandbox.is_alive();
            alive.then_some(sandbox)
        });
        let sandbox = match used {
            Some(sandbox) => sandbox,
            None => Sandbox::start(&self.shared.program).map_err(|error| {
                tracing::error!("a sandbox for r.js cannot be started: {error}");
                ScriptFailure::Crashed
            })?,
        };
        Ok(Box::new(Session { place, sandbox: Some(sandbox) }))
    }
}

/// The right to have one sandbox.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Result<Place, ScriptFailure> {
        let place = Place(shared.clone());
        match shared.running.fetch_add(1, Ordering::Relaxed) < SANDBOXES_MAX {
            true => Ok(place),
            false => Err(ScriptFailure::TooMany(SANDBOXES_MAX)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Session {
    place: Place,
    /// Gone after a failure.
    sandbox: Option<Sandbox>,
}

impl Session {
    fn ask(
        &mut self,
        question: &Question,
        timeout: Duration,
        limits: ScriptLimits<'_>,
    ) -> Result<ScriptAnswer, ScriptFailure> {
        let mut sandbox = self.sandbox.take().ok_or(ScriptFailure::Crashed)?;
        let answer = sandbox.ask(question, timeout, limits.cancel)?;
        self.sandbox = Some(sandbox);
        match answer {
            Answer::Datum(value) => Ok(ScriptAnswer::Datum(value)),
            Answer::Function(function) => Ok(ScriptAnswer::Function(FunctionId(function))),
            Answer::Error(why) => Ok(ScriptAnswer::Error(why.to_string())),
            Answer::Done => Err(ScriptFailure::Crashed),
        }
    }
}

impl ScriptSession for Session {
    fn eval(&mut self, source: &str, limits: ScriptLimits<'_>) -> Result<ScriptAnswer, ScriptFailure> {
        let question = Question::Eval { source: source.into(), limits: of_limits(limits) };
        self.ask(&question, limits.timeout, limits)
    }

    fn call(
        &mut self,
        function: FunctionId,
        values: &[Datum],
        limits: ScriptLimits<'_>,
    ) -> Result<ScriptAnswer, ScriptFailure> {
        // These have no JSON, so that they cannot even get there.
        for value in values {
            let why = match value.not_json() {
                None => continue,
                Some(datum::Kind::MinVal) => "`r.minval` cannot be passed to `r.js`.",
                Some(_) => "`r.maxval` cannot be passed to `r.js`.",
            };
            return Ok(ScriptAnswer::Error(why.to_owned()));
        }
        let (values, limits_told) = (values.to_vec(), of_limits(limits));
        let question = Question::Call { function: function.0, values, limits: limits_told };
        self.ask(&question, limits.timeout, limits)
    }

    fn release(&mut self, function: FunctionId) -> Result<(), ScriptFailure> {
        let mut sandbox = self.sandbox.take().ok_or(ScriptFailure::Crashed)?;
        sandbox.tell(&Question::Release { function: function.0 })?;
        self.sandbox = Some(sandbox);
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(mut sandbox) = self.sandbox.take() else { return };
        if self.place.0.idle.lock().len() >= IDLE_MAX || sandbox.tell(&Question::Reset).is_err() {
            return;
        }
        self.place.0.idle.lock().push(sandbox);
    }
}

fn of_limits(limits: ScriptLimits<'_>) -> Limits {
    Limits {
        cpu_seconds: limits.timeout.as_secs().saturating_add(CPU_SECONDS_SPARE),
        array_items: u64::try_from(limits.array_limit).unwrap_or(u64::MAX),
    }
}
