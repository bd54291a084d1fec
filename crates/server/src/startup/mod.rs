//! The order in which a node starts: directory, ports, data, drivers. Then it waits for the signal to stop.
//!
//! The lines printed here are an interface: scripts wait for them.

mod archives;
mod data_directory;
mod history_age;
mod outbound;
mod password;
mod peers;
mod pid_file;
mod ports;
mod proxy_folder;
mod server_name;
mod shutdown;
mod start_error;
mod stores;

use std::path::{Path, PathBuf, absolute};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::{CatalogReplica, IndexThread, Node};
use engine::Engine;
use io::real::RealFiles;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use crate::background_check::{BackgroundCheck, CheckCounters};
use crate::config::{self, Config, Service};
use crate::http::{self, Backend, Console, Health, NodeStage, Observed, Pages, Sources};
use crate::listen::{BoundSockets, accept_drivers, raise_file_limit};
use crate::log_lines::LogLines;
use crate::memory::accountant::{Accountant, AccountantThread};
use crate::memory::cache_size::CacheSizer;
use crate::memory::plan::MemoryPlan;
use crate::metrics_history::MetricsRecorder;
use crate::node_service::NodeService;
use crate::tls;
use crate::worker::Workers;
use crate::worker_state::Shared;
use archives::Archives;
use data_directory::DataDirectory;
use history_age::HistoryAge;
use peers::Peers;
use pid_file::PidFile;
use ports::{PROTOCOL_RELEASE, PortSummary, Ports, cluster_addresses, facts, listening};
use proxy_folder::{data_in, new_folder};
use stores::{Machine, Stores};

pub use data_directory::{DirectoryError, OpenMode};
pub use start_error::StartError;

/// How often the log repeats that the node waits for the catalog.
const CATALOG_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How long a stopping server waits for other servers to take over its leaderships.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the log is checked for stalls.
const LOG_HEALTH_INTERVAL: Duration = Duration::from_millis(500);

/// Creates a data directory and returns.
pub fn create(config: &Config) -> Result<(), StartError> {
    let _lines = LogLines::start();
    let directory = DataDirectory::take(&config.directory, OpenMode::Create, Box::new(RealFiles))?;
    let machine = Machine::new();
    let stores = machine.open_stores(config, &MemoryPlan::new(config)?, &directory)?;
    let node = machine.open_node(config, &directory, stores, None, &[])?;
    set_initial_password(&node, config, &machine)?;
    tracing::info!("Created directory {} and a metadata file inside it.", shown(directory.path()));
    Ok(())
}

/// Serves as a proxy until a signal stops the process. A proxy joins a cluster, holds no data and answers every query.
/// Its state is in a temporary folder that is deleted at the end.
pub fn serve_proxy(mut config: Config, argv: Vec<String>) -> Result<(), StartError> {
    if config.peers.join.is_empty() {
        return Err(StartError::ProxyAlone);
    }
    let folder = new_folder(&std::env::temp_dir())?;
    let path = folder.path().to_owned();
    config.is_proxy = true;
    if config.directory != Path::new(config::DIRECTORY) {
        config.notes.push("--directory: the option has no effect: a proxy keeps no data".to_owned());
    }
    if !config.server_tags.is_empty() {
        config.notes.push("--server-tag: the option has no effect: a proxy has no tags".to_owned());
    }
    config.directory = data_in(folder.path());
    let served = serve(&config, OpenMode::CreateOrOpen, argv);
    if let Err(error) = folder.close() {
        tracing::warn!("cannot remove the folder {}: {error}", shown(&path));
    }
    served
}

