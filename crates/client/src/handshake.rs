//! The V1_0 handshake on a blocking stream.

use std::io::{Read, Write};

use protocol::handshake::{ClientHandshake, ClientStep, HandshakeFailed};

/// No server sends more than this during a handshake.
const MESSAGES_BYTES_MAX: usize = 64 * 1024;

/// User and password.
#[derive(Clone, Debug)]
pub struct Login {
    pub user: String,
    /// Password; empty for a user without one.
    pub password: String,
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// The connection was lost.
    #[error("the connection broke during the handshake")]
    Io(#[from] std::io::Error),
    /// The server rejected the login; the message points to `--user` and `--password`.
    #[error("the server refused the login of user `{user}`: {message}")]
    Refused {
        user: String,
        /// The server's message.
        message: String,
    },
    /// The server does not know the protocol, or could not prove that it knows the password.
    #[error("the handshake failed")]
    Failed(#[source] HandshakeFailed),
    /// The server does not know the protocol.
    #[error("this is not a server of the RethinkDB protocol")]
    NotOurProtocol,
}

/// Logs in and returns the server's version text.
///
/// Blocking: two round trips. Then the stream is ready for frames.
pub fn greet(stream: &mut (impl Read + Write), login: &Login) -> Result<String, GreetError> {
    let nonce = format!("{:032x}", rand::random::<u128>());
    let mut out = Vec::new();
    let mut handshake = ClientHandshake::start(&login.user, &login.password, &nonce, &mut out);
    let mut input = Vec::new();
    let mut chunk = [0; 2048];
    loop {
        stream.write_all(&out)?;
        stream.flush()?;
        out.clear();
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        input.extend_from_slice(&chunk[..read]);
        let (used, step) = handshake.advance(&input, &mut out).map_err(|failed| match failed {
            HandshakeFailed::Refused { text, .. } => {
                GreetError::Refused { user: login.user.clone(), message: text }
            }
            failed => GreetError::Failed(failed),
        })?;
        input.drain(..used);
        if let ClientStep::Established { server_version } = step {
            return Ok(server_version);
        }
        if input.len() > MESSAGES_BYTES_MAX {
            return Err(GreetError::NotOurProtocol);
        }
    }
}
