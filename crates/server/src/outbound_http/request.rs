//! Performs one request: retries, redirects, authentication.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use digest_auth::{AuthContext, HttpMethod};
use parking_lot::Mutex;
use query::{Auth, HttpFailure, HttpRequest, HttpResponse, Method};
use ureq::http::header::{AUTHORIZATION, COOKIE, LOCATION, SET_COOKIE, WWW_AUTHENTICATE};
use ureq::http::{Request, Response};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body};

use super::cookies::CookieJar;
use super::failure::AttemptError;
use super::url::HttpUrl;

/// Bounds the wait for a connection: it cannot be interrupted, and the request's own timeout may be much longer.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// The largest response header, in bytes.
const HEADER_BYTES_MAX: usize = 256 << 10;

/// Statuses after which a retry may help.
const TRANSIENT_STATUS: [u16; 5] = [408, 500, 502, 503, 504];

/// The agent that sends requests, and the cookies it sends.
#[derive(Clone)]
pub(super) struct RequestContext {
    pub agent: Agent,
    pub jar: Arc<Mutex<CookieJar>>,
}

/// Performs `request` with its retries and returns the last response.
pub(super) fn perform(context: &RequestContext, request: &HttpRequest) -> Result<HttpResponse, HttpFailure> {
    let deadline = Instant::now() + request.timeout;
    let mut last = Err(HttpFailure::Failed("could not perform, no attempts allowed".to_owned()));
    for _ in 0..request.attempts {
        match Attempt::new(context, request, deadline).and_then(Attempt::answer) {
            Ok(answer) if TRANSIENT_STATUS.contains(&answer.status) => last = Ok(answer),
            Ok(answer) => return Ok(answer),
            Err(AttemptError::Transient(why)) => last = Err(HttpFailure::Failed(why.to_owned())),
            Err(AttemptError::Permanent(failure)) => return Err(failure),
        }
    }
    last
}

/// One attempt, which may take several exchanges.
struct Attempt<'a> {
    context: &'a RequestContext,
    request: &'a HttpRequest,
    deadline: Instant,
    url: HttpUrl,
    method: Method,
    /// Whether the body is still sent; some redirects drop it.
    has_body: bool,
    /// Whether all requests of this attempt went to the server of the first URL.
    on_first_server: bool,
}

