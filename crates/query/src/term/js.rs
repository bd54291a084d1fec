//! `js`: the value of a script in JavaScript, which may be a function.

use std::sync::Arc;
use std::time::Duration;

use datum::Datum;
use reql::{Call, Closure, Env, EvalError, Foreign};

use crate::context::Cx;
use crate::script::{Script, ScriptLimits, ScriptRunner, ScriptValue, Scripts};
use crate::value::{Args, Value};

/// The default timeout of a script.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// The longest timeout: a year, beyond which a clock could overflow.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// `js`: runs a script outside of this process.
pub(crate) fn js(mut args: Args<'_>) -> Result<Value, EvalError> {
    let timeout = match args.optional_number("timeout")? {
        None => TIMEOUT_DEFAULT,
        Some(seconds) => {
            // In whole milliseconds, as the error message shows it.
            let wanted =
                Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(TIMEOUT_MAX).min(TIMEOUT_MAX);
            Duration::from_millis(u64::try_from(wanted.as_millis()).unwrap_or(u64::MAX))
        }
    };
    let source = args.plain_string(0)?.to_string();
    evaluate(args.cx, args.call, source, timeout)
}

/// Runs `source` for `call`.
fn evaluate(cx: &Cx, call: &Call, source: String, timeout: Duration) -> Result<Value, EvalError> {
    let Some(scripts) = &cx.service.scripts else {
        return Err(EvalError::logic(
            "JavaScript is not enabled on this server.  Start it with `--enable-js` to use `r.js`.",
        ));
    };
    let script = Script { source: &source, timeout };
    let limits = ScriptLimits { timeout, array_limit: cx.array_limit, cancel: &cx.cancel };
    match cx.scripts.eval(scripts, script, limits)? {
        ScriptValue::Datum(value) => Ok(Value::Datum(value)),
        ScriptValue::Function => {
            let function =
                ScriptFunction { scripts: scripts.clone(), runner: cx.scripts.clone(), source, timeout };
            Ok(Value::Func(Closure::foreign(call.clone(), Arc::new(function))))
        }
    }
}

/// A function in JavaScript.
struct ScriptFunction {
    scripts: Arc<dyn Scripts>,
    runner: Arc<ScriptRunner>,
    source: String,
    timeout: Duration,
}

impl Foreign for ScriptFunction {
    fn call(&self, values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError> {
        let script = Script { source: &self.source, timeout: self.timeout };
        let limits = ScriptLimits { timeout: self.timeout, array_limit: env.array_limit, cancel: env.cancel };
        self.runner.call(&self.scripts, script, values, limits)
    }

    fn source(&self) -> String {
        format!("javascript timeout={}ms, source={}", self.timeout.as_millis(), self.source)
    }
}
