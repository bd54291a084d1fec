//! Machines whose nodes reach each other without sockets, and rows to write.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datum::{Bytes, Datum, Object, PrimaryKey, Text};
use engine::Engine;
use engine::memory::MemoryEngine;
use io::Files;
use io::real::{RealClock, RealRandom};
use io::sim::SimFiles;
use log::file::{FileLog, FileLogOptions, StoreOptions};
use log::{Durability, GroupId, Log, LogError, Message};
use parking_lot::{Mutex, RwLock};
use rekindle_cluster::{
    AdminError, Identity, JoinOptions, Node, NodeOptions, OnResponse, PeerTransport, Route, RpcClient,
    RpcError, RpcHandler, RpcServer, ServerId, ShardsWanted, TableChange, TableConfig, Wanted, Wiring, join,
    readiness,
};
use shard::{Decision, Replicas, WriteError};
use storage::TableId;

pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long a repair waits for whoever was killed.
const RETURN_PATIENCE: Duration = Duration::from_millis(500);
/// The network: who is there, and how to reach them.
#[derive(Default)]
pub struct Hub {
    pub ends: RwLock<HashMap<ServerId, Arc<End>>>,
    cuts: RwLock<Vec<[ServerId; 2]>>,
    tolls: Mutex<HashMap<ServerId, Toll>>,
    deaf: Mutex<Vec<(ServerId, GroupId)>>,
    unnoticed: Mutex<Vec<[ServerId; 2]>>,
    meddler: RwLock<Option<Box<Meddler>>>,
}

/// An answer on its way to whoever asked.
pub struct Passing {
    pub asked_by: ServerId,
    pub answered_by: ServerId,
    /// The kind of the question (docs/formats/cluster-request.md); none of a query's.
    pub kind: Option<u8>,
    /// The group that it is about, where it is about one.
    pub group: Option<GroupId>,
    pub bytes: Bytes,
}

/// What becomes of an answer; who gets none waits as long as it has patience.
type Meddler = dyn Fn(Passing) -> Option<Bytes> + Send + Sync;

/// The bytes of answers that a server got, and how many it gets at most: the rest is lost on the way.
#[derive(Clone, Copy)]
struct Toll {
    bytes: u64,
    most: u64,
}

impl Hub {
    /// Counts the bytes of answers to `server` from now on; more than `most` do not arrive.
    pub fn count_answers(&self, server: ServerId, most: u64) {
        self.tolls.lock().insert(server, Toll { bytes: 0, most });
    }

    /// The bytes of answers that came to `server` since it is counted, and whether some were lost.
    pub fn answered(&self, server: ServerId) -> (u64, bool) {
        self.tolls
            .lock()
            .get(&server)
            .map_or((0, false), |toll| (toll.bytes.min(toll.most), toll.bytes > toll.most))
    }

    /// From now on no letters of a group come to `server`.
    pub fn deafen(&self, server: ServerId, group: GroupId) {
        self.deaf.lock().push((server, group));
    }

    /// All letters come to everybody again.
    pub fn let_all_hear(&self) {
        self.deaf.lock().clear();
    }

    /// From now on these two do not reach each other.
    pub fn cut(&self, one: ServerId, other: ServerId) {
        self.cuts.write().extend([[one, other], [other, one]]);
    }

    /// From now on nothing goes between these two, and nobody has noticed: they count as connected.
    pub fn cut_unnoticed(&self, one: ServerId, other: ServerId) {
        self.unnoticed.lock().extend([[one, other], [other, one]]);
    }

    fn is_cut_unnoticed(&self, one: ServerId, other: ServerId) -> bool {
        self.unnoticed.lock().contains(&[one, other])
    }

    /// These two reach each other again.
    pub fn mend_between(&self, pair: [ServerId; 2]) {
        self.cuts.write().retain(|cut| !cut.iter().all(|server| pair.contains(server)));
    }

    /// All reach each other again.
    pub fn mend(&self) {
        self.cuts.write().clear();
        self.unnoticed.lock().clear();
    }

    /// From now on answers become what `meddler` makes of them.
    pub fn meddle(&self, meddler: impl Fn(Passing) -> Option<Bytes> + Send + Sync + 'static) {
        *self.meddler.write() = Some(Box::new(meddler));
    }

