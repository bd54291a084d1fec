//! Failures of a request in the words that RethinkDB's users know, which were libcurl's.

use std::io::ErrorKind;

use query::HttpFailure;
use ureq::Error;

/// All addresses of a name are private ones.
#[derive(Debug, thiserror::Error)]
#[error(
    "the address is private (this server reaches public addresses only unless it is started with \
     --http-allow-private)"
)]
pub(super) struct PrivateAddress;

/// What went wrong, and whether it may go well the next time.
pub(super) enum Trouble {
    /// It may go well the next time.
    Passing(&'static str),
    /// It will not.
    Final(HttpFailure),
}

impl Trouble {
    /// A failure that trying again does not mend.
    pub(super) fn failed(why: impl Into<String>) -> Trouble {
        Trouble::Final(HttpFailure::Failed(why.into()))
    }

    /// What `error` is.
    pub(super) fn of(error: Error) -> Trouble {
        match error {
            Error::Timeout(_) => Trouble::Final(HttpFailure::TimedOut),
            Error::HostNotFound => Trouble::failed("Couldn't resolve host name"),
            Error::Io(error) => Trouble::of_io(&error),
            Error::ConnectionFailed => Trouble::Passing("could not connect to server"),
            Error::Protocol(_) => Trouble::Passing("error when receiving data"),
            Error::Rustls(error) => Trouble::of_tls(&error),
            Error::Tls(why) => Trouble::failed(why),
            Error::BadUri(_) | Error::Http(_) => {
                Trouble::failed("URL using bad/illegal format or missing URL")
            }
            Error::Other(why) => Trouble::failed(why.to_string()),
            other => Trouble::failed(other.to_string()),
        }
    }

    fn of_io(error: &std::io::Error) -> Trouble {
        if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Trouble::of_tls(inner);
        }
        match error.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::AddrNotAvailable => Trouble::Passing("could not connect to server"),
            ErrorKind::BrokenPipe => Trouble::Passing("error when sending data"),
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::UnexpectedEof => {
                Trouble::Passing("error when receiving data")
            }
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Trouble::Final(HttpFailure::TimedOut),
            // What the resolver of the system says of a name it does not know.
            _ if error.to_string().contains("lookup") => Trouble::failed("Couldn't resolve host name"),
            _ => Trouble::failed(error.to_string()),
        }
    }

    fn of_tls(error: &rustls::Error) -> Trouble {
        match error {
            rustls::Error::InvalidCertificate(_) => {
                Trouble::failed("Peer certificate cannot be authenticated with given CA certificates")
            }
            _ => Trouble::failed(format!("SSL connect error: {error}")),
        }
    }
}
