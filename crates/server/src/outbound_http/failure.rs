//! Errors of a request in the words that RethinkDB's users know, which are libcurl's.

use std::io::ErrorKind;

use query::HttpFailure;
use ureq::Error;

/// All addresses of a host name are private.
#[derive(Debug, thiserror::Error)]
#[error(
    "the address is private (this server reaches public addresses only unless it is started with \
     --http-allow-private)"
)]
pub(super) struct PrivateAddress;

/// Why an attempt failed, and whether to retry.
pub(super) enum AttemptError {
    /// A retry may succeed.
    Transient(&'static str),
    /// A retry is pointless.
    Permanent(HttpFailure),
}

impl AttemptError {
    /// A permanent failure.
    pub(super) fn failed(why: impl Into<String>) -> AttemptError {
        AttemptError::Permanent(HttpFailure::Failed(why.into()))
    }

    /// Classifies `error`.
    pub(super) fn of(error: Error) -> AttemptError {
        match error {
            Error::Timeout(_) => AttemptError::Permanent(HttpFailure::TimedOut),
            Error::HostNotFound => AttemptError::failed("Couldn't resolve host name"),
            Error::Io(error) => AttemptError::of_io(&error),
            Error::ConnectionFailed => AttemptError::Transient("could not connect to server"),
            Error::Protocol(_) => AttemptError::Transient("error when receiving data"),
            Error::Rustls(error) => AttemptError::of_tls(&error),
            Error::Tls(why) => AttemptError::failed(why),
            Error::BadUri(_) | Error::Http(_) => {
                AttemptError::failed("URL using bad/illegal format or missing URL")
            }
            Error::Other(why) => AttemptError::failed(why.to_string()),
            other => AttemptError::failed(other.to_string()),
        }
    }

    fn of_io(error: &std::io::Error) -> AttemptError {
        if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return AttemptError::of_tls(inner);
        }
        match error.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::AddrNotAvailable => AttemptError::Transient("could not connect to server"),
            ErrorKind::BrokenPipe => AttemptError::Transient("error when sending data"),
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::UnexpectedEof => {
                AttemptError::Transient("error when receiving data")
            }
            ErrorKind::TimedOut | ErrorKind::WouldBlock => AttemptError::Permanent(HttpFailure::TimedOut),
            // The system resolver's error for a host name it does not know.
            _ if error.to_string().contains("lookup") => AttemptError::failed("Couldn't resolve host name"),
            _ => AttemptError::failed(error.to_string()),
        }
    }

    fn of_tls(error: &rustls::Error) -> AttemptError {
        match error {
            rustls::Error::InvalidCertificate(_) => {
                AttemptError::failed("Peer certificate cannot be authenticated with given CA certificates")
            }
            _ => AttemptError::failed(format!("SSL connect error: {error}")),
        }
    }
}