/// Serves a data directory until a signal stops the process. `argv` is the command line.
pub fn serve(config: &Config, opening: OpenMode, argv: Vec<String>) -> Result<(), StartError> {
    let lines = LogLines::start();
    let plan = MemoryPlan::new(config)?;
    let directory = take_directory(config, opening)?;
    open_log_file(&lines, config, &directory)?;
    let _pid_file = config.pid_file.as_deref().map(PidFile::write).transpose()?;
    tracing::info!("Running rekindle {} ({})...", env!("CARGO_PKG_VERSION"), crate::PLATFORM);
    tracing::info!("Loading data from directory {}", shown(directory.path()));

    raise_file_limit();
    let ports = Ports::bind(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let pages = Arc::new(Pages { health: Arc::new(Health::new()), sources: Arc::new(Sources::new()) });
    let port_summary = PortSummary::of(config, &ports);
    let machine = Machine::new();
    let console = open_console(config, &ports, &machine)?;
    let is_guarded = password::check_exposure(config, config.initial_password.is_some()).is_ok();
    // The HTTP port stays closed until it is known whether `admin` has a password.
    let mut http_port =
        HttpPort { config, runtime: &runtime, pages: &pages, console: &console, bound: ports.http };
    http_port.open_if(is_guarded)?;
    pages.health.enter(NodeStage::Starting("reading the log and opening the tables"));

    let stores = machine.open_stores(config, &plan, &directory)?;
    let catalog = if is_guarded { None } else { stores.open_known_catalog(config, &directory, &machine)? };
    http_port.open_if(catalog.as_ref().is_some_and(CatalogReplica::is_guarded))?;
    let addresses = cluster_addresses(config, &ports.cluster);
    let peers = stores.link(config, &directory, &machine, addresses.clone(), ports.cluster)?;
    let (engine, compressed) = (stores.engine.clone(), stores.compressed.clone());
    let (space, damaged_files) = (stores.space.clone(), stores.rocks.damaged_files());
    let (upkeep, checks) = start_upkeep(config, &stores)?;
    let node = machine.open_node(config, &directory, stores, catalog, &addresses)?;
    // Dropped before the node, whose threads may wait for space.
    let archives = (Archives::follow(compressed, &node), space);
    peers.reception.open(node.rpc_server());
    while !node.await_catalog(CATALOG_LOG_INTERVAL) {
        tracing::info!("Waiting for the cluster's catalog...");
    }
    if peers.was_removed(node.catalog().servers().len() > 1) {
        return Err(StartError::Removed);
    }
    node.sweep_left_behind()?;
    set_initial_password(&node, config, &machine)?;
    // Checked again: other servers may have a newer catalog.
    password::check_exposure(config, node.catalog().user("admin").is_some_and(|admin| admin.has_password))?;
    http_port.open_if(true)?;
    warn_ignored_tags(config, &node);
    let indexes = IndexThread::start(node.indexes(), node.clock().clone())?;
    let facts = facts(&plan, &port_summary, &addresses, argv, machine.clock.unix());
    let facts = query::ServerFacts { logs: lines.recent(), damaged_files, ..facts };
    let metrics = facts.metrics.clone();
    let running = Running::start(config, &plan, &machine, &node, &peers, facts)?;
    pages.sources.observe(observed(&running, &node, &peers, checks));
    let recorder = start_recorder(metrics, &directory, &pages, &machine)?;
    running.listen(&runtime, ports.driver)?;
    let (shared, workers) = (running.shared.clone(), running.workers.clone());
    console.open(Backend { shared, workers, random: machine.random.clone() });
    runtime.spawn(watch_for_stalls(Arc::downgrade(&node)));
    port_summary.log();
    enter_ready(config, &node, &pages.health);

    let end = wait_for_end(&runtime, &peers)?;
    pages.health.enter(NodeStage::ShuttingDown);
    transfer_leadership(config, &node);
    running.stop(runtime);
    peers.stop();
    drop((indexes, upkeep, archives, recorder));
    shut_down_engine(node, engine)?;
    end
}

/// The threads that care for the stored data, and the counters of its checks.
type Upkeep = ((HistoryAge, Option<BackgroundCheck>), Arc<CheckCounters>);

fn start_upkeep(config: &Config, stores: &Stores) -> std::io::Result<Upkeep> {
    let (rocks, rows) = (&stores.rocks, &stores.compressed);
    let history_age = HistoryAge::limit(rocks.clone(), config.feed_retention.time)?;
    let counters = Arc::<CheckCounters>::default();
    let start = |options| BackgroundCheck::start(options, rocks.clone(), rows.clone(), counters.clone());
    let check = config.background_check.map(start).transpose()?;
    Ok(((history_age, check), counters))
}

fn start_recorder(
    history: query::MetricsHistory,
    directory: &DataDirectory,
    pages: &Pages,
    machine: &Machine,
) -> std::io::Result<MetricsRecorder> {
    MetricsRecorder::start(history, directory.path(), pages.sources.clone(), machine.clock.clone())
}

/// The parts of the node that the pages of metrics read.
fn observed(running: &Running, node: &Arc<Node>, peers: &Peers, checks: Arc<CheckCounters>) -> Observed {
    Observed {
        links: peers.links.clone(),
        counters: running.workers.counters(),
        replicas: node.replicas().clone(),
        log: node.log().clone(),
        cache_bytes_max: running.cache_bytes.clone(),
        memory: running.accountant.clone(),
        node: Arc::downgrade(node),
        queries: Arc::downgrade(&running.queries),
        checks,
    }
}

/// Logs that the node is ready.
fn enter_ready(config: &Config, node: &Node, health: &Health) {
    let (id, name) = (node.identity().server.to_string(), node.name().to_string());
    // Before the line: scripts that have read it may ask for the health at once.
    health.enter(NodeStage::Ready { id: id.clone(), name: name.clone() });
    match config.is_proxy {
        true => tracing::info!("Proxy ready, {id}"),
        false => tracing::info!("Server ready, \"{name}\" {id}"),
    }
}

/// Checks the log for stalls periodically, as long as the node exists.
async fn watch_for_stalls(node: Weak<Node>) {
    loop {
        tokio::time::sleep(LOG_HEALTH_INTERVAL).await;
        match node.upgrade() {
            Some(node) => node.stall_monitor().check(),
            None => return,
        }
    }
}

/// Locks the data directory. A new one is not created if the server would be exposed without a password.
fn take_directory(config: &Config, opening: OpenMode) -> Result<DataDirectory, StartError> {
    for note in &config.notes {
        tracing::warn!("{note}");
    }
    if DataDirectory::is_new(&config.directory, &RealFiles) {
        password::check_exposure(config, config.initial_password.is_some())?;
    }
    Ok(DataDirectory::take(&config.directory, opening, Box::new(RealFiles))?)
}

fn shut_down_engine(node: Arc<Node>, engine: Arc<dyn Engine>) -> Result<(), StartError> {
    tracing::info!("Shutting down storage engine...");
    drop(node);
    engine.flush()?;
    drop(engine);
    tracing::info!("Storage engine shut down.");
    Ok(())
}

/// Returns when a signal stops the process, or with an error when the cluster has permanently removed this server: its
/// data is outdated then.
fn wait_for_end(runtime: &Runtime, peers: &Peers) -> Result<Result<(), StartError>, StartError> {
    let removed = Arc::new(Notify::new());
    let notifier = removed.clone();
    peers.reception.on_removed(Box::new(move || notifier.notify_one()));
    runtime.block_on(async {
        tokio::select! {
            asked = shutdown::requested() => Ok(asked.map(Ok)?),
            () = removed.notified() => Ok(Err(StartError::Removed)),
        }
    })
}

/// Before the node stops: transfers its leaderships to other servers, and unregisters a proxy from the cluster.
fn transfer_leadership(config: &Config, node: &Node) {
    if config.is_proxy
        && let Err(error) = node.servers().leave()
    {
        tracing::warn!("cannot unregister this proxy from the cluster: {error}");
    }
    node.hand_over(HANDOVER_TIMEOUT);
}

fn open_log_file(lines: &LogLines, config: &Config, directory: &DataDirectory) -> Result<(), StartError> {
    let path = config.log_file.clone().unwrap_or_else(|| directory.path().join("log_file"));
    let failed = |cause| StartError::File { what: "log file", path: path.display().to_string(), cause };
    lines.open_file(&path).map_err(failed)
}

fn set_initial_password(node: &Node, config: &Config, machine: &Machine) -> Result<(), StartError> {
    let Some(wanted) = &config.initial_password else { return Ok(()) };
    if config.is_proxy {
        tracing::warn!("Ignoring --initial-password: a proxy does not set passwords of its cluster");
        return Ok(());
    }
    if node.catalog().user("admin").is_some_and(|admin| admin.has_password) {
        tracing::info!(
            "Ignoring --initial-password option because the admin password is already configured."
        );
        return Ok(());
    }
    let password = password::initial(Some(wanted), &*machine.random);
    let (record, is_set) = password::record(&password, None, &*machine.random);
    node.accounts().put_user("admin", cluster::PasswordChange::Set(record, is_set))?;
    if node.catalog().servers().len() > 1 {
        tracing::warn!(
            "The cluster had no password: --initial-password is now the password of `admin` on all servers"
        );
    }
    Ok(())
}

/// Warns that `--server-tag` only applies to a new server. RethinkDB ignores it silently.
fn warn_ignored_tags(config: &Config, node: &Node) {
    let catalog = node.catalog();
    let Some(server) = catalog.server(node.identity().server).filter(|server| !server.is_proxy) else {
        return;
    };
    let given = config.tags();
    let is_same =
        given.len() == server.tags.len() && server.tags.iter().all(|tag| given.iter().any(|t| **t == **tag));
    if config.server_tags.is_empty() || is_same {
        return;
    }
    let tags: Vec<String> = server.tags.iter().map(ToString::to_string).collect();
    tracing::warn!(
        "Ignoring --server-tag {}: this server has the tags {}; change them in rethinkdb.server_config",
        config.server_tags.join(" --server-tag "),
        tags.join(", "),
    );
}

/// The console; it answers once the port is open.
fn open_console(config: &Config, ports: &Ports, machine: &Machine) -> Result<Arc<Console>, StartError> {
    let port = ports.http.as_ref().map_or(0, |http| http.port);
    let console = Console::new(config, port, &server_name::hostname(), machine.random.clone());
    let path = config.web_static_directory.as_deref().map_or_else(String::new, shown);
    let failed =
        |cause| StartError::Unreadable { what: "page index.html of --web-static-directory", path, cause };
    Ok(Arc::new(console.map_err(failed)?))
}

/// The HTTP port, bound and perhaps not open yet.
struct HttpPort<'a> {
    config: &'a Config,
    runtime: &'a Runtime,
    pages: &'a Arc<Pages>,
    console: &'a Arc<Console>,
    bound: Option<BoundSockets>,
}