impl<'a> Attempt<'a> {
    fn new(
        context: &'a RequestContext,
        request: &'a HttpRequest,
        deadline: Instant,
    ) -> Result<Attempt<'a>, AttemptError> {
        let url = HttpUrl::parse(&request.url)?;
        let has_body = !request.body.is_empty() || request.method == Method::Post;
        Ok(Attempt {
            context,
            request,
            deadline,
            url,
            method: request.method,
            has_body,
            on_first_server: true,
        })
    }

    fn answer(mut self) -> Result<HttpResponse, AttemptError> {
        for followed in 0..=self.request.redirects {
            let response = self.authorized()?;
            let Some(location) = self.redirection(&response) else { return self.read(response) };
            if followed == self.request.redirects {
                return Err(AttemptError::failed("Number of redirects hit maximum amount"));
            }
            self.follow(response.status().as_u16(), &location)?;
        }
        Err(AttemptError::failed("Number of redirects hit maximum amount"))
    }

    /// The target of a redirect, if redirects are followed at all.
    fn redirection(&self, response: &Response<Body>) -> Option<String> {
        let status = response.status().as_u16();
        if self.request.redirects == 0 || !matches!(status, 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let location = response.headers().get(LOCATION)?;
        Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
    }

    fn follow(&mut self, status: u16, location: &str) -> Result<(), AttemptError> {
        let next = self.url.join(location)?;
        let becomes_get = match status {
            303 => self.method != Method::Head,
            301 | 302 => self.method == Method::Post,
            _ => false,
        };
        if becomes_get {
            self.method = Method::Get;
            self.has_body = false;
        }
        self.on_first_server &= self.url.is_same_server(&next);
        self.url = next;
        Ok(())
    }

    /// The response, after authentication if there are credentials.
    fn authorized(&self) -> Result<Response<Body>, AttemptError> {
        match &self.request.auth {
            Some(Auth::Basic { user, pass }) if self.on_first_server => {
                self.exchange(Some(&format!("Basic {}", BASE64.encode(format!("{user}:{pass}")))))
            }
            Some(Auth::Digest { user, pass }) if self.on_first_server => {
                let response = self.exchange(None)?;
                match self.digest(&response, user, pass) {
                    Some(credentials) => self.exchange(Some(&credentials)),
                    None => Ok(response),
                }
            }
            _ => self.exchange(None),
        }
    }

    /// The response to a digest challenge, if there is one that is supported.
    fn digest(&self, response: &Response<Body>, user: &str, pass: &str) -> Option<String> {
        if response.status().as_u16() != 401 {
            return None;
        }
        let mut challenges = response.headers().get_all(WWW_AUTHENTICATE).iter();
        let mut challenge =
            challenges.find_map(|line| line.to_str().ok().and_then(|line| digest_auth::parse(line).ok()))?;
        let method = HttpMethod(self.method.name().into());
        let body = self.has_body.then_some(self.request.body.as_slice());
        let context = AuthContext::new_with_method(user, pass, self.url.target(), body, method);
        challenge.respond(&context).ok().map(|answer| answer.to_header_string())
    }

    fn exchange(&self, credentials: Option<&str>) -> Result<Response<Body>, AttemptError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(AttemptError::Permanent(HttpFailure::TimedOut));
        }
        let mut builder = Request::builder().method(self.method.name()).uri(self.url.uri());
        for (name, value) in &self.request.headers {
            if self.is_sent(name) {
                builder = builder.header(name, value);
            }
        }
        if let Some(cookies) = self.context.jar.lock().line(&self.url) {
            builder = builder.header(COOKIE, cookies);
        }
        if let Some(credentials) = credentials {
            builder = builder.header(AUTHORIZATION, credentials);
        }
        let body = if self.has_body { Some(self.request.body.as_slice()) } else { None };
        let sent = match body {
            Some(body) => self.run(builder.body(body).map_err(bad_header)?, left),
            None => self.run(builder.body(()).map_err(bad_header)?, left),
        };
        let response = match sent {
            // Only connecting timed out; there may be time for another attempt.
            Err(ureq::Error::Timeout(_)) if Instant::now() < self.deadline => {
                return Err(AttemptError::Transient("could not connect to server"));
            }
            sent => sent.map_err(AttemptError::of)?,
        };
        for line in response.headers().get_all(SET_COOKIE) {
            if let Ok(line) = line.to_str() {
                self.context.jar.lock().take(line, &self.url);
            }
        }
        Ok(response)
    }

    /// Headers about a body are only sent with the body, and secrets only to the first server.
    fn is_sent(&self, name: &str) -> bool {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let about_body = is("content-type") || is("content-length") || is("content-encoding");
        let secret = is("authorization") || is("cookie");
        let moved = self.method != self.request.method;
        !(about_body && moved) && (self.on_first_server || !secret)
    }

    fn run(
        &self,
        request: Request<impl ureq::AsSendBody>,
        left: Duration,
    ) -> Result<Response<Body>, ureq::Error> {
        let tls = TlsConfig::builder().disable_verification(!self.request.verify).build();
        let request = self
            .context
            .agent
            .configure_request(request)
            .tls_config(tls)
            .timeout_global(Some(left))
            .timeout_connect(Some(left.min(CONNECT_TIMEOUT_MAX)))
            .max_response_header_size(HEADER_BYTES_MAX)
            .build();
        self.context.agent.run(request)
    }

    fn read(&self, response: Response<Body>) -> Result<HttpResponse, AttemptError> {
        let (head, body) = response.into_parts();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = head.headers.iter();
        let headers =
            headers.map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect();
        let body = read_body(body, self.request.body_bytes_max)?;
        Ok(HttpResponse { status: head.status.as_u16(), headers, body })
    }
}

/// Reads a body of at most `bytes_max` bytes, counted after decompression: a small compressed body may expand to any
/// size.
fn read_body(body: Body, bytes_max: u64) -> Result<Vec<u8>, AttemptError> {
    let mut bytes = Vec::new();
    let mut reader = body.into_with_config().reader().take(bytes_max.saturating_add(1));
    reader.read_to_end(&mut bytes).map_err(|error| AttemptError::of(error.into()))?;
    match u64::try_from(bytes.len()).is_ok_and(|length| length <= bytes_max) {
        true => Ok(bytes),
        false => Err(AttemptError::failed(format!("the body is larger than {bytes_max} bytes"))),
    }
}

fn bad_header(error: ureq::http::Error) -> AttemptError {
    AttemptError::failed(format!("the request cannot be sent: {error}"))
}
