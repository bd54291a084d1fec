//! A server of either side: connections that are opened again, and queries with typed errors.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::answer::{self, Failure, FailureKind, PARTIAL, RawAnswer};
use client::dial::DialError;
use client::handshake::GreetError;
use client::{Endpoint, Session};
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{MigrateError, Side};
use crate::queries;

/// A query without a response for this long is given up, with its connection. A digest of many rows on a busy server takes some
/// seconds.
const RESPONSE_SECONDS_MAX: Duration = Duration::from_secs(300);
/// A server that accepts a connection and says nothing for this long is none that may be used.
const GREETING_MAX: Duration = Duration::from_secs(10);
/// Waits between attempts.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// A request to all threads to end.
#[derive(Clone, Default, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits for `time`, or until the end is requested.
    pub fn pause(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(50);
        let until = Instant::now() + time;
        while !self.is_requested() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(STEP));
        }
    }
}

/// One side: where it is, and for how long it may be away.
#[derive(Clone, Debug)]
pub struct Server {
    pub side: Side,
    pub endpoint: Endpoint,
    pub patience: Duration,
    /// Says that the side is away, or back; shared by all connections.
    pub outage: Arc<Outage>,
    /// Whether a login has succeeded; shared by all connections.
    was_open: Arc<AtomicBool>,
}

/// Whether one side is away, so that each outage is reported once.
#[derive(Debug, Default)]
pub struct Outage(Mutex<bool>);

impl Outage {
    fn begins(&self) -> bool {
        !std::mem::replace(&mut *self.0.lock(), true)
    }

    fn ends(&self) -> bool {
        std::mem::replace(&mut *self.0.lock(), false)
    }
}

impl Server {
    /// `patience`: the longest outage that is waited for.
    pub fn new(side: Side, endpoint: Endpoint, patience: Duration) -> Server {
        Server { side, endpoint, patience, outage: Arc::default(), was_open: Arc::default() }
    }

    /// Opens a connection. Fails if no server answers, or if it refuses the login.
    pub fn connect(&self) -> Result<Connection, MigrateError> {
        let session = Session::connect_within(&self.endpoint, GREETING_MAX)
            .map_err(|error| of_dial(self.side, error, self.was_open.load(Ordering::Relaxed)))?;
        self.was_open.store(true, Ordering::Relaxed);
        let connection = Connection { side: self.side, session };
        connection.set_timeout(Some(RESPONSE_SECONDS_MAX))?;
        Ok(connection)
    }

    /// A connection that is opened when it is needed, and again when it was lost.
    pub fn line(&self) -> Line {
        Line { server: self.clone(), connection: None }
    }
}

/// A connection that survives the loss of its server.
pub struct Line {
    server: Server,
    connection: Option<Connection>,
}

impl Line {
    pub fn side(&self) -> Side {
        self.server.side
    }

    /// Runs `work`, again and again while it fails for a reason that may pass: a lost connection, an election, a full disk. `work` may
    /// be repeated after it took effect. Fails when that has lasted for the patience of the server, and at once for other reasons.
    pub fn run<T>(
        &mut self,
        stop: &Stop,
        mut work: impl FnMut(&mut Connection) -> Result<T, MigrateError>,
    ) -> Result<T, MigrateError> {
        let (started, mut backoff) = (Instant::now(), BACKOFF_MIN);
        loop {
            let outcome = self.connected().and_then(&mut work);
            let error = match outcome {
                Ok(value) => {
                    if backoff > BACKOFF_MIN && self.server.outage.ends() {
                        eprintln!("{}: answers again", self.server.side);
                    }
                    return Ok(value);
                }
                Err(error) => error,
            };
            if !matches!(error, MigrateError::Query { .. }) {
                self.connection = None;
            }
            let is_over = started.elapsed() > self.server.patience || stop.is_requested();
            if !error.is_temporary() || is_over {
                return Err(error);
            }
            if self.server.outage.begins() {
                eprintln!("{error}; trying again");
            }
            stop.pause(backoff);
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    fn connected(&mut self) -> Result<&mut Connection, MigrateError> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            empty => Ok(empty.insert(self.server.connect()?)),
        }
    }
}

