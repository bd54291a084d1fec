//! The console: its files, logins and sessions, and the connections that its pages open.
//!
//! Each request passes [`guard`], which checks the name of the host and the origin of the page. Without a session only files and
//! the login are served.

mod ajax;
mod ajax_connection;
mod assets;
mod login;
mod origin;
mod policy;
mod sessions;
mod socket;
mod throttle;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ::io::Random;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use protocol::frame::{HEADER_BYTES, REQUEST_BYTES_MAX};
use protocol::handshake::Accounts;
use protocol::scram::PasswordRecord;
use tokio::io::DuplexStream;

use crate::config::Config;
use crate::service::Client;
use crate::worker::Workers;
use crate::worker_state::Shared;
use ajax_connection::AjaxConnections;
use assets::{Assets, Policy};
use login::Logins;
use origin::HostNames;
use sessions::{SessionKey, Sessions};

/// Bytes between a page's connection and its worker, in each direction.
const PIPE_BYTES: usize = 256 << 10;

/// The largest body of a login.
const LOGIN_BYTES_MAX: usize = 8 << 10;

/// The part of the node that runs a page's queries.
pub struct Backend {
    /// Runs the queries, and knows the passwords.
    pub shared: Arc<Shared>,
    /// Serve the connections.
    pub workers: Arc<Workers>,
    pub random: Arc<dyn Random>,
}

impl Backend {
    fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes);
        bytes
    }
}

/// The state of the console.
pub struct Console {
    assets: Assets,
    hosts: HostNames,
    /// Whether only this machine can connect.
    is_local: bool,
    is_encrypted: bool,
    cookie_name: String,
    sessions: Sessions,
    logins: Logins,
    ajax: AjaxConnections,
    backend: OnceLock<Backend>,
    random: Arc<dyn Random>,
}

type SharedConsole = State<Arc<Console>>;

impl Console {
    /// The console at `port`. Fails if the folder of `--web-static-directory` has no page.
    pub fn new(config: &Config, port: u16, hostname: &str, random: Arc<dyn Random>) -> io::Result<Console> {
        let http = config.http.as_ref();
        Ok(Console {
            assets: Assets::new(config.web_static_directory.as_deref())?,
            hosts: HostNames::new(config, hostname),
            is_local: http.is_some_and(|http| http.is_local()),
            is_encrypted: http.is_some_and(|http| http.tls.is_some()),
            // Browsers send a cookie to all ports of a host.
            cookie_name: format!("rekindle_session_{port}"),
            sessions: Sessions::default(),
            logins: Logins::default(),
            ajax: AjaxConnections::default(),
            backend: OnceLock::new(),
            random,
        })
    }

    /// From now on pages can log in. Only the first call has an effect.
    pub fn open(&self, backend: Backend) {
        drop(self.backend.set(backend));
    }

    fn backend(&self) -> Option<&Backend> {
        self.backend.get()
    }

    /// Whether `admin`, with this record, needs no login.
    fn is_open(&self, record: &PasswordRecord) -> bool {
        self.is_local && record.is_empty
    }

    /// The value of a `Set-Cookie` header.
    fn cookie(&self, value: &str) -> String {
        let secure = if self.is_encrypted { "; Secure" } else { "" };
        format!("{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}", self.cookie_name)
    }

    /// The session that a request names.
    fn session_key(&self, headers: &HeaderMap) -> Option<SessionKey> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|cookies| cookies.split(';'));
        cookies.find_map(|cookie| {
            let (name, value) = cookie.trim().split_once('=')?;
            (name == self.cookie_name).then(|| SessionKey::from_hex(value)).flatten()
        })
    }

    /// The user of a request's session.
    fn user(&self, headers: &HeaderMap) -> Option<String> {
        let backend = self.backend()?;
        let key = self.session_key(headers)?;
        self.sessions.user(key, |user| backend.shared.password(user), Instant::now())
    }

    /// Opens a connection as the user of a request's session.
    fn connect(&self, headers: &HeaderMap, address: SocketAddr) -> Option<DuplexStream> {
        let backend = self.backend()?;
        let user = self.user(headers)?;
        let (page, connection) = tokio::io::duplex(PIPE_BYTES);
        backend.workers.assign_session(connection, Client { user, address });
        Some(page)
    }

    fn fresh_nonce(&self) -> String {
        let mut nonce = [0; 16];
        self.random.fill(&mut nonce);
        nonce.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The routes of the console.
pub fn router(console: Arc<Console>) -> Router {
    let logins = Router::new()
        .route("/api/login/begin", post(login::begin))
        .route("/api/login/finish", post(login::finish))
        .route("/api/login/open", post(login::open))
        .route("/api/logout", post(login::logout))
        .layer(DefaultBodyLimit::max(LOGIN_BYTES_MAX));
    let queries = Router::new()
        .route("/api/reql", get(socket::upgrade))
        .route("/ajax/reql/open-new-connection", post(ajax::open))
        .route("/ajax/reql/close-connection", post(ajax::close))
        .route("/ajax/reql/", post(ajax::query))
        .layer(DefaultBodyLimit::max(HEADER_BYTES + REQUEST_BYTES_MAX));
    Router::new()
        .route("/api/session", get(login::session))
        .merge(logins)
        .merge(queries)
        .fallback(get(file))
        .layer(from_fn_with_state(console.clone(), guard))
        .with_state(console)
}

async fn file(State(console): SharedConsole, request: Request) -> Response {
    let nonce = console.fresh_nonce();
    let (mut response, policy) = console.assets.answer(request.uri().path(), request.headers(), &nonce).await;
    policy::protect(response.headers_mut(), &policy);
    response
}

/// Refuses requests for another host and from other pages, and protects the answers.
async fn guard(State(console): SharedConsole, request: Request, next: Next) -> Response {
    let mut response = match refusal(&console, &request) {
        Some(refused) => refused.into_response(),
        None => next.run(request).await,
    };
    if !response.headers().contains_key(header::CONTENT_SECURITY_POLICY) {
        policy::protect(response.headers_mut(), &Policy::File);
    }
    response
}

fn refusal(console: &Console, request: &Request) -> Option<(StatusCode, String)> {
    let host = origin::host(request.headers()).unwrap_or_default();
    if !console.hosts.allows(host) {
        let shown: String = host.chars().filter(|c| !c.is_control()).take(100).collect();
        let text = format!(
            "This server does not answer under the name {shown:?}. Use its address, or start it with \
             --http-allowed-host NAME.\n"
        );
        return Some((StatusCode::MISDIRECTED_REQUEST, text));
    }
    let is_socket = request.headers().contains_key(header::UPGRADE);
    let has_effect = is_socket || ![Method::GET, Method::HEAD].contains(request.method());
    if has_effect && !origin::is_own(request.headers()) {
        let text = "Only pages of this server may send this request: its Origin is another one.\n".to_owned();
        return Some((StatusCode::FORBIDDEN, text));
    }
    None
}

fn starting() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "The server is starting; see /health.\n").into_response()
}

fn log_in_first() -> Response {
    (StatusCode::UNAUTHORIZED, "Log in first.\n").into_response()
}
