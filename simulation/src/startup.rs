//! Starts a node on a machine: the steps of `crates/server` without sockets and flags.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::link::{AddressBook, LinkHandler, LinkOptions, LinkTimings, Links, LocalServer, QueueLimits};
use cluster::{
    CopyChunking, Identity, Inbound, JoinOptions, Node, NodeOptions, PeerTransport, ServerId,
    UNASSIGNED_PEER, Wiring,
};
use datum::{Object, Text};
use engine::BufferedEngine;
use engine::memory::MemoryEngine;
use io::sim::{SimClock, SimRandom};
use io::{Clock, Files, Random, task};
use log::Log;
use log::file::{FileLog, FileLogOptions, StoreOptions};
use parking_lot::Mutex;
use shard::Replicas;
use storage::{CompressedEngine, CompressionOptions};
use uuid::Uuid;

use crate::disk::Disk;
use crate::elections::{ElectionObserver, Elections};
use crate::executor::Executor;

const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a node checks the progress of its log.
const LOG_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Small enough to be handed over often, large enough that a kill loses some.
const BUFFER_BYTES_MAX: usize = 16 << 10;
/// Dictionaries are trained early and often, and few of them stay prepared.
const COMPRESSION: CompressionOptions =
    CompressionOptions { memory_bytes: 128 << 10, first_training_bytes: 8 << 10 };

/// The options of a node.
#[derive(Clone)]
pub struct NodePlan {
    /// The number of its machine.
    pub number: usize,
    /// Its address for the other nodes.
    pub address: String,
    /// The addresses at which it joins.
    pub join: Vec<String>,
    pub disk: Disk,
    /// The stored state of its engine.
    pub engine: MemoryEngine,
    pub clock: SimClock,
    /// Its random numbers.
    pub random: SimRandom,
    /// The timeouts of its links.
    pub timings: LinkTimings,
    /// The size above which the log is trimmed.
    pub log_bytes_max: u64,
    /// The record of elections.
    pub elections: Elections,
    /// The chunk sizes of copies of rows.
    pub copy_sizes: CopyChunking,
    /// Whether it watches its log, which it does if disks fail.
    pub watches_log: bool,
}

/// The progress of a start.
#[derive(Default)]
pub struct Started {
    /// The links, which the event loop drives.
    pub links: Option<(Links, LinkHandler)>,
    /// The node, once it serves.
    pub node: Option<Arc<Node>>,
    /// Why the start failed.
    pub failed: Option<String>,
    /// The server was removed permanently, so its process has to end.
    pub was_removed: bool,
}

type Slot = Arc<Mutex<Started>>;

/// Starts the node; the body of its first thread.
pub fn start(plan: &NodePlan, slot: &Slot) {
    if let Err(why) = try_start(plan, slot) {
        slot.lock().failed = Some(why);
    }
}