/// Errors of single rows of a write.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WriteResult {
    /// Rows that were refused.
    pub errors: u64,
    /// Rows that were there already, to the server's mind.
    pub unchanged: u64,
    /// Why the first of them was.
    pub first_error: Option<String>,
}

/// An open connection.
pub struct Connection {
    side: Side,
    session: Session,
}

impl Connection {
    pub fn side(&self) -> Side {
        self.side
    }

    pub fn server_version(&self) -> &str {
        &self.session.server_version
    }

    /// Bounds the wait for a response. Fails with the system's error.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<(), MigrateError> {
        self.session.set_timeout(timeout).map_err(|source| self.lost(source))
    }

    /// Runs a query and returns its value; a stream as an array.
    ///
    /// `what` names the query in errors. Fails with the server's error, or when the connection is lost.
    pub fn ask(&mut self, what: &str, term: &Value) -> Result<Value, MigrateError> {
        self.ask_text(what, &term.to_string())
    }

    /// [`Connection::ask`] with the term's JSON.
    pub fn ask_text(&mut self, what: &str, term: &str) -> Result<Value, MigrateError> {
        let mut rows = Vec::new();
        let parse = |row: &RawValue| serde_json::from_str(row.get()).unwrap_or_default();
        let is_atom = self.stream(what, term, |part| {
            rows.extend(part.iter().map(|row| parse(row)));
            GoOn::Yes
        })?;
        Ok(match is_atom {
            true => rows.pop().unwrap_or_default(),
            false => Value::Array(rows),
        })
    }

    /// Runs a query and gives its results as text, batch by batch, until `each` says that it has enough. Returns whether the result is
    /// one value and not a stream. Fails as [`Connection::ask`].
    pub fn stream(
        &mut self,
        what: &str,
        term: &str,
        mut each: impl FnMut(&[&RawValue]) -> GoOn,
    ) -> Result<bool, MigrateError> {
        let query = queries::start(term, r#"{"array_limit":100000000}"#);
        let token = self.session.send(&query).map_err(|source| self.lost(source))?;
        let mut wants_more = true;
        loop {
            let response = self.session.receive().map_err(|source| self.lost(source))?;
            let answer = self.parsed(what, &response.body)?;
            if wants_more {
                wants_more = each(&answer.r) == GoOn::Yes;
            }
            if answer.t != PARTIAL {
                return Ok(answer.t == answer::ATOM);
            }
            let sent = match wants_more {
                true => self.session.send_continue(token),
                false => self.session.send_stop(token),
            };
            sent.map_err(|source| self.lost(source))?;
        }
    }

    /// Runs writes at once, and returns what each did, in their order. Fails with the first error that is not one of single rows.
    pub fn write(&mut self, what: &str, terms: &[String]) -> Result<Vec<WriteResult>, MigrateError> {
        let mut first = None;
        for term in terms {
            let token = self.session.send(&queries::start(term, r#"{"array_limit":100000000}"#));
            let token = token.map_err(|source| self.lost(source))?;
            first.get_or_insert(token);
        }
        let first = first.unwrap_or_default();
        let mut results = vec![WriteResult::default(); terms.len()];
        let mut failed = None;
        for _ in terms {
            let response = self.session.receive().map_err(|source| self.lost(source))?;
            let outcome = self.parsed(what, &response.body).map(|answer| write_result(&answer));
            let place = usize::try_from(response.token.wrapping_sub(first)).unwrap_or(usize::MAX);
            match (outcome, results.get_mut(place)) {
                (Ok(result), Some(place)) => *place = result,
                (Ok(_), None) => {}
                // The responses of the others are still to be read.
                (Err(error), _) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(results), Err)
    }

    /// Name and id of the server. Fails as [`Connection::ask`].
    pub fn server_info(&mut self) -> Result<(String, String), MigrateError> {
        let response = self.session.exchange(b"[5]").map_err(|source| self.lost(source))?;
        let answer = self.parsed("server info", &response.body)?;
        let info: Value =
            answer.r.first().and_then(|r| serde_json::from_str(r.get()).ok()).unwrap_or_default();
        let text = |name: &str| info[name].as_str().unwrap_or_default().to_owned();
        Ok((text("name"), text("id")))
    }

    /// The session, for queries that run beside others.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Parses a response. Fails with the server's error.
    pub fn parsed<'a>(&self, what: &str, body: &'a [u8]) -> Result<RawAnswer<'a>, MigrateError> {
        let failed = |failure| MigrateError::Query { side: self.side, what: what.to_owned(), failure };
        answer::parse_raw(body).map_err(failed)
    }

    /// The error of a connection that was lost.
    pub fn lost(&self, source: std::io::Error) -> MigrateError {
        let source = match is_timeout(source.kind()) {
            true => Error::new(ErrorKind::TimedOut, "no answer in time"),
            false => source,
        };
        MigrateError::Lost { side: self.side, source }
    }
}

/// How a socket says that its time is over.
pub fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The error of a connection that could not be opened. `was_open`: an earlier one could.
fn of_dial(side: Side, error: DialError, was_open: bool) -> MigrateError {
    match error {
        DialError::Unreachable { address, source } => MigrateError::Unreachable { side, address, source },
        DialError::Greeting { address, source: GreetError::Io(source) } if is_timeout(source.kind()) => {
            let said = format!("no answer within {} s", GREETING_MAX.as_secs());
            MigrateError::Handshake { side, address, source: Error::new(ErrorKind::TimedOut, said) }
        }
        DialError::Greeting { address, source: GreetError::Io(source) } => {
            MigrateError::Handshake { side, address, source }
        }
        DialError::Greeting { address, source: GreetError::Refused { user, message } } if was_open => {
            MigrateError::LoginChanged { side, address, user, message }
        }
        DialError::Greeting { address, source } => MigrateError::Login { side, address, source },
    }
}

/// Whether more of a stream is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoOn {
    Yes,
    No,
}

