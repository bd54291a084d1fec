//! An HTTP client and a script language for tests.

use std::sync::atomic::{AtomicU64, Ordering};

use datum::Datum;
use rekindle_query::{
    Auth, FunctionId, HttpClient, HttpFailure, HttpRequest, HttpResponse, HttpSession, ScriptAnswer,
    ScriptFailure, ScriptLimits, ScriptSession, Scripts,
};
use reql::Cancel;
use serde_json::json;

/// The content of each page depends on its path.
pub struct SamplePages;

struct SampleSession {
    requests: u32,
}

impl HttpClient for SamplePages {
    fn session(&self) -> Box<dyn HttpSession> {
        Box::new(SampleSession { requests: 0 })
    }
}

impl HttpSession for SampleSession {
    fn send(&mut self, request: &HttpRequest, _: &Cancel) -> Result<HttpResponse, HttpFailure> {
        self.requests += 1;
        let (path, parameters) = request.url.split_once('?').unwrap_or((&request.url, ""));
        let number = |name: &str| {
            let pairs = parameters.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse::<u32>().ok())
        };
        let mut answer = HttpResponse {
            status: 200,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: Vec::new(),
        };
        match path {
            "a/echo" => answer.body = echo(request, self.requests).to_string().into_bytes(),
            "a/array" => answer.body = b"[1,2,3]".to_vec(),
            "a/broken" => answer.body = b"{\"a\":".to_vec(),
            "a/missing" => {
                answer.status = 404;
                answer.body = b"not here".to_vec();
            }
            "a/empty" => answer.status = 500,
            "a/slow" => return Err(HttpFailure::TimedOut),
            "a/dead" => return Err(HttpFailure::Failed("could not connect to server".to_owned())),
            "a/pages" => {
                let page = number("page").unwrap_or(1);
                answer.body = format!("[{page}0,{page}1]").into_bytes();
                if page < 3 {
                    let link = format!("<a/pages?page={}>; rel=\"next\"", page + 1);
                    answer.headers.push(("link".to_owned(), link));
                }
            }
            other => answer.body = json!(other).to_string().into_bytes(),
        }
        Ok(answer)
    }
}

fn echo(request: &HttpRequest, requests: u32) -> serde_json::Value {
    let auth = request.auth.as_ref().map(|auth| match auth {
        Auth::Basic { user, pass } => format!("basic {user} {pass}"),
        Auth::Digest { user, pass } => format!("digest {user} {pass}"),
    });
    json!({
        "method": request.method.name(),
        "url": request.url,
        "headers": request.headers.iter().map(|(k, v)| format!("{k}: {v}")).collect::<Vec<_>>(),
        "body": String::from_utf8_lossy(&request.body),
        "auth": auth,
        "attempts": request.attempts,
        "redirects": request.redirects,
        "timeout": request.timeout.as_millis() as u64,
        "verify": request.verify,
        "requests": requests,
    })
}

/// A script is a number, `undefined`, `hang`, `crash`, or a function: `first`, `count`, `where`
/// (which session it runs in).
#[derive(Default)]
pub struct SmallScripts(AtomicU64);

struct Runs {
    session: u64,
    functions: Vec<String>,
}

impl Scripts for SmallScripts {
    fn session(&self) -> Result<Box<dyn ScriptSession>, ScriptFailure> {
        let session = self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Runs { session, functions: Vec::new() }))
    }
}

impl ScriptSession for Runs {
    fn eval(&mut self, source: &str, _: ScriptLimits<'_>) -> Result<ScriptAnswer, ScriptFailure> {
        Ok(match source {
            "hang" => return Err(ScriptFailure::TimedOut),
            "crash" => return Err(ScriptFailure::Crashed),
            "undefined" => {
                ScriptAnswer::Error("Cannot convert javascript `undefined` to ql::datum_t.".to_owned())
            }
            "first" | "count" | "where" | "higher" | "hangs" => {
                self.functions.push(source.to_owned());
                ScriptAnswer::Function(FunctionId(self.functions.len() as u64 - 1))
            }
            number => ScriptAnswer::Datum(number.parse::<f64>().map_or(Datum::Null, Datum::Number)),
        })
    }

    fn call(
        &mut self,
        function: FunctionId,
        values: &[Datum],
        _: ScriptLimits<'_>,
    ) -> Result<ScriptAnswer, ScriptFailure> {
        Ok(match self.functions[function.0 as usize].as_str() {
            "first" => ScriptAnswer::Datum(values.first().cloned().unwrap_or(Datum::Null)),
            "count" => ScriptAnswer::Datum(Datum::Number(values.len() as f64)),
            "where" => ScriptAnswer::Datum(Datum::Number(self.session as f64)),
            "hangs" => return Err(ScriptFailure::TimedOut),
            _ => ScriptAnswer::Function(function),
        })
    }

    fn release(&mut self, _: FunctionId) -> Result<(), ScriptFailure> {
        Ok(())
    }
}
