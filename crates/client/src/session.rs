//! A blocking connection that carries several queries at once.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::dial::{DialError, GREETING_SECONDS_MAX, dial};
use crate::frame;
use crate::handshake::{Login, greet};
use crate::transport::{TlsSettings, Transport};

/// Bytes of one read.
const CHUNK_BYTES: usize = 64 * 1024;

/// A server, and how to log in there.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Host name or address, without brackets.
    pub host: String,
    /// Driver port.
    pub port: u16,
    pub login: Login,
    /// For a server that requires TLS.
    pub tls: Option<TlsSettings>,
}

impl Endpoint {
    /// `host:port`, with an IPv6 address in brackets.
    pub fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// A response: the token of its query, and its JSON.
#[derive(Debug)]
pub struct Response {
    pub token: u64,
    pub body: Vec<u8>,
}

/// A logged-in connection. Queries have tokens; responses come in any order.
pub struct Session {
    transport: Transport,
    token: u64,
    received: Vec<u8>,
    /// The server's version text.
    pub server_version: String,
}

impl Session {
    /// Connects and logs in. Fails if no server answers, if it refuses the login, or if that takes more than a minute.
    pub fn connect(endpoint: &Endpoint) -> Result<Session, DialError> {
        Session::connect_within(endpoint, GREETING_SECONDS_MAX)
    }

    /// [`Session::connect`] with another bound of each wait during the login.
    pub fn connect_within(endpoint: &Endpoint, most: Duration) -> Result<Session, DialError> {
        let address = endpoint.address();
        let unreachable = |source| DialError::Unreachable { address: address.clone(), source };
        let stream = dial(&address)?;
        let transport = match &endpoint.tls {
            None => Transport::Plain(stream),
            Some(tls) => tls.wrap(&endpoint.host, stream).map_err(unreachable)?,
        };
        Session::log_in(transport, &address, &endpoint.login, most)
    }

    /// Logs in over an open transport to `address`. Fails as [`Session::connect`].
    pub fn over(transport: Transport, address: &str, login: &Login) -> Result<Session, DialError> {
        Session::log_in(transport, address, login, GREETING_SECONDS_MAX)
    }

    fn log_in(
        mut transport: Transport,
        address: &str,
        login: &Login,
        most: Duration,
    ) -> Result<Session, DialError> {
        let unreachable = |source| DialError::Unreachable { address: address.to_owned(), source };
        transport.set_read_timeout(Some(most)).map_err(unreachable)?;
        let server_version = greet(&mut transport, login)
            .map_err(|source| DialError::Greeting { address: address.to_owned(), source })?;
        transport.set_read_timeout(None).map_err(unreachable)?;
        Ok(Session { transport, token: 0, received: Vec::new(), server_version })
    }

    /// Bounds the wait of [`Session::receive`]; `None` waits for ever. Fails with the system's error.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.transport.set_read_timeout(timeout)
    }

    /// Sends a query (its JSON, `[1,term,options]`) under a new token and returns that. Fails if the connection is lost.
    pub fn send(&mut self, query: &[u8]) -> io::Result<u64> {
        self.token += 1;
        self.send_as(self.token, query)?;
        Ok(self.token)
    }

    /// Asks for the next batch of a stream. Fails if the connection is lost.
    pub fn send_continue(&mut self, token: u64) -> io::Result<()> {
        self.send_as(token, b"[2]")
    }

    /// Ends a stream; the server responds once more. Fails if the connection is lost.
    pub fn send_stop(&mut self, token: u64) -> io::Result<()> {
        self.send_as(token, b"[3]")
    }

    /// Waits for the next response, of any query. Fails if the connection is lost, and with `WouldBlock` or `TimedOut` after the
    /// time of [`Session::set_timeout`]; it may be called again then.
    pub fn receive(&mut self) -> io::Result<Response> {
        loop {
            if let Some(found) = frame::first(&self.received) {
                let (token, used, body) = (found.token, found.bytes(), found.body.to_vec());
                self.received.drain(..used);
                return Ok(Response { token, body });
            }
            let filled = self.received.len();
            let wanted = frame::missing(&self.received).max(CHUNK_BYTES);
            self.received.resize(filled + wanted, 0);
            let read = self.transport.read(&mut self.received[filled..]);
            self.received.truncate(filled + read.as_ref().map_or(0, |n| *n));
            if read? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends a query and waits for its first response. For sessions with one query at a time. Fails if the connection is lost.
    pub fn exchange(&mut self, query: &[u8]) -> io::Result<Response> {
        self.send(query)?;
        self.receive()
    }

    fn send_as(&mut self, token: u64, query: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(query.len() + frame::HEADER_BYTES);
        frame::push(&mut bytes, token, |out| out.extend_from_slice(query));
        self.transport.write_all(&bytes)?;
        self.transport.flush()
    }
}