impl HttpPort<'_> {
    /// Opens it if `may_open` and it is not open yet.
    fn open_if(&mut self, may_open: bool) -> Result<(), StartError> {
        let Some(http) = self.bound.take_if(|_| may_open) else { return Ok(()) };
        let tls = encryption("http", self.config.http.as_ref())?;
        self.runtime.spawn(http::serve(
            listening("http", http)?,
            tls,
            self.pages.clone(),
            self.console.clone(),
        ));
        Ok(())
    }
}

fn encryption(service: &'static str, config: Option<&Service>) -> Result<Option<TlsAcceptor>, StartError> {
    let files = config.and_then(|service| service.tls.as_ref());
    let failed = |cause| StartError::ServiceTls { service, cause };
    files.map(tls::acceptor).transpose().map_err(failed)
}

/// The part of the node that serves drivers.
struct Running {
    shared: Arc<Shared>,
    queries: Arc<query::Service>,
    workers: Arc<Workers>,
    /// The size of the caches, which may change.
    cache_bytes: Arc<AtomicU64>,
    accountant: Arc<Accountant>,
    /// Lives as long as queries are served.
    watch: AccountantThread,
}

impl Running {
    fn start(
        config: &Config,
        plan: &MemoryPlan,
        machine: &Machine,
        node: &Arc<Node>,
        peers: &Peers,
        facts: query::ServerFacts,
    ) -> Result<Running, StartError> {
        let (random, cache_bytes) = (machine.random.clone(), facts.cache_bytes.clone());
        let accountant = Accountant::new(*plan, node.replicas().clone());
        let memory = accountant.budget().clone();
        let queries = query::Service::new(query::ServiceOptions {
            node: node.clone(),
            passwords: Arc::new(move |password, iterations| password::record(password, iterations, &*random)),
            facts,
            scan_threads: config.cores,
            http_client: outbound::http_client(config),
            scripts: outbound::scripts(config),
            memory: memory.clone(),
        });
        node.set_query_handler(Arc::new(query::QueryServer::new(queries.clone())));
        if let Some(wire) = node.query_client() {
            queries.remote_calls().connect(wire);
        }
        let service = Arc::new(NodeService::new(node.clone(), queries.clone()));
        let mut shared = Shared::new(service, machine.random.clone(), PROTOCOL_RELEASE.to_owned())?;
        shared.memory = memory;
        let configured = (config.cache, config.memory);
        CacheSizer::follow(node, configured, accountant.clone(), cache_bytes.clone());
        let watch = accountant.watch()?;
        shared.tls = encryption("driver", Some(&config.driver))?;
        let shared = Arc::new(shared);
        // With a single worker thread, a separate thread for links would only cause context switches.
        let links = if config.cores == 1 { peers.lend() } else { None };
        let workers = Arc::new(Workers::start(&shared, config.cores, links)?);
        Ok(Running { shared, queries, workers, cache_bytes, accountant, watch })
    }

    fn listen(&self, runtime: &Runtime, driver: BoundSockets) -> Result<(), StartError> {
        for socket in listening("driver", driver)? {
            runtime.spawn(accept_drivers(socket, self.workers.clone()));
        }
        Ok(())
    }

    /// Answers running queries, then closes every connection.
    fn stop(self, runtime: Runtime) {
        tracing::info!("Shutting down client connections...");
        self.shared.draining.store(true, std::sync::atomic::Ordering::SeqCst);
        self.workers.shut_down();
        drop(self.watch);
        runtime.shutdown_background();
        tracing::info!("All client connections closed.");
    }
}

/// The absolute path, so that a log read elsewhere still says where the data is.
fn shown(path: &Path) -> String {
    absolute(path).unwrap_or_else(|_| PathBuf::from(path)).display().to_string()
}