/// The simulated system of a node.
struct System {
    dir: PathBuf,
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

fn try_start(plan: &NodePlan, slot: &Slot) -> Result<(), String> {
    let system = System {
        dir: PathBuf::from("data"),
        files: Arc::new(plan.disk.clone()),
        clock: Arc::new(plan.clock.clone()),
        random: Arc::new(plan.random.clone()),
    };
    let System { dir, files, random, .. } = &system;
    files.create_dir_all(dir).map_err(text)?;
    files.sync_dir(Path::new("")).map_err(text)?;
    // Without a thread: the buffer is handed over when it is full, before a snapshot and before a flush.
    let engine = CompressedEngine::new(Arc::new(plan.engine.clone()), COMPRESSION);
    let engine = BufferedEngine::new(Arc::new(engine), BUFFER_BYTES_MAX);
    let replicas = Replicas::new(Arc::new(engine)).map_err(text)?;
    let wiring = Wiring::new(replicas.clone());
    let log = open_log(plan, &system, &replicas, &wiring)?;
    let identity = load_identity(plan, &system)?;
    let server = identity.as_ref().map_or_else(|| ServerId(uuid(&**random)), |identity| identity.server);
    let joining = identity.is_none().then_some(server);
    let inbound =
        Inbound::new(wiring.clone(), log.clone(), files.clone(), dir.clone(), joining).map_err(text)?;
    let started = Arc::downgrade(slot);
    inbound.on_removed(Box::new(move || {
        started.upgrade().into_iter().for_each(|started| started.lock().was_removed = true);
    }));
    let links = open_links(plan, &system, identity.as_ref().map(|known| known.cluster), server)?;
    wiring.peers.connect(Arc::new(links.clone()) as Arc<dyn PeerTransport>);
    let handler = links.handler(inbound.clone()).ok_or("the links are in use")?;
    slot.lock().links = Some((links, handler));
    let cluster = cluster_to_join(identity.as_ref(), &inbound);
    let name = Text::from(format!("n{}", plan.number));
    let tags = vec![Text::from_static("default")];
    let addresses = vec![Text::from(plan.address.as_str())];
    if let Some(cluster) = cluster {
        let (name, tags, addresses) = (name.clone(), tags.clone(), addresses.clone());
        let options =
            JoinOptions { server, cluster, name, tags, cache_size_mb: None, addresses, is_proxy: false };
        let members = || Some(inbound.members());
        cluster::join(&options, &wiring, members, &**files, dir, Some(WAIT_TIMEOUT * 3000)).map_err(text)?;
    }
    let System { dir, files, clock, random } = system;
    let node = Node::open(NodeOptions {
        dir,
        server_name: name,
        server_tags: tags,
        cache_size_mb: None,
        addresses,
        replicas,
        log,
        wiring,
        clock,
        files,
        random,
        feed_retention: std::time::Duration::from_secs(3600),
        admin_password: (Object::default(), false),
    })
    .map_err(text)?;
    node.copies().set_chunking(plan.copy_sizes);
    node.set_query_handler(Arc::new(Executor::new(&node)));
    inbound.open(node.rpc_server());
    while !node.await_catalog(WAIT_TIMEOUT) {}
    if plan.watches_log {
        let node = Arc::downgrade(&node);
        task::spawn("log-watch", move || watch_log(&node)).map_err(text)?;
    }
    slot.lock().node = Some(node);
    Ok(())
}

fn open_log(
    plan: &NodePlan,
    system: &System,
    replicas: &Arc<Replicas>,
    wiring: &Wiring,
) -> Result<Arc<dyn Log>, String> {
    let (elections, machine) = (plan.elections.clone(), plan.number);
    let options = FileLogOptions {
        store: StoreOptions { segment_bytes: plan.log_bytes_max / 4 },
        log_bytes_max: plan.log_bytes_max,
        random: system.random.clone(),
        transport: wiring.transport.clone(),
        observer: Arc::new(ElectionObserver { wiring: wiring.clone(), elections, machine }),
        ..FileLogOptions::default()
    };
    let System { dir, files, clock, .. } = system;
    let log = FileLog::open(files.clone(), clock.clone(), &dir.join("log"), replicas.clone(), options);
    Ok(Arc::new(log.map_err(text)?))
}

/// The stored identity; a node that joins no others bootstraps a cluster if it has none.
fn load_identity(plan: &NodePlan, system: &System) -> Result<Option<Identity>, String> {
    let System { dir, files, random, .. } = system;
    let known = Identity::load(&**files, dir).map_err(text)?;
    if known.is_some() || !plan.join.is_empty() {
        return Ok(known);
    }
    let (server, cluster) = (ServerId(uuid(&**random)), uuid(&**random));
    let identity = Identity { server, cluster, joined: None };
    identity.store(&**files, dir).map_err(text)?;
    Ok(Some(identity))
}

/// The cluster that the node still has to join: that of its identity, or the first one that answers.
fn cluster_to_join(identity: Option<&Identity>, inbound: &Inbound) -> Option<Uuid> {
    match identity {
        Some(identity) if identity.joined == Some(UNASSIGNED_PEER) => Some(identity.cluster),
        Some(_) => None,
        None => Some(loop {
            if let Some(cluster) = inbound.await_cluster(WAIT_TIMEOUT) {
                break cluster;
            }
        }),
    }
}

fn open_links(
    plan: &NodePlan,
    system: &System,
    cluster: Option<Uuid>,
    server: ServerId,
) -> Result<Links, String> {
    let local = LocalServer {
        cluster,
        server,
        name: format!("n{}", plan.number),
        tags: vec!["default".to_owned()],
        addresses: vec![plan.address.clone()],
        canonical: Vec::new(),
        port: 29015,
        is_proxy: false,
    };
    Ok(Links::new(LinkOptions {
        local,
        join: plan.join.clone(),
        address_book: load_address_book(&*system.files, &system.dir)?,
        timings: plan.timings,
        limits: QueueLimits::default(),
        clock: system.clock.clone(),
        random: system.random.clone(),
    }))
}

/// Checks the progress of the log regularly while the node exists.
fn watch_log(node: &Weak<Node>) {
    loop {
        task::sleep(LOG_CHECK_INTERVAL);
        match node.upgrade() {
            Some(node) => node.stall_monitor().check(),
            None => return,
        }
    }
}

fn load_address_book(files: &dyn Files, dir: &Path) -> Result<AddressBook, String> {
    match files.read(&dir.join(AddressBook::FILE)) {
        Ok(bytes) => AddressBook::parse(&bytes).map_err(|cause| format!("{cause:?}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(AddressBook::default()),
        Err(error) => Err(error.to_string()),
    }
}

fn uuid(random: &dyn Random) -> Uuid {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

fn text(error: impl std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        words = format!("{words}: {inner}");
        cause = inner.source();
    }
    words
}