    fn meddled(&self, passing: Passing) -> Option<Bytes> {
        let cut = self.is_cut_unnoticed(passing.asked_by, passing.answered_by);
        let passed = match &*self.meddler.read() {
            Some(meddler) => meddler(passing),
            None => Some(passing.bytes),
        };
        passed.filter(|_| !cut)
    }

    fn passes(&self, server: ServerId, bytes: usize) -> bool {
        let mut tolls = self.tolls.lock();
        let Some(toll) = tolls.get_mut(&server) else { return true };
        toll.bytes += bytes as u64;
        toll.bytes <= toll.most
    }
}

pub struct End {
    pub wiring: Wiring,
    pub log: Arc<dyn Log>,
    pub desk: RwLock<Option<RpcServer>>,
    // The heartbeats its links were told.
    pub heard: Mutex<Vec<Duration>>,
}

/// One node's way into the network. It works only while the node is in it.
pub struct Line {
    pub hub: Arc<Hub>,
    pub own: ServerId,
}

impl Line {
    fn to(&self, server: ServerId) -> Option<Arc<End>> {
        if self.hub.cuts.read().contains(&[self.own, server]) {
            return None;
        }
        let ends = self.hub.ends.read();
        ends.contains_key(&self.own).then(|| ends.get(&server).cloned())?
    }
}

impl RpcClient for Line {
    fn call(&self, server: ServerId, question: Bytes, patience: Duration, answered: OnResponse) {
        let Some(end) = self.to(server) else { return answered(Err(RpcError::NotConnected(server))) };
        let (own, hub) = (self.own, Arc::clone(&self.hub));
        let kind = question.get(2).copied().filter(|_| question[0] == 0);
        let group = question.get(3..11).map(|bytes| GroupId(u64::from_le_bytes(bytes.try_into().unwrap())));
        std::thread::spawn(move || {
            let (sender, receiver) = std::sync::mpsc::sync_channel(1);
            match &*end.desk.read() {
                Some(desk) => desk.handle(own, question, Box::new(move |reply| drop(sender.send(reply)))),
                None => drop(sender),
            }
            let passing = |bytes| Passing { asked_by: own, answered_by: server, kind, group, bytes };
            let reply = receiver.recv().map(|reply| reply.map(|bytes| hub.meddled(passing(bytes))));
            let reply = match reply {
                Ok(Ok(None)) => {
                    std::thread::sleep(patience);
                    return answered(Err(RpcError::NoAnswer(server)));
                }
                Ok(Ok(Some(bytes))) => Ok(Ok(bytes)),
                Ok(Err(why)) => Ok(Err(why)),
                Err(gone) => Err(gone),
            };
            answered(match reply {
                Ok(Ok(reply)) if !hub.passes(own, reply.len()) => Err(RpcError::NoAnswer(server)),
                Ok(reply) => reply.map_err(|why| RpcError::Refused { server, why }),
                Err(_) => Err(RpcError::NoAnswer(server)),
            });
        });
    }

    fn is_connected(&self, server: ServerId) -> bool {
        self.to(server).is_some()
    }
}

impl PeerTransport for Line {
    fn send(&self, to: ServerId, mut letters: Vec<Message>) {
        let deaf = self.hub.deaf.lock().clone();
        letters.retain(|letter| !deaf.contains(&(to, letter.group)));
        if self.hub.is_cut_unnoticed(self.own, to) {
            return;
        }
        if let Some(end) = self.to(to) {
            end.wiring.transport.receive(self.own, letters, &*end.log);
        }
    }

    fn set_heartbeat(&self, timeout: Duration) {
        if let Some(end) = self.hub.ends.read().get(&self.own) {
            end.heard.lock().push(timeout);
        }
    }
}

/// What stays when a node is killed.
pub struct Machine {
    pub name: &'static str,
    pub engine: Arc<dyn Engine>,
    pub files: Arc<dyn Files>,
    /// Its log keeps no more than this.
    pub log_bytes_max: u64,
}

/// A node that runs.
pub struct Running {
    pub node: Arc<Node>,
    hub: Arc<Hub>,
}

