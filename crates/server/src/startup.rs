//! The order in which a node starts: directory, ports, data, drivers; then it waits for the
//! signal to stop.
//!
//! The lines printed here are an interface: scripts wait for them.

use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cluster::{Identity, IndexThread, Node, NodeOptions, Post};
use datum::Text;
use engine::Engine;
use engine::rocks::{EngineOptions, RocksEngine};
use io::memory::Budget;
use io::real::{RealClock, RealFiles, RealRandom};
use io::{Clock, Files, Random};
use log::Log;
use log::file::{FileLog, FileLogOptions};
use shard::Replicas;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use crate::cache_size::CacheKeeper;
use crate::config::{Config, Service};
use crate::data_directory::{DataDirectory, Opening};
use crate::http::{self, Health, Observed, Pages, Sources, Stage};
use crate::listen::{Bound, accept_drivers, raise_file_limit};
use crate::log_lines::LogLines;
use crate::memory_plan::MemoryPlan;
use crate::node_service::NodeService;
use crate::outside;
use crate::password;
use crate::peers::{Peers, Surroundings};
use crate::pid_file::PidFile;
use crate::ports::{Announcement, PROTOCOL_RELEASE, Ports, cluster_addresses, facts, listening};
use crate::server_name;
use crate::start_error::StartError;
use crate::tls;
use crate::worker::Workers;
use crate::worker_state::Shared;

/// How long the catalog is waited for before that is said in the log once more.
const CATALOG_PATIENCE: Duration = Duration::from_secs(10);
/// How long a server that stops waits for others to lead in its place.
const HAND_OVER: Duration = Duration::from_secs(3);

/// Makes a data directory and stops.
pub fn create(config: &Config) -> Result<(), StartError> {
    let _lines = LogLines::start();
    let directory = DataDirectory::take(&config.directory, Opening::Create, Box::new(RealFiles))?;
    let machine = Machine::new();
    let stores = machine.open_stores(config, &MemoryPlan::new(config)?, &directory)?;
    let node = machine.open_node(config, &directory, stores, &[])?;
    set_initial_password(&node, config, &machine)?;
    tracing::info!("Created directory {} and a metadata file inside it.", shown(directory.path()));
    Ok(())
}

/// Serves as a proxy until the process is told to stop: a server that joins a cluster, holds no data and
/// answers every query. What it must remember while it runs is in a folder of its own that goes with it.
pub fn serve_proxy(mut config: Config, argv: Vec<String>) -> Result<(), StartError> {
    if config.peers.join.is_empty() {
        return Err(StartError::ProxyAlone);
    }
    let folder = std::env::temp_dir().join(format!("rekindle-proxy-{}", std::process::id()));
    config.is_proxy = true;
    config.server_tags = Vec::new();
    config.directory.clone_from(&folder);
    let served = serve(&config, Opening::CreateOrOpen, argv);
    if let Err(error) = std::fs::remove_dir_all(&folder)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!("the folder {} could not be removed: {error}", shown(&folder));
    }
    served
}

