//! The links to other servers. They start before the data is opened, because a joining server receives its identity
//! from the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::io::real::{BorrowedLoop, NetworkThread, Tls};
use ::io::{Clock, Files, Random};
use cluster::link::{
    AddressBook, BootstrapPermission, LinkOptions, LinkTimings, Links, LocalServer, QueueLimits,
};
use cluster::{Identity, Inbound, JoinOptions, OpenError, PeerTransport, ServerId, UNASSIGNED_PEER, Wiring};
use datum::Text;
use log::Log;
use uuid::Uuid;

use super::start_error::StartError;
use crate::config::{Config, TlsFiles};

/// How often the log repeats that the server searches for a cluster; the interval doubles each time.
const SEARCH_LOG_INTERVAL_MIN: Duration = Duration::from_secs(10);
const SEARCH_LOG_INTERVAL_MAX: Duration = Duration::from_secs(600);
/// How long a starting server listens to others before it serves: the cluster may have removed it.
const REMOVAL_CHECK_TIMEOUT: Duration = Duration::from_millis(500);
/// How often the host names in `--join` are resolved while no cluster is found.
const JOIN_LOOKUP_INTERVAL: Duration = Duration::from_secs(1);

/// What links need from the rest of the node.
pub struct LinkContext<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The data directory.
    pub dir: &'a Path,
    /// The server's name.
    pub name: &'a str,
    /// The configured cache size in megabytes, if any.
    pub cache_size_mb: Option<u64>,
    /// The addresses at which other servers reach this one.
    pub addresses: Vec<String>,
    /// The bound cluster port.
    pub port: u16,
    pub wiring: &'a Wiring,
    pub log: &'a Arc<dyn Log>,
    pub files: &'a Arc<dyn Files>,
    pub clock: &'a Arc<dyn Clock>,
    pub random: &'a Arc<dyn Random>,
}

/// The running links.
pub struct Peers {
    /// Dispatches incoming messages.
    pub reception: Arc<Inbound>,
    pub links: Links,
    thread: NetworkThread,
}

impl Peers {
    /// Starts the links, and makes sure that the data directory has the identity of a server and its cluster: a server
    /// without `--join` bootstraps a new cluster.
    pub fn start(
        context: &LinkContext<'_>,
        listeners: Vec<std::net::TcpListener>,
    ) -> Result<Peers, StartError> {
        let known = Identity::load(&**context.files, context.dir)?;
        let wants_to_join = !context.config.peers.join.is_empty();
        let identity = match known {
            Some(identity) => Some(identity),
            None if wants_to_join => None,
            None => {
                let (server, cluster) = (ServerId(context.uuid()), context.uuid());
                let identity = Identity { server, cluster, joined: None };
                identity.store(&**context.files, context.dir)?;
                Some(identity)
            }
        };
        let server = identity.as_ref().map_or_else(|| ServerId(context.uuid()), |identity| identity.server);
        let joining = identity.is_none().then_some(server);
        let reception = Inbound::new(
            context.wiring.clone(),
            context.log.clone(),
            context.files.clone(),
            context.dir.to_owned(),
            joining,
        )?;
        let links = Links::new(context.options(server, identity.as_ref().map(|known| known.cluster))?);
        context.wiring.peers.connect(Arc::new(links.clone()) as Arc<dyn PeerTransport>);
        let tls = context.config.peers.tls.as_ref().map(load_tls).transpose()?;
        if joining.is_some() {
            links.set_bootstrap_permission(context.bootstrap_permission());
        }
        let Some(handler) = links.handler(reception.clone()) else {
            return Err(OpenError::Join("the links are in use".to_owned()).into());
        };
        let thread = NetworkThread::start(
            "links",
            handler,
            links.loop_waker(),
            listeners,
            tls,
            context.clock.clone(),
        )?;
        let links = Peers { reception, links, thread };
        let cluster = match &identity {
            Some(identity) if identity.joined == Some(UNASSIGNED_PEER) => Some(identity.cluster),
            Some(_) => None,
            None => links.await_cluster(context),
        };
        if let Some(cluster) = cluster {
            links.join(context, server, cluster)?;
        }
        Ok(links)
    }

    /// Lets the caller drive the links until the returned value is dropped.
    pub fn lend(&self) -> Option<BorrowedLoop> {
        self.thread.lend()
    }

    /// Whether the cluster has permanently removed this server, as far as other servers report it within
    /// [`REMOVAL_CHECK_TIMEOUT`]. `has_others`: the cluster has other servers.
    pub fn was_removed(&self, has_others: bool) -> bool {
        let until = Instant::now() + REMOVAL_CHECK_TIMEOUT;
        while has_others && self.links.peers().is_empty() && !self.reception.was_removed() {
            if Instant::now() >= until {
                break;
            }
            std::thread::sleep(REMOVAL_CHECK_TIMEOUT / 50);
        }
        self.reception.was_removed()
    }

    /// Closes the links to all other servers.
    pub fn stop(self) {
        self.links.close();
        drop(self.thread);
    }

