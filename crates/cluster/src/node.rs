//! A node: its engine, its log, the catalog in group zero and every replica that the catalog places
//! here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use datum::{Object, Text};
use engine::Engine;
use io::task::{self, Condvar, Thread};
use io::{Clock, Files, Nanos, Random};
use log::{GroupId, Log, Lsn, PeerId};
use parking_lot::Mutex;
use shard::{Replicas, Shard};
use storage::TableId;
use uuid::Uuid;

use crate::catalog_replica::CatalogReplica;
use crate::copies::Copies;
use crate::hosted::{Gate, Hosted};
use crate::news::Notifier;
use crate::pending::Pending;
use crate::post::{Event, Post};
use crate::stalls::Stalls;
use crate::{AdminError, Catalog, Identity, OpenError, RpcHandler, ServerId};

pub(crate) use crate::catalog_replica::{CATALOG_GROUP, CATALOG_TABLE};

/// What a node is opened with.
pub struct NodeOptions {
    /// Its data directory, which exists and is locked by the caller.
    pub dir: PathBuf,
    /// The name of a new server.
    pub server_name: Text,
    /// The tags of a new server.
    pub server_tags: Vec<Text>,
    /// The cache of a new server in megabytes; `None` chooses.
    pub cache_size_mb: Option<u64>,
    /// Where other servers reach this one, `host:port`.
    pub addresses: Vec<Text>,
    /// Every shard of the engine, as the log applies to them.
    pub replicas: Arc<Replicas>,
    /// The log of all groups, which sends through `post` and is watched by it.
    pub log: Arc<dyn Log>,
    /// Letters and news.
    pub post: Arc<Post>,
    /// The clock queries see.
    pub clock: Arc<dyn Clock>,
    /// The files of the data directory.
    pub files: Arc<dyn Files>,
    /// Where identities come from.
    pub random: Arc<dyn Random>,
    /// The password record of a new `admin`, and whether its password is not empty.
    pub admin_password: (Object, bool),
}

/// One server of the cluster and everything it holds. Dropping it ends its thread; the log and the
/// engine end with their last owner.
pub struct Node {
    core: Arc<Core>,
    threads: Vec<Thread>,
}

/// What a node's own thread and its users share.
pub struct Core {
    pub(crate) identity: Identity,
    pub(crate) at_start: AtStart,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) post: Arc<Post>,
    clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) catalog_shard: Arc<Shard>,
    pub(crate) catalog_peer: PeerId,
    /// Never shut.
    pub(crate) catalog_gate: Arc<Gate>,
    /// The end of the catalog's log at the start.
    pub(crate) catalog_end: Lsn,
    pub(crate) past_is_known: AtomicBool,
    /// The catalog shown here is not older than what this node has acted on.
    pub(crate) past_is_shown: AtomicBool,
    /// What a crash had left behind was removed.
    pub(crate) is_swept: AtomicBool,
    /// Tables with rows that are to be removed once the catalog lets go of them.
    pub(crate) owing: Mutex<BTreeSet<TableId>>,
    pub(crate) pending: Mutex<Pending>,
    /// Held while a change of a group's members, or a mark, is proposed.
    pub(crate) members_or_marks: Mutex<()>,
    pub(crate) catalog: ArcSwap<Catalog>,
    /// Held while this node changes the catalog: one change at a time.
    pub(crate) changing: Mutex<()>,
    pub(crate) published: Condvar,
    pub(crate) waiting: Mutex<()>,
    pub(crate) publishing: Mutex<()>,
    pub(crate) hosted: Mutex<BTreeMap<GroupId, Hosted>>,
    pub(crate) copies: Copies,
    pub(crate) stalls: Arc<Stalls>,
    /// How long servers have to come back before a repair gives them up, if that was set.
    pub(crate) return_patience: Mutex<Option<Duration>>,
    pub(crate) queries: OnceLock<Arc<dyn RpcHandler>>,
    pub(crate) stopping: AtomicBool,
    pub(crate) index_news: Arc<Notifier>,
    pub(crate) watcher: OnceLock<CatalogWatcher>,
}

