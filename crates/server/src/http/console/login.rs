//! Logging in: SCRAM in two posts, so that the password does not travel, and the cookie that names the session.
//!
//! The first post carries the browser's first message and is answered with the number of the exchange and the server's first
//! message, each on a line. The second carries the number and the browser's proof, and is answered with the server's proof.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use datum::Datum;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use protocol::handshake::{Accounts, Randomness};
use protocol::scram::{Challenge, PasswordRecord, ServerExchange};

use super::sessions::SessionKey;
use super::throttle::{Throttle, Visitor};
use super::{Backend, SharedConsole, starting};

/// How long a browser may take between the two posts.
const EXCHANGE_MAX: Duration = Duration::from_secs(60);

/// Logins that wait for their second post.
const EXCHANGES_MAX: usize = 1_000;

/// The user that may log in without a password while it has none.
const ADMIN: &str = "admin";

/// The logins in progress, and the failed ones.
#[derive(Default)]
pub(super) struct Logins {
    exchanges: Mutex<HashMap<String, Pending, RandomState>>,
    throttle: Throttle,
}

/// A login that waits for the second post.
struct Pending {
    exchange: ServerExchange,
    user: String,
    /// The record against which the proof is checked; `None` for an unknown user.
    record: Option<PasswordRecord>,
    began: Instant,
}

impl Logins {
    fn add(&self, number: String, pending: Pending) -> bool {
        let mut exchanges = self.exchanges.lock();
        if exchanges.len() >= EXCHANGES_MAX {
            exchanges.retain(|_, pending| pending.began.elapsed() < EXCHANGE_MAX);
        }
        let has_room = exchanges.len() < EXCHANGES_MAX;
        if has_room {
            exchanges.insert(number, pending);
        }
        has_room
    }

    fn take(&self, number: &str) -> Option<Pending> {
        let pending = self.exchanges.lock().remove(number)?;
        (pending.began.elapsed() < EXCHANGE_MAX).then_some(pending)
    }
}

/// The first post.
pub(super) async fn begin(State(console): SharedConsole, body: String) -> Response {
    let Some(backend) = console.backend() else { return starting() };
    let challenge = match Challenge::parse(body.trim()) {
        Ok(challenge) => challenge,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("{error}.")),
    };
    let user = challenge.user().to_owned();
    let Randomness { nonce, decoy } = backend.shared.randomness();
    let record = backend.shared.password(&user);
    let exchange = challenge.answer(record.clone(), &decoy, &hex(&nonce));
    let number = hex(&backend.random_bytes::<16>());
    let answer = format!("{number}\n{}", exchange.server_first());
    match console.logins.add(number, Pending { exchange, user, record, began: Instant::now() }) {
        true => answer.into_response(),
        false => refuse(StatusCode::TOO_MANY_REQUESTS, "Too many logins at once. Try again in a minute."),
    }
}

/// The second post. An attempt after failed ones is answered late.
pub(super) async fn finish(
    State(console): SharedConsole,
    Extension(address): Extension<SocketAddr>,
    body: String,
) -> Response {
    let Some(backend) = console.backend() else { return starting() };
    let (number, client_final) = body.split_once('\n').unwrap_or_default();
    let Some(pending) = console.logins.take(number.trim()) else {
        return refuse(StatusCode::BAD_REQUEST, "This login has taken too long. Try again.");
    };
    let visitor: Visitor = (address.ip().to_canonical(), pending.user.clone());
    if let Err(left) = wait_for_turn(&console.logins.throttle, &visitor).await {
        let text = format!("Too many failed logins. Try again in {} seconds.", left.as_secs() + 1);
        return refuse(StatusCode::TOO_MANY_REQUESTS, &text);
    }
    match (pending.exchange.finish(client_final.trim()), pending.record) {
        (Ok((user, server_final)), Some(record)) => {
            console.logins.throttle.succeeded(&visitor);
            let cookie = open_session(&console, backend, user, record);
            ([(header::SET_COOKIE, cookie)], server_final).into_response()
        }
        _ => {
            tracing::warn!("a login to the console from {} failed", address.ip());
            refuse(StatusCode::UNAUTHORIZED, "Wrong user name or password.")
        }
    }
}

/// Waits as earlier failures demand. Fails, with the time for which attempts are refused, if that is too long.
async fn wait_for_turn(throttle: &Throttle, visitor: &Visitor) -> Result<(), Duration> {
    let wait = throttle.attempt(visitor, Instant::now())?;
    tokio::time::sleep(wait).await;
    Ok(())
}

/// Begins a session of `admin` without a login, while that is allowed.
pub(super) async fn open(State(console): SharedConsole) -> Response {
    let Some(backend) = console.backend() else { return starting() };
    match backend.shared.password(ADMIN).filter(|record| console.is_open(record)) {
        Some(record) => {
            let cookie = open_session(&console, backend, ADMIN.to_owned(), record);
            ([(header::SET_COOKIE, cookie)], "ok").into_response()
        }
        None => refuse(StatusCode::UNAUTHORIZED, "Log in first."),
    }
}

/// Ends the session.
pub(super) async fn logout(State(console): SharedConsole, headers: HeaderMap) -> Response {
    if let Some(key) = console.session_key(&headers) {
        console.sessions.end(key);
    }
    let cookie = format!("{}; Max-Age=0", console.cookie(""));
    ([(header::SET_COOKIE, cookie)], "ok").into_response()
}

/// The user of the session, and whether a login is needed.
pub(super) async fn session(State(console): SharedConsole, headers: HeaderMap) -> Response {
    let Some(backend) = console.backend() else { return starting() };
    let text = |value: &str| Datum::from(value).to_json_string();
    let is_open = backend.shared.password(ADMIN).is_some_and(|record| console.is_open(&record));
    let info = backend.shared.service.server_info();
    let (status, user) = match console.user(&headers) {
        Some(user) => (StatusCode::OK, text(&user)),
        None => (StatusCode::UNAUTHORIZED, "null".to_owned()),
    };
    // Names of servers need a login.
    let server = if status == StatusCode::OK { text(&info.name) } else { "null".to_owned() };
    let body = format!(
        "{{\"user\":{user},\"open\":{is_open},\"server\":{server},\"version\":{},\"files\":{}}}\n",
        text(env!("CARGO_PKG_VERSION")),
        text(&console.assets.version()),
    );
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn open_session(
    console: &super::Console,
    backend: &Backend,
    user: String,
    record: PasswordRecord,
) -> HeaderValue {
    let key = SessionKey(backend.random_bytes());
    console.sessions.begin(key, user, record, Instant::now());
    HeaderValue::from_str(&console.cookie(&key.to_hex())).unwrap_or(HeaderValue::from_static(""))
}

fn refuse(status: StatusCode, text: &str) -> Response {
    (status, format!("{text}\n")).into_response()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
