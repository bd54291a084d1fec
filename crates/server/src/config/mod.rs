//! The configuration of a node: flags and a configuration file, validated and completed with defaults.
//!
//! Flags and file lines have the same names and pass the same checks. An error names the flag or line, the problem,
//! and the correct form.

mod control_group;
mod file;
mod memory;
mod options;
mod resolve;
mod retention;
mod setting;
mod value;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use file::read_file;
pub use memory::{CACHE_BYTES_MIN, available_bytes, total_bytes};
pub use options::{Arity, MISSING, OPTIONS, OptionSpec};
pub(crate) use resolve::DIRECTORY;
pub use retention::FeedRetention;
pub use setting::{ConfigError, Origin, Setting};

/// The complete configuration of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The data directory.
    pub directory: PathBuf,
    /// Addresses and port for drivers.
    pub driver: Service,
    /// Addresses and port for other servers.
    pub cluster: Service,
    /// How this server and others find each other.
    pub peers: Peers,
    /// Addresses and port for browsers and scrapers; `None` with `no-http-admin`.
    pub http: Option<Service>,
    pub cache: CacheSize,
    /// The memory limit of the process.
    pub memory: MemoryLimit,
    /// How long changes are kept for changefeeds.
    pub feed_retention: FeedRetention,
    /// The name of a new server; generated if `None`.
    pub server_name: Option<String>,
    /// The configured tags of a new server; [`Config::tags`] adds the default tag.
    pub server_tags: Vec<String>,
    /// The initial password of `admin`.
    pub initial_password: Option<InitialPassword>,
    /// The log file; `log_file` in the data directory if `None`.
    pub log_file: Option<PathBuf>,
    /// A file that holds the process id while the node runs.
    pub pid_file: Option<PathBuf>,
    /// Worker threads for drivers, and threads for scans.
    pub cores: usize,
    /// Whether other machines may connect although `admin` has no password.
    pub insecure: bool,
    /// A folder with the console's files; those in the program if `None`.
    pub web_static_directory: Option<PathBuf>,
    /// Names under which the HTTP port answers, besides the known ones.
    pub http_allowed_hosts: Vec<String>,
    /// Which addresses `r.http` may reach.
    pub http_reach: HttpReach,
    /// Whether queries may run JavaScript.
    pub enable_js: bool,
    /// Whether it is a proxy: it holds no data and only answers clients.
    pub is_proxy: bool,
    /// Warnings about options that have no effect.
    pub notes: Vec<String>,
}

/// How this server and others find each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Servers to join, `host:port`.
    pub join: Vec<String>,
    /// The addresses that others use for this server, `host:port`; empty if not configured.
    pub canonical_addresses: Vec<String>,
    /// How long the server keeps trying to reconnect to a lost server.
    pub reconnect_timeout: Duration,
    /// The files for TLS between servers; `None` for plain TCP.
    pub tls: Option<TlsFiles>,
}

/// The files for TLS with certificates on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The private key.
    pub key: PathBuf,
    /// The certificate for the key, and the intermediate certificates.
    pub certificate: PathBuf,
    /// The certificate authorities that must have signed the certificates of other servers.
    pub authorities: PathBuf,
}

/// The addresses and the port of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// In the order they are bound; never empty.
    pub addresses: Vec<IpAddr>,
    /// 0 requests a free port, which the log names.
    pub port: u16,
    /// The files for TLS with clients; `None` for plain TCP. Links between servers use [`Peers::tls`] instead.
    pub tls: Option<ServiceTls>,
}

/// The files for TLS of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTls {
    /// The private key.
    pub key: PathBuf,
    /// The certificate for the key, and the intermediate certificates.
    pub certificate: PathBuf,
    /// The authorities that must have signed the certificates of clients; `None` if clients need no certificate.
    pub authorities: Option<PathBuf>,
}

impl Service {
    /// Whether only this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.addresses.iter().all(|address| address.to_canonical().is_loopback())
    }
}

/// The memory for caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSize {
    /// Half of the available memory, less a gigabyte.
    Auto,
    Megabytes(u64),
}

impl CacheSize {
    /// The configured size; `None` for [`CacheSize::Auto`].
    #[must_use]
    pub fn megabytes(self) -> Option<u64> {
        match self {
            CacheSize::Auto => None,
            CacheSize::Megabytes(megabytes) => Some(megabytes),
        }
    }
}

impl CacheSize {
    /// The size on a machine with `available` bytes of free memory.
    #[must_use]
    pub fn bytes(self, available: u64) -> u64 {
        match self {
            CacheSize::Auto => (available.saturating_sub(1 << 30) / 2).max(CACHE_BYTES_MIN),
            CacheSize::Megabytes(megabytes) => megabytes << 20,
        }
    }
}

/// The addresses that `r.http` may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpReach {
    /// Public addresses.
    Public,
    /// All addresses.
    Everything,
}

/// The memory limit of the process, caches included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Four fifths of the memory of the machine or container.
    Auto,
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

/// The initial password of `admin`; ignored once there is a password.
#[derive(Clone, PartialEq, Eq)]
pub enum InitialPassword {
    /// Generate one and print it.
    Auto,
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
    /// The tags of a new server: the configured ones and `default`, as in RethinkDB. A proxy has none.
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

    /// Builds the configuration from `settings`. Flags take precedence over lines of the file.
    pub fn from_settings(settings: Vec<Setting>) -> Result<Config, ConfigError> {
        resolve::resolve(setting::Settings::new(settings)?)
    }
}