/// Is shown every new picture of the catalog, one after another, by the thread that publishes it.
pub type CatalogWatcher = Box<dyn Fn(&Catalog) + Send + Sync>;

/// What a server that is new to the catalog says of itself.
pub(crate) struct AtStart {
    pub(crate) name: Text,
    pub(crate) tags: Vec<Text>,
    pub(crate) cache_size_mb: Option<u64>,
    pub(crate) addresses: Vec<Text>,
    /// What both clocks showed.
    clocks: (Nanos, Duration),
}

impl Deref for Node {
    type Target = Core;
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.core.stopping.store(true, Ordering::Release);
        self.core.post.tell(Event::Stop);
        for thread in self.threads.drain(..) {
            thread.unpark();
            thread.join();
        }
    }
}

impl Node {
    /// Opens the node: its identity (made in a new directory), the catalog, every replica that is
    /// placed here, and removes what is left of those that are not.
    ///
    /// Blocks while the log is replayed. Fails when anything stored cannot be read. A node that has
    /// joined and does not have the catalog yet opens without one: [`Core::await_catalog`].
    pub fn open(options: NodeOptions) -> Result<Arc<Node>, OpenError> {
        Node::open_on(options, None)
    }

    /// Who the node on that folder is; a new one makes a cluster of its own.
    fn identity_in(options: &NodeOptions) -> Result<Identity, OpenError> {
        if let Some(identity) = Identity::load(&*options.files, &options.dir)? {
            return Ok(identity);
        }
        let random = &*options.random;
        let identity =
            Identity { server: ServerId(random_uuid(random)), cluster: random_uuid(random), joined: None };
        identity.store(&*options.files, &options.dir)?;
        Ok(identity)
    }

    /// As [`Node::open`], over a replica of the catalog that is open already.
    pub fn open_on(options: NodeOptions, catalog: Option<CatalogReplica>) -> Result<Arc<Node>, OpenError> {
        let random = options.random.clone();
        let identity = Node::identity_in(&options)?;
        let (replicas, log) = (options.replicas, options.log);
        let catalog =
            catalog.map_or_else(|| CatalogReplica::open(&identity, &replicas, &log, &options.post), Ok)?;
        let catalog_shard = catalog.shard;
        let begun = log.group_status(CATALOG_GROUP).map_err(AdminError::from)?;
        let votes_alone = begun.members.voters == [begun.own] && !begun.needs_rows;
        let post = Arc::downgrade(&options.post);
        catalog_shard.on_applied(Box::new(move |_| tell(&post, Event::Catalog)));
        let post = Arc::downgrade(&options.post);
        replicas.on_seal_change(Box::new(move |group| tell(&post, Event::Marked(group))));
        let core = Arc::new(Core {
            identity,
            at_start: AtStart {
                name: options.server_name,
                tags: options.server_tags,
                cache_size_mb: options.cache_size_mb,
                addresses: options.addresses,
                clocks: (options.clock.now(), options.clock.unix()),
            },
            replicas,
            log,
            post: options.post,
            clock: options.clock,
            random,
            catalog_shard,
            catalog_peer: begun.own,
            catalog_gate: Arc::default(),
            catalog_end: begun.last,
            past_is_known: AtomicBool::new(false),
            past_is_shown: AtomicBool::new(false),
            is_swept: AtomicBool::new(false),
            owing: Mutex::default(),
            pending: Mutex::default(),
            members_or_marks: Mutex::new(()),
            catalog: ArcSwap::from_pointee(Catalog::default()),
            changing: Mutex::new(()),
            published: Condvar::new(),
            waiting: Mutex::new(()),
            publishing: Mutex::new(()),
            hosted: Mutex::default(),
            copies: Copies::default(),
            stalls: Arc::default(),
            return_patience: Mutex::default(),
            queries: OnceLock::new(),
            stopping: AtomicBool::new(false),
            index_news: Arc::default(),
            watcher: OnceLock::new(),
        });
        core.publish()?;
        let start = |name: &str, work: fn(&Arc<Core>)| {
            let core = Arc::clone(&core);
            task::spawn(name, move || work(&core))
        };
        let threads = vec![start("keeper", Core::keep)?, start("tender", |core| core.keep_tending())?];
        let node = Arc::new(Node { core, threads });
        // Where others vote too, all of this was written before they joined; this one may not have heard it again.
        if node.identity.joined.is_none() && votes_alone {
            node.first_rows(options.admin_password)?;
            node.describe_myself()?;
        }
        if node.catalog().user("admin").is_some() {
            node.sweep_left_behind()?;
        }
        Ok(node)
    }
}

