//! The ports of a node: bound together, logged, and shown in `server_status`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use datum::Text;

use super::server_name;
use super::start_error::StartError;
use crate::config::{Config, Service};
use crate::listen::{BoundSockets, bind};
use crate::memory::plan::MemoryPlan;

/// The version that V1_0 drivers receive. Some derive the server's abilities from it, so it names the release of
/// RethinkDB with the same protocol and language.
pub const PROTOCOL_RELEASE: &str = concat!("2.4.4-rekindle-", env!("CARGO_PKG_VERSION"));

/// Every port of the node, bound before the data is opened so that a conflict shows at once.
pub struct Ports {
    /// Where drivers connect.
    pub driver: BoundSockets,
    /// Where other servers connect.
    pub cluster: BoundSockets,
    /// Where browsers and scrapers connect.
    pub http: Option<BoundSockets>,
}

impl Ports {
    /// Binds all of them. They do not accept connections yet.
    pub fn bind(config: &Config) -> Result<Ports, StartError> {
        let bind = |service: &'static str, wanted: &Service| {
            bind(&wanted.addresses, wanted.port).map_err(|cause| StartError::Bind { service, cause })
        };
        Ok(Ports {
            cluster: bind("cluster", &config.cluster)?,
            driver: bind("driver", &config.driver)?,
            http: config.http.as_ref().map(|http| bind("http", http)).transpose()?,
        })
    }
}

/// Starts to accept connections of a service.
pub fn listening(
    service: &'static str,
    bound: BoundSockets,
) -> Result<Vec<std::net::TcpListener>, StartError> {
    bound.listen().map_err(|cause| StartError::Bind { service, cause })
}

/// The log's lines about the ports.
pub struct PortSummary {
    /// Where other servers connect.
    pub cluster_port: u16,
    /// Where drivers connect.
    pub driver_port: u16,
    /// Where browsers and scrapers connect.
    pub http_port: Option<u16>,
    addresses: Vec<(&'static str, String)>,
    is_local: bool,
}

impl PortSummary {
    /// The summary of `ports`, which were bound as `config` says.
    pub fn of(config: &Config, ports: &Ports) -> PortSummary {
        let list = |bound: &BoundSockets| {
            let addresses: Vec<String> = bound.addresses().map(|address| address.to_string()).collect();
            addresses.join(", ")
        };
        let mut addresses = vec![("cluster", list(&ports.cluster)), ("driver", list(&ports.driver))];
        addresses.extend(ports.http.as_ref().map(|http| ("http", list(http))));
        PortSummary {
            cluster_port: ports.cluster.port,
            driver_port: ports.driver.port,
            http_port: ports.http.as_ref().map(|http| http.port),
            addresses,
            is_local: config.driver.is_local(),
        }
    }

    pub fn log(&self) {
        tracing::info!("Listening for intracluster connections on port {}", self.cluster_port);
        tracing::info!("Listening for client driver connections on port {}", self.driver_port);
        match self.http_port {
            Some(port) => tracing::info!("Listening for administrative HTTP connections on port {port}"),
            None => tracing::info!("Administrative HTTP connections are disabled"),
        }
        for (service, addresses) in &self.addresses {
            tracing::info!("Listening on {service} addresses: {addresses}");
        }
        if self.is_local {
            tracing::info!(
                "To fully expose Rekindle on the network, bind to all addresses by running rekindle with the \
                 `--bind all` command line option."
            );
        }
    }
}

/// The addresses at which other servers reach this one: the configured ones, or else those on which it listens.
pub fn cluster_addresses(config: &Config, bound: &BoundSockets) -> Vec<String> {
    if !config.peers.canonical_addresses.is_empty() {
        return config.peers.canonical_addresses.clone();
    }
    let port = bound.port;
    if bound.addresses().any(|address| address.is_unspecified()) {
        return vec![format!("{}:{port}", server_name::hostname())];
    }
    let is_local = config.cluster.is_local();
    let reachable = bound.addresses().filter(|address| is_local || !address.to_canonical().is_loopback());
    reachable.map(|address| SocketAddr::new(address, port).to_string()).collect()
}

/// Splits `host:port`.
fn place(address: &str) -> Option<(Text, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((Text::from(host.trim_matches(['[', ']'])), port.parse().ok()?))
}

/// The facts that `server_status` shows, without the lines of the log.
pub fn facts(
    plan: &MemoryPlan,
    ports: &PortSummary,
    addresses: &[String],
    argv: Vec<String>,
    started_unix: Duration,
) -> query::ServerFacts {
    query::ServerFacts {
        hostname: Text::from(server_name::hostname()),
        reql_port: ports.driver_port,
        cluster_port: ports.cluster_port,
        http_port: ports.http_port,
        canonical_addresses: addresses.iter().filter_map(|address| place(address)).collect(),
        argv: argv.into_iter().map(Text::from).collect(),
        pid: std::process::id(),
        cache_bytes: Arc::new(AtomicU64::new(plan.cache)),
        cache_mb_range: Some(plan.cache_mb_range()),
        // rethinkdb-dump and its siblings only accept a server with a version of this form.
        version: Text::from(format!("rethinkdb {PROTOCOL_RELEASE}")),
        started_unix,
        logs: query::RecentLog::default(),
        metrics: query::MetricsHistory::default(),
        memory_trouble: Some(crate::http::swap_warning),
        damaged_files: Arc::default(),
    }
}
