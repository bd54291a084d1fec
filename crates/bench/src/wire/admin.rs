//! A blocking connection for unmeasured queries: creating tables, reading versions and side tables.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::{Value, json};

use super::answer::{self, Failure, PARTIAL};
use super::frame;
use super::handshake::{GreetError, Login, greet};
use crate::rng::Rng;

const CONNECT_SECONDS_MAX: Duration = Duration::from_secs(10);
/// A hanging server may accept connections and not respond. One with a small share of a core needs some seconds for a
/// login.
const GREETING_SECONDS_MAX: Duration = Duration::from_secs(60);

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No server answers at the address.
    #[error("no server answers at {address} (is it running? check --host and --port)")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The server rejects the login.
    #[error("could not log in at {address} (check --user and --password)")]
    Greeting {
        /// Host and port.
        address: String,
        /// The error of the handshake.
        #[source]
        source: GreetError,
    },
}

/// Opens a TCP connection with `TCP_NODELAY`.
pub fn dial(address: &str) -> Result<TcpStream, DialError> {
    let unreachable = |source| DialError::Unreachable { address: address.to_owned(), source };
    let mut last = std::io::Error::other("the host name has no address");
    for target in address.to_socket_addrs().map_err(unreachable)? {
        match TcpStream::connect_timeout(&target, CONNECT_SECONDS_MAX) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(unreachable)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(unreachable(last))
}

/// Opens a connection and logs in; returns it with the server's version text. Fails if the handshake takes more than a
/// minute.
pub fn dial_and_greet(address: &str, login: &Login, rng: &mut Rng) -> Result<(TcpStream, String), DialError> {
    let mut stream = dial(address)?;
    let unreachable = |source| DialError::Unreachable { address: address.to_owned(), source };
    stream.set_read_timeout(Some(GREETING_SECONDS_MAX)).map_err(unreachable)?;
    match greet(&mut stream, login, rng) {
        Ok(version) => {
            stream.set_read_timeout(None).map_err(unreachable)?;
            Ok((stream, version))
        }
        Err(source) => Err(DialError::Greeting { address: address.to_owned(), source }),
    }
}

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The server returned an error.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The connection was lost.
    #[error("the connection broke")]
    Io(#[from] std::io::Error),
}

/// A logged-in connection for one query at a time.
pub struct Admin {
    stream: TcpStream,
    token: u64,
    received: Vec<u8>,
    /// The server's version text.
    pub server_version: String,
}

impl Admin {
    /// Connects and logs in.
    pub fn connect(address: &str, login: &Login, rng: &mut Rng) -> Result<Self, DialError> {
        let (stream, server_version) = dial_and_greet(address, login, rng)?;
        Ok(Admin { stream, token: 0, received: Vec::new(), server_version })
    }

    /// Runs `term` and returns its value; for a stream, its first batch as an array.
    pub fn ask(&mut self, term: &Value) -> Result<Value, AskError> {
        self.ask_with(term, &json!({}))
    }

    /// [`Admin::ask`] with query options.
    pub fn ask_with(&mut self, term: &Value, options: &Value) -> Result<Value, AskError> {
        let mut rows = Vec::new();
        let t = self.start(term, options, |row| rows.push(row))?;
        if t == PARTIAL {
            self.exchange("[3]")?;
        }
        Ok(match t {
            answer::ATOM => rows.pop().unwrap_or(Value::Null),
            _ => Value::Array(rows),
        })
    }

    /// Runs `term` and calls `each` with every row of its stream.
    pub fn stream(&mut self, term: &Value, mut each: impl FnMut(Value)) -> Result<(), AskError> {
        let mut t = self.start(term, &json!({}), &mut each)?;
        while t == PARTIAL {
            let answer = self.exchange("[2]")?;
            t = answer.t;
            answer.r.into_iter().for_each(&mut each);
        }
        Ok(())
    }

    /// Name and id of the server.
    pub fn server_info(&mut self) -> Result<(Option<String>, Option<String>), AskError> {
        self.token += 1;
        let answer = self.exchange("[5]")?;
        let info = answer.r.first().cloned().unwrap_or(Value::Null);
        let text = |name: &str| info[name].as_str().map(str::to_owned);
        Ok((text("name"), text("id")))
    }

    fn start(&mut self, term: &Value, options: &Value, each: impl FnMut(Value)) -> Result<u8, AskError> {
        self.token += 1;
        let answer = self.exchange(&json!([1, term, options]).to_string())?;
        answer.r.into_iter().for_each(each);
        Ok(answer.t)
    }

    fn exchange(&mut self, query: &str) -> Result<answer::Answer, AskError> {
        let mut bytes = Vec::new();
        frame::push(&mut bytes, self.token, |out| out.extend_from_slice(query.as_bytes()));
        self.stream.write_all(&bytes)?;
        let mut chunk = vec![0u8; 64 * 1024];
        loop {
            if let Some(found) = frame::first(&self.received) {
                let parsed = answer::parse(found.body);
                let used = found.bytes();
                self.received.drain(..used);
                return Ok(parsed?);
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
                n => self.received.extend_from_slice(&chunk[..n]),
            }
        }
    }
}
