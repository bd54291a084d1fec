//! Errors that end a migration, or delay it.

use std::io;
use std::path::PathBuf;

use client::answer::{Failure, FailureKind};
use client::handshake::GreetError;

/// Which of the two servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Source,
    Target,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Side::Source => "source",
            Side::Target => "target",
        })
    }
}

/// An argument, a file or a state of the servers that does not allow the request. The text has the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InputError(String);

impl InputError {
    pub fn new(text: impl Into<String>) -> InputError {
        InputError(text.into())
    }
}

/// Why a step of a migration failed.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// No connection; it may come back.
    #[error("{side}: no server answers at {address}: {source}")]
    Unreachable { side: Side, address: String, source: io::Error },
    /// The connection ended before the login, or the server says nothing; it may come back.
    #[error(
        "{side} {address}: the handshake failed ({source}): is this the driver port (28015) of a \
         RethinkDB 2.3 or later, or of a Rekindle, and does it want TLS?"
    )]
    Handshake { side: Side, address: String, source: io::Error },
    /// The server is not one of the protocol, or does not let the user in.
    #[error("{side} {address}: {}", login_text(.source))]
    Login { side: Side, address: String, source: GreetError },
    /// The server let the user in when this run began, and does not any more.
    #[error(
        "{side} {address}: the server refuses the login of user `{user}`, which it accepted before ({message}): the password was \
         changed, or the user was deleted. Put the present password into the file of {}, and run the same command again: with the \
         same --state it goes on where it was",
        password_flag(*side)
    )]
    LoginChanged { side: Side, address: String, user: String, message: String },
    /// An open connection was lost; it may come back.
    #[error("{side}: the connection was lost: {source}")]
    Lost { side: Side, source: io::Error },
    /// The server answered a query with an error.
    #[error("{side}: {what}: {failure}")]
    Query { side: Side, what: String, failure: Failure },
    #[error(transparent)]
    Input(#[from] InputError),
    /// The file of the state cannot be read or written.
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
}

impl MigrateError {
    /// Whether the same step may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            MigrateError::Unreachable { .. } | MigrateError::Handshake { .. } | MigrateError::Lost { .. } => {
                true
            }
            MigrateError::Query { failure, .. } => may_pass(failure),
            _ => false,
        }
    }

    /// Whether the source says that it does not have the table or its database.
    pub fn is_dropped_at_source(&self) -> bool {
        let MigrateError::Query { side: Side::Source, failure, .. } = self else { return false };
        let message = failure.message.as_str();
        ["Table `", "Database `"].iter().any(|start| message.starts_with(start))
            && message.contains("does not exist")
    }

    /// The class of the server's error, if it is one.
    pub fn kind(&self) -> Option<FailureKind> {
        match self {
            MigrateError::Query { failure, .. } => Some(failure.kind),
            _ => None,
        }
    }
}

/// Whether a server's error is one of a present state: an election, a restart, a full disk. A missing right and a dropped table come
/// under the same classes.
fn may_pass(failure: &Failure) -> bool {
    const TEMPORARY: [FailureKind; 4] = [
        FailureKind::OpFailed,
        FailureKind::OpIndeterminate,
        FailureKind::ResourceLimit,
        FailureKind::Internal,
    ];
    let is_lasting = ["permission", "does not exist"].iter().any(|word| failure.message.contains(word));
    TEMPORARY.contains(&failure.kind) && !is_lasting
}

fn password_flag(side: Side) -> &'static str {
    match side {
        Side::Source => "--password-file",
        Side::Target => "--to-password-file",
    }
}

/// The remedy for a refused login.
fn login_text(error: &GreetError) -> String {
    match error {
        GreetError::NotOurProtocol | GreetError::Failed(_) => {
            format!("{error}: is this the driver port (28015) of a RethinkDB 2.3 or later, or of a Rekindle?")
        }
        GreetError::Refused { message, .. } if message.contains("protocol version") => {
            format!("{message}: RethinkDB 2.3 or later is needed; move an older one with rethinkdb-dump")
        }
        other => format!("{other} (check the user, the password file and the TLS flags of this side)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_table_is_known_by_the_servers_words() {
        let said = |side, message: &str| MigrateError::Query {
            side,
            what: String::new(),
            failure: Failure::new(FailureKind::OpFailed, message),
        };
        assert!(said(Side::Source, "Table `a.b` does not exist.").is_dropped_at_source());
        assert!(said(Side::Source, "Database `a` does not exist.").is_dropped_at_source());
        assert!(!said(Side::Target, "Table `a.b` does not exist.").is_dropped_at_source());
        assert!(!said(Side::Source, "Index `i` does not exist.").is_dropped_at_source());
    }
}
