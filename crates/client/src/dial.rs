//! Opens connections, and says why one could not be opened.

use std::net::TcpStream;
use std::time::Duration;

use crate::handshake::{GreetError, Login, greet};
use crate::transport;

/// A hanging server may accept connections and not respond. One with a small share of a core needs some seconds for a
/// login.
pub(crate) const GREETING_SECONDS_MAX: Duration = Duration::from_secs(60);

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
    transport::dial(address).map_err(|source| DialError::Unreachable { address: address.to_owned(), source })
}

/// Opens a connection and logs in; returns it with the server's version text. Fails if the handshake takes more than a
/// minute.
pub fn dial_and_greet(address: &str, login: &Login) -> Result<(TcpStream, String), DialError> {
    let mut stream = dial(address)?;
    let unreachable = |source| DialError::Unreachable { address: address.to_owned(), source };
    stream.set_read_timeout(Some(GREETING_SECONDS_MAX)).map_err(unreachable)?;
    match greet(&mut stream, login) {
        Ok(version) => {
            stream.set_read_timeout(None).map_err(unreachable)?;
            Ok((stream, version))
        }
        Err(source) => Err(DialError::Greeting { address: address.to_owned(), source }),
    }
}