    /// The cluster to join, as soon as one is found; `None` if this server has founded it itself.
    fn await_cluster(&self, context: &LinkContext<'_>) -> Option<Uuid> {
        let mut log_interval = SEARCH_LOG_INTERVAL_MIN;
        let mut logged_at = Instant::now();
        loop {
            if let Some(cluster) = self.reception.await_cluster(JOIN_LOOKUP_INTERVAL) {
                return (!self.reception.has_bootstrapped()).then_some(cluster);
            }
            self.links.set_bootstrap_permission(context.bootstrap_permission());
            if logged_at.elapsed() >= log_interval {
                (logged_at, log_interval) = (Instant::now(), SEARCH_LOG_INTERVAL_MAX.min(log_interval * 2));
                tracing::info!("Looking for a cluster at {}...", context.config.peers.join.join(", "));
                ambiguous(context.config).iter().for_each(|name| warn_ambiguous(name));
            }
        }
    }

    fn join(&self, context: &LinkContext<'_>, server: ServerId, cluster: Uuid) -> Result<(), StartError> {
        let options = JoinOptions {
            server,
            cluster,
            name: Text::from(context.name),
            tags: context.config.tags().into_iter().map(Text::from).collect(),
            cache_size_mb: context.cache_size_mb,
            is_proxy: context.config.is_proxy,
            addresses: context.addresses.iter().map(|at| Text::from(at.as_str())).collect(),
        };
        let members = || (!self.reception.was_removed()).then(|| self.reception.members());
        cluster::join(&options, context.wiring, members, &**context.files, context.dir, None)?;
        tracing::info!("Joined cluster {cluster}");
        Ok(())
    }
}

impl LinkContext<'_> {
    fn uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// Whether a new server may found a cluster with others that have none. A proxy holds no data. A host name of
    /// several machines does not identify the machine that was reached: each of two servers could reach itself by it.
    fn bootstrap_permission(&self) -> BootstrapPermission {
        let is_allowed = !self.config.is_proxy && ambiguous(self.config).is_empty();
        BootstrapPermission { is_allowed, own_addresses: self.own_join_addresses() }
    }

    /// The entries of `--join` that are configured addresses of this server, with the address of each. A server that
    /// listens on all addresses of the machine recognizes itself by connecting.
    fn own_join_addresses(&self) -> BTreeMap<String, String> {
        let is_configured = |at: &&String| {
            self.config.peers.canonical_addresses.contains(at) || at.parse::<SocketAddr>().is_ok()
        };
        let configured: Vec<&String> = self.addresses.iter().filter(is_configured).collect();
        let own: BTreeSet<SocketAddr> = configured.iter().flat_map(|at| resolve_all(at)).collect();
        let address = |place: &String| {
            let found = resolve_all(place);
            let is_own = configured.contains(&place) || !found.is_empty() && found.is_subset(&own);
            is_own.then(|| (place.clone(), found.first().map_or_else(|| place.clone(), ToString::to_string)))
        };
        self.config.peers.join.iter().filter_map(address).collect()
    }

    fn options(&self, server: ServerId, cluster: Option<Uuid>) -> Result<LinkOptions, StartError> {
        let reconnect_timeout = self.config.peers.reconnect_timeout;
        Ok(LinkOptions {
            local: LocalServer {
                cluster,
                server,
                name: self.name.to_owned(),
                tags: self.config.tags(),
                addresses: self.addresses.clone(),
                canonical: self.config.peers.canonical_addresses.clone(),
                port: self.port,
                is_proxy: self.config.is_proxy,
            },
            join: self.config.peers.join.clone(),
            address_book: load_address_book(&**self.files, self.dir)?,
            timings: LinkTimings { reconnect_timeout, ..LinkTimings::default() },
            limits: QueueLimits::default(),
            clock: self.clock.clone(),
            random: self.random.clone(),
        })
    }
}

/// The host names in `--join` that resolve to several machines.
fn ambiguous(config: &Config) -> Vec<&str> {
    let is_many = |place: &&str| {
        let (v4, v6): (Vec<SocketAddr>, Vec<SocketAddr>) =
            resolve_all(place).into_iter().filter(|at| !at.ip().is_loopback()).partition(SocketAddr::is_ipv4);
        v4.len() > 1 || v6.len() > 1
    };
    config.peers.join.iter().map(String::as_str).filter(is_many).collect()
}

/// The addresses of `host:port`; none if it cannot be resolved, because then it cannot be reached either.
fn resolve_all(place: &str) -> BTreeSet<SocketAddr> {
    place.to_socket_addrs().map(BTreeSet::from_iter).unwrap_or_default()
}

fn warn_ambiguous(name: &str) {
    tracing::warn!(
        "--join {name} stands for several machines: servers that are all new find each other only where each --join \
         names one server; or start one of them without --join first"
    );
}

fn load_tls(files: &TlsFiles) -> Result<Tls, StartError> {
    Ok(Tls::mutual(&files.key, &files.certificate, &files.authorities)?)
}

fn load_address_book(files: &dyn Files, directory: &Path) -> Result<AddressBook, StartError> {
    let path = directory.join(AddressBook::FILE);
    match files.read(&path) {
        Ok(text) => AddressBook::parse(&text)
            .map_err(|cause| StartError::AddressBook { path: path.display().to_string(), cause }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(AddressBook::default()),
        Err(error) => Err(error.into()),
    }
}