fn write_result(answer: &RawAnswer<'_>) -> WriteResult {
    let result: Value = answer.r.first().and_then(|r| serde_json::from_str(r.get()).ok()).unwrap_or_default();
    WriteResult {
        errors: result["errors"].as_u64().unwrap_or(0),
        unchanged: result["unchanged"].as_u64().unwrap_or(0),
        first_error: result["first_error"].as_str().map(str::to_owned),
    }
}

/// A failure of ours that looks like the server's.
pub fn failure(side: Side, what: &str, message: impl Into<String>) -> MigrateError {
    let failure = Failure::new(FailureKind::WrongAnswer, message);
    MigrateError::Query { side, what: what.to_owned(), failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_says_nothing_is_named_so() {
        let greeting = |kind: ErrorKind| DialError::Greeting {
            address: "db:1".to_owned(),
            source: GreetError::Io(Error::from(kind)),
        };
        let silent = of_dial(Side::Source, greeting(ErrorKind::WouldBlock), false);
        assert!(silent.to_string().contains("no answer within 10 s") && silent.is_temporary(), "{silent}");
        let ended = of_dial(Side::Source, greeting(ErrorKind::UnexpectedEof), true).to_string();
        assert!(ended.contains("the handshake failed"), "{ended}");
    }

    #[test]
    fn a_login_that_is_refused_later_is_told_from_a_wrong_one() {
        let said = |side, was_open| {
            let source = GreetError::Refused { user: "ann".to_owned(), message: "Wrong password".to_owned() };
            let error = of_dial(side, DialError::Greeting { address: "db:1".to_owned(), source }, was_open);
            assert!(!error.is_temporary());
            error.to_string()
        };
        assert!(said(Side::Source, false).contains("check the user, the password file"));
        let later = said(Side::Source, true);
        assert!(later.starts_with("source db:1: the server refuses the login of user `ann`"), "{later}");
        assert!(later.contains("the file of --password-file,"), "{later}");
        assert!(said(Side::Target, true).contains("--to-password-file"));
    }
}
