//! How a node comes up on a machine: the steps of `crates/server`, without sockets and flags.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::link::{Book, LinkOptions, LinkParty, LinkTimings, Links, Me, QueueLimits};
use cluster::{
    CopyChunking, Identity, Inbound, JoinOptions, Node, NodeOptions, PeerTransport, Post, ServerId,
    UNASSIGNED_PEER,
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
use uuid::Uuid;

use crate::disk::Disk;
use crate::elections::{Elections, Witness};
use crate::executor::Executor;

const PATIENCE: Duration = Duration::from_secs(10);
/// So often a node looks whether its log gets on.
const LOG_LOOK: Duration = Duration::from_millis(500);
/// So little that it is handed over again and again, so much that a kill finds something.
const GATHERED_BYTES_MAX: usize = 16 << 10;

/// What a node needs to start.
#[derive(Clone)]
pub struct Plan {
    /// Which machine.
    pub number: usize,
    /// Where others reach it.
    pub address: String,
    /// Whom it asks to be let in.
    pub join: Vec<String>,
    /// Its disk.
    pub disk: Disk,
    /// What its engine has kept.
    pub engine: MemoryEngine,
    /// Time.
    pub clock: SimClock,
    /// Chance.
    pub random: SimRandom,
    /// How patient its links are.
    pub timings: LinkTimings,
    /// The log is trimmed beyond this.
    pub log_bytes_max: u64,
    /// Who is told of elections.
    pub elections: Elections,
    /// In what pieces rows are copied.
    pub copy_sizes: CopyChunking,
    /// Whether it looks after its log: where disks are full, or hang.
    pub minds_log: bool,
}

/// How far a start has come.
#[derive(Default)]
pub struct Started {
    /// The links, for the world to drive.
    pub links: Option<(Links, LinkParty)>,
    /// The node, once it serves.
    pub node: Option<Arc<Node>>,
    /// Why it does not start.
    pub failed: Option<String>,
    /// The other servers say that this one was removed for good: a process ends then.
    pub was_removed: bool,
}

type Slot = Arc<Mutex<Started>>;

/// Starts the node; the body of its first thread.
pub fn start(plan: &Plan, slot: &Slot) {
    if let Err(why) = try_start(plan, slot) {
        slot.lock().failed = Some(why);
    }
}

fn try_start(plan: &Plan, slot: &Slot) -> Result<(), String> {
    let dir = PathBuf::from("data");
    let files: Arc<dyn Files> = Arc::new(plan.disk.clone());
    let clock: Arc<dyn Clock> = Arc::new(plan.clock.clone());
    let random: Arc<dyn Random> = Arc::new(plan.random.clone());
    files.create_dir_all(&dir).map_err(text)?;
    files.sync_dir(Path::new("")).map_err(text)?;
    // Without a thread: what it gathers leaves when there is too much, before a snapshot and before a flush.
    let engine = BufferedEngine::new(Arc::new(plan.engine.clone()), GATHERED_BYTES_MAX);
    let replicas = Replicas::new(Arc::new(engine)).map_err(text)?;
    let post = Post::new(replicas.clone());
    let (elections, machine) = (plan.elections.clone(), plan.number);
    let witness = Arc::new(Witness { post: post.clone(), elections, machine });
    let options = FileLogOptions {
        store: StoreOptions { segment_bytes: plan.log_bytes_max / 4 },
        log_bytes_max: plan.log_bytes_max,
        random: random.clone(),
        transport: post.clone(),
        observer: witness,
        ..FileLogOptions::default()
    };
    let log = FileLog::open(files.clone(), clock.clone(), &dir.join("log"), replicas.clone(), options);
    let log: Arc<dyn Log> = Arc::new(log.map_err(text)?);
    let known = Identity::load(&*files, &dir).map_err(text)?;
    let identity = match known {
        None if plan.join.is_empty() => {
            let (server, cluster) = (ServerId(uuid(&*random)), uuid(&*random));
            let identity = Identity { server, cluster, joined: None };
            identity.store(&*files, &dir).map_err(text)?;
            Some(identity)
        }
        known => known,
    };
    let server = identity.as_ref().map_or_else(|| ServerId(uuid(&*random)), |identity| identity.server);
    let newcomer = identity.is_none().then_some(server);
    let reception =
        Inbound::new(post.clone(), log.clone(), files.clone(), dir.clone(), newcomer).map_err(text)?;
    let told = Arc::downgrade(slot);
    reception.when_removed(Box::new(move || {
        told.upgrade().into_iter().for_each(|started| started.lock().was_removed = true);
    }));
    let me = Me {
        cluster: identity.as_ref().map(|known| known.cluster),
        server,
        name: format!("n{}", plan.number),
        tags: vec!["default".to_owned()],
        addresses: vec![plan.address.clone()],
        canonical: Vec::new(),
        port: 29015,
        is_proxy: false,
    };
    let links = Links::new(LinkOptions {
        me,
        join: plan.join.clone(),
        book: load_book(&*files, &dir)?,
        timings: plan.timings,
        limits: QueueLimits::default(),
        clock: clock.clone(),
        random: random.clone(),
    });
    post.connect(Arc::new(links.clone()) as Arc<dyn PeerTransport>);
    let party = links.party(reception.clone()).ok_or("the links are in use")?;
    slot.lock().links = Some((links, party));
    let cluster = match &identity {
        Some(identity) if identity.joined == Some(UNASSIGNED_PEER) => Some(identity.cluster),
        Some(_) => None,
        None => Some(loop {
            if let Some(cluster) = reception.await_cluster(PATIENCE) {
                break cluster;
            }
        }),
    };
    let name = Text::from(format!("n{}", plan.number));
    let tags = vec![Text::from_static("default")];
    let addresses = vec![Text::from(plan.address.as_str())];
    if let Some(cluster) = cluster {
        let (name, tags, addresses) = (name.clone(), tags.clone(), addresses.clone());
        let options =
            JoinOptions { server, cluster, name, tags, cache_size_mb: None, addresses, is_proxy: false };
        let members = || Some(reception.members());
        cluster::join(&options, &post, members, &*files, &dir, Some(PATIENCE * 3000)).map_err(text)?;
    }
    let node = Node::open(NodeOptions {
        dir,
        server_name: name,
        server_tags: tags,
        cache_size_mb: None,
        addresses,
        replicas,
        log,
        post,
        clock,
        files,
        random,
        admin_password: (Object::default(), false),
    })
    .map_err(text)?;
    node.set_copy_sizes(plan.copy_sizes);
    node.answer_queries(Arc::new(Executor::new(&node)));
    reception.open(&node);
    while !node.await_catalog(PATIENCE) {}
    if plan.minds_log {
        let node = Arc::downgrade(&node);
        task::spawn("log-look", move || mind_log(&node)).map_err(text)?;
    }
    slot.lock().node = Some(node);
    Ok(())
}

/// Looks again and again whether the log gets on, for as long as there is the node.
fn mind_log(node: &Weak<Node>) {
    loop {
        task::sleep(LOG_LOOK);
        match node.upgrade() {
            Some(node) => node.mind_log(),
            None => return,
        }
    }
}

fn load_book(files: &dyn Files, dir: &Path) -> Result<Book, String> {
    match files.read(&dir.join(Book::FILE)) {
        Ok(bytes) => Book::parse(&bytes).map_err(|cause| format!("{cause:?}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Book::default()),
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
