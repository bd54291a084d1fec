//! Why a node did not start, in messages that say what to do.

use std::io;

use ::io::real::{TlsError, TlsFile};

use super::data_directory::DirectoryError;
use super::password::MissingPassword;
use crate::config::ConfigError;
use crate::listen::BindError;
use crate::memory::plan::MemoryLimitTooLow;

/// Why a node did not start, or ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A flag or a line of the configuration file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The cluster has removed this server.
    #[error(
        "this server was permanently removed from its cluster; a server with a new data directory can join"
    )]
    Removed,
    /// A proxy holds no data and needs a cluster to join.
    #[error("a proxy needs a cluster: name one of its servers with --join HOST:PORT")]
    ProxyAlone,
    /// Other machines could connect without a password.
    #[error(transparent)]
    MissingPassword(#[from] MissingPassword),
    /// A port is in use or not permitted.
    #[error("{cause}; {advice}", advice = advice(.service, .cause))]
    Bind {
        /// As in `--<service>-port`.
        service: &'static str,
        /// The address and the system's error.
        cause: BindError,
    },
    /// A file cannot be written.
    #[error("the {what} {path} cannot be written: {cause}")]
    File {
        /// Log file, pid file or name file.
        what: &'static str,
        path: String,
        /// The system's error.
        cause: io::Error,
    },
    /// A part of the data directory cannot be read.
    #[error("the {what} {path} cannot be read: {cause}")]
    Unreadable {
        /// The part.
        what: &'static str,
        /// The folder.
        path: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The caches leave no memory for queries.
    #[error(transparent)]
    MemoryLimit(#[from] MemoryLimitTooLow),
    /// A part of the data directory is missing.
    #[error(
        "the data directory {path} is incomplete: {what} is missing, which holds acknowledged writes; \
         restore it, or the whole directory, from a backup or its earlier location"
    )]
    Incomplete {
        /// The folder.
        path: String,
        /// Which part.
        what: &'static str,
    },
    /// The engine's files cannot be opened.
    #[error("the stored rows cannot be opened: {0}")]
    Engine(#[from] engine::EngineError),
    /// The engine's record of the log cannot be read.
    #[error("the stored rows cannot be read: {0}")]
    Replicas(#[from] storage::FormatError),
    /// The log's files cannot be opened.
    #[error("the log cannot be opened: {0}")]
    Log(#[from] log::LogError),
    /// The catalog or a table cannot be opened.
    #[error(transparent)]
    Node(#[from] cluster::OpenError),
    /// The TLS files for links between servers cannot be used.
    #[error("TLS between servers{flag}: {0}", flag = tls_flag("cluster", .0))]
    Tls(#[from] TlsError),
    /// The TLS files for clients of a service cannot be used.
    #[error("TLS of the {service} port{flag}: {cause}", flag = tls_flag(.service, .cause))]
    ServiceTls {
        /// Driver or http.
        service: &'static str,
        /// Why.
        cause: TlsError,
    },
    /// The address book is damaged.
    #[error("{path} cannot be used: {cause}; remove it and name another server with --join")]
    AddressBook {
        /// The file.
        path: String,
        cause: cluster::link::Damage,
    },
    /// The password of `admin` could not be stored.
    #[error("the initial password could not be stored: {0}")]
    Password(#[from] cluster::AdminError),
    /// The system provided no threads or no event queue.
    #[error("a system call that the server needs failed: {0}")]
    System(#[from] io::Error),
}

/// The flag that names the unusable TLS file.
fn tls_flag(service: &str, error: &TlsError) -> String {
    match error {
        TlsError::File { what: TlsFile::Key, .. } => format!(", --{service}-tls-key"),
        TlsError::File { what: TlsFile::Certificate, .. } => format!(", --{service}-tls-cert"),
        TlsError::File { what: TlsFile::Authorities, .. } => format!(", --{service}-tls-ca"),
        TlsError::Unusable { .. } => String::new(),
    }
}

fn advice(service: &str, error: &BindError) -> String {
    match error.cause.kind() {
        io::ErrorKind::AddrInUse => {
            format!("choose another port with --{service}-port, or move all ports with --port-offset")
        }
        io::ErrorKind::PermissionDenied => format!("choose a port above 1023 with --{service}-port"),
        io::ErrorKind::AddrNotAvailable => "name an address of this machine with --bind".to_owned(),
        _ => format!("choose another address with --bind-{service} or another port with --{service}-port"),
    }
}
