//! What a node is started with: flags and a configuration file, checked and made whole.
//!
//! Flags and file lines have the same names and go through the same checks; an error says which
//! flag or line, what is wrong with it, and what to write instead.

mod file;
mod memory;
mod options;
mod resolve;
mod setting;
mod value;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use file::read_file;
pub use memory::{CACHE_BYTES_MIN, available_bytes, total_bytes};
pub use options::{MISSING, OPTIONS, OptionSpec, Takes};
pub(crate) use resolve::DIRECTORY;
pub use setting::{ConfigError, Origin, Setting};

/// Everything a node is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The data directory.
    pub directory: PathBuf,
    /// Where drivers connect.
    pub driver: Service,
    /// Where other servers connect.
    pub cluster: Service,
    /// How other servers are found, and how they find this one.
    pub peers: Peers,
    /// Where browsers and scrapers connect; `None` with `no-http-admin`.
    pub http: Option<Service>,
    /// Memory for caches.
    pub cache: CacheSize,
    /// Memory for everything.
    pub memory: MemoryLimit,
    /// The name of a new server; made up when it is not given.
    pub server_name: Option<String>,
    /// The tags that a new server was given; [`Config::tags`] are those it gets.
    pub server_tags: Vec<String>,
    /// The first password of `admin`.
    pub initial_password: Option<InitialPassword>,
    /// Where the log goes; `log_file` in the data directory when it is not given.
    pub log_file: Option<PathBuf>,
    /// A file that holds the process id while the node runs.
    pub pid_file: Option<PathBuf>,
    /// Threads that serve drivers, and threads that scan.
    pub cores: usize,
    /// Whether other machines may connect although `admin` has no password.
    pub insecure: bool,
    /// Which addresses `r.http` may reach.
    pub http_reach: HttpReach,
    /// Whether queries may run JavaScript.
    pub enable_js: bool,
    /// Whether it is a proxy: it holds no data and only answers clients.
    pub is_proxy: bool,
    /// What the user should know about options that have no effect.
    pub notes: Vec<String>,
}

/// What a server has to know of others before it meets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Servers to join, `host:port`.
    pub join: Vec<String>,
    /// Where others reach this server, `host:port`; empty when it was not given.
    pub canonical_addresses: Vec<String>,
    /// For how long a server that went away is looked for.
    pub reconnect_timeout: Duration,
    /// The files for TLS between servers; `None` for links in the clear.
    pub tls: Option<TlsFiles>,
}

/// The files that TLS with certificates on both sides needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The private key.
    pub key: PathBuf,
    /// The certificate that goes with it, and those between it and the authority.
    pub certificate: PathBuf,
    /// The certificates of the authorities whose signature others need.
    pub authorities: PathBuf,
}

/// The addresses and the port of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// In the order they are bound; never empty.
    pub addresses: Vec<IpAddr>,
    /// 0 is a free port, which the log names.
    pub port: u16,
    /// The files for TLS with clients; `None` for a service in the clear. Servers among themselves
    /// have [`Peers::tls`].
    pub tls: Option<ServiceTls>,
}

/// The files that a service needs to speak TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTls {
    /// The private key.
    pub key: PathBuf,
    /// The certificate that goes with it, and those between it and its authority.
    pub certificate: PathBuf,
    /// Clients must show a certificate that one of these has signed; `None`: they need none.
    pub authorities: Option<PathBuf>,
}

impl Service {
    /// Whether only this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.addresses.iter().all(|address| address.to_canonical().is_loopback())
    }
}

/// How much memory caches may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSize {
    /// Half of what is free, less a gigabyte.
    Auto,
    /// This many megabytes.
    Megabytes(u64),
}

impl CacheSize {
    /// As it was configured; `None` when the size is left to the server.
    #[must_use]
    pub fn megabytes(self) -> Option<u64> {
        match self {
            CacheSize::Auto => None,
            CacheSize::Megabytes(megabytes) => Some(megabytes),
        }
    }
}

impl CacheSize {
    /// The size for a machine with `available` bytes of free memory.
    #[must_use]
    pub fn bytes(self, available: u64) -> u64 {
        match self {
            CacheSize::Auto => (available.saturating_sub(1 << 30) / 2).max(CACHE_BYTES_MIN),
            CacheSize::Megabytes(megabytes) => megabytes << 20,
        }
    }
}

/// Which addresses `r.http` may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpReach {
    /// Those of the public internet.
    Public,
    /// All.
    Everything,
}

/// How much memory the process may take, caches included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Four fifths of the machine's, or of the container's.
    Auto,
    /// This many megabytes.
    Megabytes(u64),
}

impl MemoryLimit {
    /// The limit on a machine, or in a container, with `total` bytes.
    #[must_use]
    pub fn bytes(self, total: u64) -> u64 {
        match self {
            MemoryLimit::Auto => total / 5 * 4,
            MemoryLimit::Megabytes(megabytes) => megabytes << 20,
        }
    }
}

/// The first password of `admin`; without effect once there is one.
#[derive(Clone, PartialEq, Eq)]
pub enum InitialPassword {
    /// Make one up and print it.
    Auto,
    /// This one.
    Given(String),
}

/// A password is never printed.
impl std::fmt::Debug for InitialPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            InitialPassword::Auto => "Auto",
            InitialPassword::Given(_) => "Given(…)",
        })
    }
}

/// The tag that every server has.
const TAG: &str = "default";

impl Config {
    /// The tags of a new server: those that were given and `default`, as RethinkDB does it. A proxy has none.
    #[must_use]
    pub fn tags(&self) -> Vec<String> {
        let default = (!self.is_proxy).then(|| TAG.to_owned());
        let mut tags: Vec<String> = Vec::new();
        for tag in self.server_tags.iter().filter(|_| !self.is_proxy).cloned().chain(default) {
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        tags
    }

    /// The configuration `settings` ask for. Flags win over the lines of a file.
    pub fn from_settings(settings: Vec<Setting>) -> Result<Config, ConfigError> {
        resolve::resolve(setting::Settings::new(settings)?)
    }
}