impl Node {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Core {
    /// The catalog at this moment.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Shows the catalog to `watcher`, now and whenever it has changed. Only the first one is kept.
    pub fn watch_catalog(&self, watcher: CatalogWatcher) {
        // Held so that the watcher misses no picture and sees none twice at once.
        let _one_at_a_time = task::lock(&self.publishing);
        self.watcher.get_or_init(|| watcher)(&self.catalog());
    }

    /// The catalog at this moment, without touching its reference count; hold it briefly.
    #[must_use]
    pub fn catalog_guard(&self) -> arc_swap::Guard<Arc<Catalog>> {
        self.catalog.load()
    }

    /// Returns once the change of the catalog that this node makes, if there is one, is published or
    /// given up. Whoever was sent away by a retired shard waits here before asking again.
    pub fn await_change(&self) {
        drop(task::lock(&self.changing));
    }

    /// Which server this is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The server's present name.
    #[must_use]
    pub fn name(&self) -> Text {
        let catalog = self.catalog_guard();
        catalog.server(self.identity.server).map_or_else(|| self.at_start.name.clone(), |s| s.name.clone())
    }

    /// Whether this server holds no data and only answers clients.
    #[must_use]
    pub fn is_proxy(&self) -> bool {
        self.catalog_guard().server(self.identity.server).is_some_and(|server| server.is_proxy)
    }

    /// The clock queries see.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// When it was `at`, by the clock on the wall as it was set when this node was opened: the time since 1970 began.
    #[must_use]
    pub fn unix_at(&self, at: Nanos) -> Duration {
        let (now, unix) = self.at_start.clocks;
        (unix + at.since(now)).saturating_sub(now.since(at))
    }

    /// Where a query's chance comes from.
    #[must_use]
    pub fn random(&self) -> &Arc<dyn Random> {
        &self.random
    }

    /// The engine under all tables, for its figures.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        self.replicas.engine()
    }

    /// The log of all groups, for its figures.
    #[must_use]
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// All shards of the engine, for their figures.
    #[must_use]
    pub fn replicas(&self) -> &Arc<Replicas> {
        &self.replicas
    }

    /// Whether requests reach `server` now; a node always reaches itself.
    #[must_use]
    pub fn is_connected(&self, server: ServerId) -> bool {
        server == self.identity.server || self.post.wire().is_some_and(|wire| wire.is_connected(server))
    }

    /// The server that a replica is on, as far as this node knows.
    #[must_use]
    pub fn server_of(&self, peer: PeerId) -> Option<ServerId> {
        self.post.server_of(peer)
    }

    /// A random UUID of version 4.
    #[must_use]
    pub fn new_uuid(&self) -> Uuid {
        random_uuid(&*self.random)
    }

    /// A name for a new replica.
    pub(crate) fn new_peer(&self) -> PeerId {
        PeerId((self.random.next_u64() >> 1) | 1)
    }
}

/// Tells a post of `event`. The post has the shards: what those have must not keep it.
fn tell(post: &Weak<Post>, event: Event) {
    if let Some(post) = post.upgrade() {
        post.tell(event);
    }
}

fn random_uuid(random: &dyn Random) -> Uuid {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}