impl Machine {
    pub fn new(name: &'static str) -> Machine {
        let files: Arc<dyn Files> = Arc::new(SimFiles::new(7));
        files.create_dir_all(&PathBuf::from("data")).unwrap();
        let log_bytes_max = FileLogOptions::default().log_bytes_max;
        Machine { name, engine: Arc::new(MemoryEngine::new()), files, log_bytes_max }
    }

    /// Starts the node; one without an identity joins `into`, if that is given.
    pub fn start(&self, hub: &Arc<Hub>, into: Option<&Running>) -> Running {
        let running = self.start_unheard(hub, into);
        assert!(running.node.await_catalog(PATIENCE), "{} has no catalog", self.name);
        running
    }

    /// The machine's log, as soon as whoever was stopped here has let go of it.
    fn log_of(&self, dir: &Path, replicas: &Arc<Replicas>, wiring: &Wiring) -> Arc<dyn Log> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let defaults = FileLogOptions::default();
            let options = FileLogOptions {
                store: StoreOptions {
                    segment_bytes: defaults.store.segment_bytes.min(self.log_bytes_max / 4),
                },
                log_bytes_max: self.log_bytes_max,
                transport: wiring.transport.clone(),
                observer: wiring.leadership.clone(),
                ..defaults
            };
            let clock = Arc::new(RealClock::new());
            let opened =
                FileLog::open(self.files.clone(), clock, &dir.join("log"), replicas.clone(), options);
            match opened {
                Err(LogError::Locked { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                opened => return Arc::new(opened.unwrap()),
            }
        }
    }

    /// The same, and does not wait until it has a catalog.
    pub fn start_unheard(&self, hub: &Arc<Hub>, into: Option<&Running>) -> Running {
        let dir = PathBuf::from("data");
        let replicas = Replicas::new(self.engine.clone()).unwrap();
        let wiring = Wiring::new(replicas.clone());
        let log = self.log_of(&dir, &replicas, &wiring);
        let known = Identity::load(&*self.files, &dir).unwrap();
        let fresh = ServerId(uuid::Uuid::from_u128(self.name.bytes().map(u128::from).sum()));
        let server = known.as_ref().map_or(fresh, |known| known.server);
        wiring.peers.connect(Arc::new(Line { hub: hub.clone(), own: server }));
        let end = Arc::new(End {
            wiring: wiring.clone(),
            log: log.clone(),
            desk: RwLock::new(None),
            heard: Mutex::default(),
        });
        if let (None, Some(other)) = (&known, into) {
            hub.ends.write().insert(server, end.clone());
            let options = JoinOptions {
                server,
                cluster: other.node.identity().cluster,
                name: Text::from_static(self.name),
                tags: vec![Text::from_static("default")],
                cache_size_mb: None,
                addresses: Vec::new(),
                is_proxy: self.name.starts_with("proxy"),
            };
            let members = || Some(vec![other.node.identity().server]);
            join(&options, &wiring, members, &*self.files, &dir, Some(PATIENCE)).unwrap();
        } else if known.is_none() {
            let identity = Identity { server, cluster: uuid::Uuid::from_u128(99), joined: None };
            identity.store(&*self.files, &dir).unwrap();
        }
        hub.ends.write().insert(server, end.clone());
        let node = Node::open(NodeOptions {
            dir,
            server_name: Text::from_static(self.name),
            server_tags: vec![Text::from_static("default")],
            cache_size_mb: None,
            addresses: Vec::new(),
            replicas,
            log,
            wiring,
            clock: Arc::new(RealClock::new()),
            files: self.files.clone(),
            random: Arc::new(RealRandom),
            admin_password: (Object::default(), false),
        })
        .unwrap();
        *end.desk.write() = Some(node.rpc_server());
        node.repair().set_return_timeout(RETURN_PATIENCE);
        Running { node, hub: hub.clone() }
    }
}

impl Running {
    pub fn server(&self) -> ServerId {
        self.node.identity().server
    }

    /// Cuts the node off and ends it; what it had proposed is not waited for.
    pub fn kill(self) {
        let server = self.server();
        let gone = self.hub.ends.write().remove(&server);
        if let Some(end) = gone {
            *end.desk.write() = None;
        }
        // As links do when they end.
        for end in self.hub.ends.read().values() {
            end.log.peers_unreachable(end.wiring.transport.replicas_on(server));
        }
    }