/// Serves a data directory until the process is told to stop. `argv` is the command line.
pub fn serve(config: &Config, opening: Opening, argv: Vec<String>) -> Result<(), StartError> {
    let lines = LogLines::start();
    let plan = MemoryPlan::new(config)?;
    for note in &config.notes {
        tracing::warn!("{note}");
    }
    if DataDirectory::is_new(&config.directory, &RealFiles) {
        password::check_exposure(config, config.initial_password.is_some())?;
    }
    let directory = DataDirectory::take(&config.directory, opening, Box::new(RealFiles))?;
    open_log_file(&lines, config, &directory)?;
    let _pid_file = config.pid_file.as_deref().map(PidFile::write).transpose()?;
    tracing::info!("Running rekindle {} ({})...", env!("CARGO_PKG_VERSION"), crate::PLATFORM);
    tracing::info!("Loading data from directory {}", shown(directory.path()));

    raise_file_limit();
    let ports = Ports::bind(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let pages = Arc::new(Pages { health: Arc::new(Health::new()), sources: Arc::new(Sources::new()) });
    let announcement = Announcement::of(config, &ports);
    if let Some(http) = ports.http {
        serve_pages(config, &runtime, http, &pages)?;
    }
    pages.health.enter(Stage::Starting("reading the log and opening the tables"));

    let machine = Machine::new();
    let stores = machine.open_stores(config, &plan, &directory)?;
    let addresses = cluster_addresses(config, &ports.cluster);
    let peers = stores.link(config, &directory, &machine, addresses.clone(), ports.cluster)?;
    let engine = stores.engine.clone();
    let node = machine.open_node(config, &directory, stores, &addresses)?;
    peers.reception.open(&node);
    while !node.await_catalog(CATALOG_PATIENCE) {
        tracing::info!("Waiting for the cluster's catalog...");
    }
    node.sweep_left_behind()?;
    set_initial_password(&node, config, &machine)?;
    password::check_exposure(config, node.catalog().user("admin").is_some_and(|admin| admin.has_password))?;
    let indexes = IndexThread::start(&node)?;
    let facts = facts(&plan, &announcement, &addresses, argv, machine.clock.unix());
    let facts = query::ServerFacts { logs: lines.book(), ..facts };
    let running = Running::start(config, &plan, &machine, &node, facts)?;
    pages.sources.observe(Observed {
        links: peers.links.clone(),
        counters: running.workers.counters(),
        replicas: node.replicas().clone(),
        log: node.log().clone(),
        cache_bytes_max: running.cache_bytes.clone(),
        memory: running.shared.memory.clone(),
    });
    running.listen(&runtime, ports.driver)?;
    announcement.log();
    let (id, name) = (node.identity().server.to_string(), node.name().to_string());
    tracing::info!("Server ready, \"{name}\" {id}");
    pages.health.enter(Stage::Ready { id, name });

    let end = wait_for_end(&runtime, &peers)?;
    pages.health.enter(Stage::ShuttingDown);
    part(config, &node);
    running.stop(runtime);
    peers.stop();
    drop(indexes);
    tracing::info!("Shutting down storage engine...");
    drop(node);
    engine.flush()?;
    drop(engine);
    tracing::info!("Storage engine shut down.");
    end
}

/// Returns when the process is told to stop, or the cluster has removed this server for good: it has
/// nothing to say any more then, and what it holds is old.
fn wait_for_end(runtime: &Runtime, peers: &Peers) -> Result<Result<(), StartError>, StartError> {
    let removed = Arc::new(Notify::new());
    let told = removed.clone();
    peers.reception.when_removed(Box::new(move || told.notify_one()));
    runtime.block_on(async {
        tokio::select! {
            asked = crate::shutdown::asked() => Ok(asked.map(Ok)?),
            () = removed.notified() => Ok(Err(StartError::Removed)),
        }
    })
}

/// Before a node stops: others lead what it led, and a proxy is forgotten.
fn part(config: &Config, node: &Node) {
    if config.is_proxy
        && let Err(error) = node.take_leave()
    {
        tracing::warn!("the cluster does not know that this proxy goes: {error}");
    }
    node.hand_over(HAND_OVER);
}

fn open_log_file(lines: &LogLines, config: &Config, directory: &DataDirectory) -> Result<(), StartError> {
    let path = config.log_file.clone().unwrap_or_else(|| directory.path().join("log_file"));
    let failed = |cause| StartError::File { what: "log file", path: path.display().to_string(), cause };
    lines.open_file(&path).map_err(failed)
}

fn set_initial_password(node: &Node, config: &Config, machine: &Machine) -> Result<(), StartError> {
    let Some(wanted) = &config.initial_password else { return Ok(()) };
    if node.catalog().user("admin").is_some_and(|admin| admin.has_password) {
        tracing::info!(
            "Ignoring --initial-password option because the admin password is already configured."
        );
        return Ok(());
    }
    let password = password::initial(Some(wanted), &*machine.random);
    let (record, is_set) = password::record(&password, None, &*machine.random);
    node.put_user("admin", cluster::PasswordChange::Set(record, is_set))?;
    Ok(())
}

/// The real machine.
struct Machine {
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl Machine {
    fn new() -> Machine {
        Machine {
            files: Arc::new(RealFiles),
            clock: Arc::new(RealClock::new()),
            random: Arc::new(RealRandom),
        }
    }

    /// Refuses a folder that has lost its log or its identity: either would be made anew, and what was
    /// acknowledged would be gone without a word. The log is there before the identity, and the identity
    /// before any replica.
    fn check_whole(&self, dir: &Path) -> Result<(), StartError> {
        let (files, path) = (&*self.files, dir.display().to_string());
        let has_identity = Identity::load(files, dir)?.is_some();
        let (is_whole, missing) = match has_identity {
            true => (log::file::is_there(files, &dir.join("log")), "the folder `log`"),
            false => {
                let has_replicas = log::file::has_replicas(files, &dir.join("log"));
                (has_replicas.map(|has_replicas| !has_replicas), "the file `identity.json`")
            }
        };
        match is_whole {
            Ok(true) => Ok(()),
            Ok(false) => Err(StartError::NotWhole { path, what: missing }),
            Err(cause) => Err(StartError::Unreadable { what: "log in", path, cause }),
        }
    }

    /// Opens the engine and the log in `directory`.
    fn open_stores(
        &self,
        config: &Config,
        plan: &MemoryPlan,
        directory: &DataDirectory,
    ) -> Result<Stores, StartError> {
        let dir = directory.path();
        self.check_whole(dir)?;
        let failed =
            |cause| StartError::File { what: "name file in", path: dir.display().to_string(), cause };
        let name = server_name::choose(config.server_name.as_deref(), dir, &*self.files, &*self.random)
            .map_err(failed)?;
        let engine: Arc<dyn Engine> =
            Arc::new(RocksEngine::open(&dir.join("engine"), &engine_options(config, plan))?);
        let replicas = Replicas::with_row_cache(engine.clone(), size(plan.rows))?;
        let post = Post::new(replicas.clone());
        let options = FileLogOptions {
            random: self.random.clone(),
            mail: post.clone(),
            watch: post.clone(),
            ..FileLogOptions::default()
        };
        let (files, clock) = (self.files.clone(), self.clock.clone());
        let log: Arc<dyn Log> =
            Arc::new(FileLog::open(files, clock, &dir.join("log"), replicas.clone(), options)?);
        Ok(Stores { name, engine, replicas, post, log })
    }

    /// Opens the node over `stores`, and what was not applied yet.
    fn open_node(
        &self,
        config: &Config,
        directory: &DataDirectory,
        stores: Stores,
        addresses: &[String],
    ) -> Result<Arc<Node>, StartError> {
        let texts = |texts: &[String]| texts.iter().map(|text| Text::from(text.as_str())).collect();
        Ok(Node::open(NodeOptions {
            dir: directory.path().to_owned(),
            server_name: Text::from(stores.name),
            server_tags: texts(&config.server_tags),
            cache_size_mb: config.cache.megabytes(),
            addresses: texts(addresses),
            replicas: stores.replicas,
            log: stores.log,
            post: stores.post,
            clock: self.clock.clone(),
            files: self.files.clone(),
            random: self.random.clone(),
            admin_password: password::record("", None, &*self.random),
        })?)
    }
}

/// What a data directory holds, opened, and the way letters take.
struct Stores {
    name: String,
    engine: Arc<dyn Engine>,
    replicas: Arc<Replicas>,
    post: Arc<Post>,
    log: Arc<dyn Log>,
}

impl Stores {
    fn link(
        &self,
        config: &Config,
        directory: &DataDirectory,
        machine: &Machine,
        addresses: Vec<String>,
        cluster: Bound,
    ) -> Result<Peers, StartError> {
        let around = Surroundings {
            config,
            dir: directory.path(),
            name: &self.name,
            cache_size_mb: config.cache.megabytes(),
            addresses,
            port: cluster.port,
            post: &self.post,
            log: &self.log,
            files: &machine.files,
            clock: &machine.clock,
            random: &machine.random,
        };
        Peers::start(&around, listening("cluster", cluster)?)
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn engine_options(config: &Config, plan: &MemoryPlan) -> EngineOptions {
    EngineOptions {
        cache_bytes: size(plan.blocks),
        write_buffer_bytes: size(plan.write_buffer),
        background_jobs: config.cores.max(2),
        ..EngineOptions::default()
    }
}

fn serve_pages(
    config: &Config,
    runtime: &Runtime,
    http: Bound,
    pages: &Arc<Pages>,
) -> Result<(), StartError> {
    let tls = encryption("http", config.http.as_ref())?;
    runtime.spawn(http::serve(listening("http", http)?, tls, pages.clone()));
    Ok(())
}

fn encryption(service: &'static str, config: Option<&Service>) -> Result<Option<TlsAcceptor>, StartError> {
    let files = config.and_then(|service| service.tls.as_ref());
    let failed = |cause| StartError::ServiceTls { service, cause };
    files.map(tls::acceptor).transpose().map_err(failed)
}

/// The part of the node that drivers talk to.
struct Running {
    shared: Arc<Shared>,
    workers: Arc<Workers>,
    /// The size of the caches, which may change.
    cache_bytes: Arc<AtomicU64>,
}

impl Running {
    fn start(
        config: &Config,
        plan: &MemoryPlan,
        machine: &Machine,
        node: &Arc<Node>,
        facts: query::ServerFacts,
    ) -> Result<Running, StartError> {
        let (random, cache_bytes) = (machine.random.clone(), facts.cache_bytes.clone());
        let queries = query::Service::new(query::ServiceOptions {
            node: node.clone(),
            passwords: Arc::new(move |password, iterations| password::record(password, iterations, &*random)),
            facts,
            scan_threads: config.cores,
            web: outside::web(config),
            scripts: outside::scripts(config),
        });
        node.answer_queries(Arc::new(query::QuestionDesk::new(queries.clone())));
        if let Some(wire) = node.query_wire() {
            queries.links().set(wire);
        }
        let service = Arc::new(NodeService::new(node.clone(), queries));
        let mut shared = Shared::new(service, machine.random.clone(), PROTOCOL_RELEASE.to_owned())?;
        shared.memory = Budget::new(plan.queries);
        let configured = (config.cache, config.memory);
        CacheKeeper::follow(node, configured, shared.memory.clone(), cache_bytes.clone());
        shared.tls = encryption("driver", Some(&config.driver))?;
        let shared = Arc::new(shared);
        let workers = Arc::new(Workers::start(&shared, config.cores)?);
        Ok(Running { shared, workers, cache_bytes })
    }

    fn listen(&self, runtime: &Runtime, driver: Bound) -> Result<(), StartError> {
        for socket in listening("driver", driver)? {
            runtime.spawn(accept_drivers(socket, self.workers.clone()));
        }
        Ok(())
    }

    /// Answers what runs, then lets go of every connection.
    fn stop(self, runtime: Runtime) {
        tracing::info!("Shutting down client connections...");
        self.shared.draining.store(true, std::sync::atomic::Ordering::SeqCst);
        self.workers.shut_down();
        runtime.shutdown_background();
        tracing::info!("All client connections closed.");
    }
}

/// The whole path, so that a log read elsewhere says where the data is.
fn shown(path: &Path) -> String {
    absolute(path).unwrap_or_else(|_| PathBuf::from(path)).display().to_string()
}
