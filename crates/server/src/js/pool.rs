//! A pool of sandboxes: each query that needs one has its own. It is reset before the next query uses it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use datum::Datum;
use parking_lot::Mutex;
use query::{FunctionId, ScriptAnswer, ScriptFailure, ScriptLimits, ScriptSession, Scripts};

use super::frame::{Limits, SandboxRequest, SandboxResponse};
use super::process::{Program, Sandbox};

/// The most sandboxes at a time; each may take some hundred megabytes.
const SANDBOXES_MAX: usize = 32;
/// Idle sandboxes that are kept for the next query.
const IDLE_MAX: usize = 2;
/// Processor time beyond a script's timeout after which the system kills the sandbox.
const CPU_SECONDS_GRACE: u64 = 2;

/// Starts sandboxes and assigns them to queries.
pub struct JsPool {
    shared: Arc<Shared>,
}

struct Shared {
    program: Program,
    idle: Mutex<Vec<Sandbox>>,
    running: AtomicUsize,
}

impl JsPool {
    /// A pool that starts the program at `path` with `args` as a sandbox.
    #[must_use]
    pub fn new(path: PathBuf, args: &[&str]) -> JsPool {
        let program = Program { path, args: args.iter().map(Into::into).collect() };
        let shared = Shared { program, idle: Mutex::default(), running: AtomicUsize::new(0) };
        JsPool { shared: Arc::new(shared) }
    }

    /// A pool that starts this program as a sandbox.
    #[must_use]
    pub fn of_this_program() -> JsPool {
        // Not its path: an upgrade may have replaced that file.
        let path = match cfg!(target_os = "linux") {
            true => PathBuf::from("/proc/self/exe"),
            false => std::env::current_exe().unwrap_or_else(|_| PathBuf::from("rekindle")),
        };
        JsPool::new(path, &["js-sandbox"])
    }
}

impl Scripts for JsPool {
    fn session(&self) -> Result<Box<dyn ScriptSession>, ScriptFailure> {
        let permit = Permit::take(&self.shared)?;
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
        Ok(Box::new(Session { permit, sandbox: Some(sandbox) }))
    }
}

/// The permit for one sandbox.
struct Permit(Arc<Shared>);

impl Permit {
    fn take(shared: &Arc<Shared>) -> Result<Permit, ScriptFailure> {
        let permit = Permit(shared.clone());
        match shared.running.fetch_add(1, Ordering::Relaxed) < SANDBOXES_MAX {
            true => Ok(permit),
            false => Err(ScriptFailure::TooMany(SANDBOXES_MAX)),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Session {
    permit: Permit,
    /// `None` after a failure.
    sandbox: Option<Sandbox>,
}

impl Session {
    fn request(
        &mut self,
        request: &SandboxRequest,
        timeout: Duration,
        limits: ScriptLimits<'_>,
    ) -> Result<ScriptAnswer, ScriptFailure> {
        let mut sandbox = self.sandbox.take().ok_or(ScriptFailure::Crashed)?;
        let answer = sandbox.request(request, timeout, limits.cancel)?;
        self.sandbox = Some(sandbox);
        match answer {
            SandboxResponse::Datum(value) => Ok(ScriptAnswer::Datum(value)),
            SandboxResponse::Function(function) => Ok(ScriptAnswer::Function(FunctionId(function))),
            SandboxResponse::Error(why) => Ok(ScriptAnswer::Error(why.to_string())),
            SandboxResponse::Done => Err(ScriptFailure::Crashed),
        }
    }
}

impl ScriptSession for Session {
    fn eval(&mut self, source: &str, limits: ScriptLimits<'_>) -> Result<ScriptAnswer, ScriptFailure> {
        let request = SandboxRequest::Eval { source: source.into(), limits: of_limits(limits) };
        self.request(&request, limits.timeout, limits)
    }

    fn call(
        &mut self,
        function: FunctionId,
        values: &[Datum],
        limits: ScriptLimits<'_>,
    ) -> Result<ScriptAnswer, ScriptFailure> {
        // These have no JSON form and cannot be sent to the sandbox.
        for value in values {
            let why = match value.not_json() {
                None => continue,
                Some(datum::Kind::MinVal) => "`r.minval` cannot be passed to `r.js`.",
                Some(_) => "`r.maxval` cannot be passed to `r.js`.",
            };
            return Ok(ScriptAnswer::Error(why.to_owned()));
        }
        let (values, request_limits) = (values.to_vec(), of_limits(limits));
        let request = SandboxRequest::Call { function: function.0, values, limits: request_limits };
        self.request(&request, limits.timeout, limits)
    }

    fn release(&mut self, function: FunctionId) -> Result<(), ScriptFailure> {
        let mut sandbox = self.sandbox.take().ok_or(ScriptFailure::Crashed)?;
        sandbox.control(&SandboxRequest::Release { function: function.0 })?;
        self.sandbox = Some(sandbox);
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(mut sandbox) = self.sandbox.take() else { return };
        if self.permit.0.idle.lock().len() >= IDLE_MAX || sandbox.control(&SandboxRequest::Reset).is_err() {
            return;
        }
        self.permit.0.idle.lock().push(sandbox);
    }
}

fn of_limits(limits: ScriptLimits<'_>) -> Limits {
    Limits {
        cpu_seconds: limits.timeout.as_secs().saturating_add(CPU_SECONDS_GRACE),
        array_items: u64::try_from(limits.array_limit).unwrap_or(u64::MAX),
    }
}