    pub fn wait_ready(&self, table: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let catalog = self.node.catalog();
            let state = self.node.states().table_state(catalog.table("test", table).unwrap());
            if readiness(&state).all_replicas {
                return;
            }
            assert!(Instant::now() < deadline, "not ready: {state:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub fn replicated(shards: usize, replicas: usize) -> ShardsWanted {
    let tag = Text::from_static("default");
    ShardsWanted::Placed(Wanted {
        shards,
        replicas: [(tag.clone(), replicas)].into(),
        primary_tag: tag,
        nonvoting_tags: Vec::new(),
    })
}

pub fn row(n: u32) -> (PrimaryKey, Object) {
    let id = Datum::from(format!("{:08x}", n.wrapping_mul(0x9e37_79b9)));
    let object =
        [(Text::from_static("id"), id.clone()), (Text::from_static("n"), Datum::Number(f64::from(n)))];
    (PrimaryKey::encode(&id).unwrap(), object.into_iter().collect())
}

/// Writes a row wherever it is led from; true once it is acknowledged.
pub fn write(nodes: &[&Running], n: u32) -> bool {
    let (key, object) = row(n);
    put(nodes, &key, &object)
}

fn put(nodes: &[&Running], key: &PrimaryKey, object: &Object) -> bool {
    for node in nodes {
        let catalog = node.node.catalog();
        let Some(table) = catalog.table("test", "t") else { continue };
        let handle = table.shard(key);
        if let Some(Route::Local(shard)) = handle.leader() {
            let put = vec![(key.clone(), Decision::Put(object.clone()))];
            match shard.write_rows(put, Durability::Hard).wait() {
                Ok(_) => return true,
                Err(WriteError::Definite { .. }) => {}
                // It may have happened; it is written again, to the same effect.
                Err(WriteError::Indeterminate { .. }) => {}
            }
        }
    }
    false
}

/// Writes row `n` with a text of so many bytes beside its number.
pub fn write_long_until_done(nodes: &[&Running], n: u32, bytes: usize) {
    let (key, object) = row(n);
    let text = Datum::from("x".repeat(bytes));
    let object = object.iter().chain([(Text::from_static("text"), text)]).collect();
    wait_until("a long row", || put(nodes, &key, &object));
}

pub fn write_until_done(nodes: &[&Running], n: u32) {
    let deadline = Instant::now() + PATIENCE;
    while !write(nodes, n) {
        assert!(Instant::now() < deadline, "row {n} found no leader");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Which of the rows `0..count` a node does not have, when it has had time to get them.
pub fn missing(node: &Running, count: u32) -> Vec<u32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let catalog = node.node.catalog();
        let table = catalog.table("test", "t").unwrap();
        let is_missing = |n: &u32| {
            let (key, _) = row(*n);
            table
                .shard(&key)
                .local()
                .is_none_or(|near| near.is_recovering() || near.get(&key).unwrap().is_none())
        };
        let missing: Vec<u32> = (0..count).filter(is_missing).collect();
        if missing.is_empty() || Instant::now() > deadline {
            return missing;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The rows of table `t` that lie on a node, as they are stored, whoever they belong to.
pub fn stored(node: &Running) -> Vec<(PrimaryKey, Bytes)> {
    let table = node.node.catalog().table("test", "t").unwrap().config.id;
    let part = storage::ShardRange { range: datum::KeyRange::all(), group: GroupId(u64::MAX) };
    let rows = storage::Table::new(node.node.replicas().store().clone(), table).snapshot(part).unwrap();
    let mut scan = rows.scan(&datum::KeyRange::all(), storage::Direction::Ascending).to_the_end();
    let mut found = Vec::new();
    while let Some(batch) = scan.next_batch().unwrap() {
        found.extend((0..batch.len()).map(|i| (batch.key(i), batch.row_bytes(i))));
    }
    found
}

/// Gives a table other shards, or the same with other replicas.
pub fn change(node: &Running, table: TableId, shards: ShardsWanted) -> Result<TableConfig, AdminError> {
    let change = TableChange { shards: Some(shards), ..TableChange::default() };
    node.node.resharder().change_table(table, &change).map(|(_, after)| after)
}

/// Waits until `is_so`.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}
