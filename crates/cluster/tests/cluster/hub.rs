//! A simulated network ([`Hub`]), machines whose nodes use it ([`Machine`], [`Running`]), and helpers that write and read
//! rows.

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
    AdminError, DesiredShards, Identity, JoinOptions, Node, NodeOptions, OnResponse, PeerTransport,
    PlacementGoal, Route, RpcClient, RpcError, RpcHandler, RpcServer, ServerId, TableChange, TableConfig,
    Wiring, join, readiness,
};
use shard::{Decision, Replicas, WriteError};
use storage::TableId;

/// How long a test waits for anything.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a repair waits for servers that were killed.
const RETURN_TIMEOUT: Duration = Duration::from_millis(500);

/// The network: the running nodes, and the faults between them.
#[derive(Default)]
pub struct Hub {
    pub endpoints: RwLock<HashMap<ServerId, Arc<Endpoint>>>,
    cuts: RwLock<Vec<[ServerId; 2]>>,
    response_counts: Mutex<HashMap<ServerId, ResponseCount>>,
    dropping: Mutex<Vec<(ServerId, GroupId)>>,
    silent_cuts: Mutex<Vec<[ServerId; 2]>>,
    interceptor: RwLock<Option<Box<Interceptor>>>,
}

/// A response on its way to the server that sent the request.
pub struct Intercepted {
    pub sent_by: ServerId,
    pub responder: ServerId,
    /// The kind of the request (docs/formats/cluster-request.md); `None` for one of a query.
    pub kind: Option<u8>,
    /// The group that the request is about, if it is about one.
    pub group: Option<GroupId>,
    pub bytes: Bytes,
}

/// Returns the response that arrives. With `None` nothing arrives, and the request times out.
type Interceptor = dyn Fn(Intercepted) -> Option<Bytes> + Send + Sync;

/// The bytes of responses that were sent to a server, and the limit above which responses are lost.
#[derive(Clone, Copy)]
struct ResponseCount {
    bytes: u64,
    limit: u64,
}

impl Hub {
    /// Counts the bytes of responses to `server` from now on. Responses above `limit` are lost.
    pub fn limit_responses(&self, server: ServerId, limit: u64) {
        self.response_counts.lock().insert(server, ResponseCount { bytes: 0, limit });
    }

    /// The bytes of responses that arrived at `server` since they are counted, and whether some were lost.
    pub fn response_bytes(&self, server: ServerId) -> (u64, bool) {
        self.response_counts
            .lock()
            .get(&server)
            .map_or((0, false), |count| (count.bytes.min(count.limit), count.bytes > count.limit))
    }

    /// Drops all messages of a group to `server` from now on.
    pub fn drop_messages(&self, server: ServerId, group: GroupId) {
        self.dropping.lock().push((server, group));
    }

    /// Delivers the messages of all groups again.
    pub fn deliver_messages(&self) {
        self.dropping.lock().clear();
    }

    /// Disconnects two servers.
    pub fn cut(&self, one: ServerId, other: ServerId) {
        self.cuts.write().extend([[one, other], [other, one]]);
    }

    /// Drops everything between two servers, which still count as connected.
    pub fn cut_silently(&self, one: ServerId, other: ServerId) {
        self.silent_cuts.lock().extend([[one, other], [other, one]]);
    }

    fn is_cut_silently(&self, one: ServerId, other: ServerId) -> bool {
        self.silent_cuts.lock().contains(&[one, other])
    }

    /// Connects two servers again.
    pub fn heal_between(&self, pair: [ServerId; 2]) {
        self.cuts.write().retain(|cut| !cut.iter().all(|server| pair.contains(server)));
    }

    /// Connects all servers again.
    pub fn heal(&self) {
        self.cuts.write().clear();
        self.silent_cuts.lock().clear();
    }

    /// Passes all responses through `interceptor` from now on.
    pub fn intercept(&self, interceptor: impl Fn(Intercepted) -> Option<Bytes> + Send + Sync + 'static) {
        *self.interceptor.write() = Some(Box::new(interceptor));
    }

    fn intercepted(&self, intercepted_response: Intercepted) -> Option<Bytes> {
        let cut = self.is_cut_silently(intercepted_response.sent_by, intercepted_response.responder);
        let passed = match &*self.interceptor.read() {
            Some(interceptor) => interceptor(intercepted_response),
            None => Some(intercepted_response.bytes),
        };
        passed.filter(|_| !cut)
    }

    fn passes(&self, server: ServerId, bytes: usize) -> bool {
        let mut response_counts = self.response_counts.lock();
        let Some(count) = response_counts.get_mut(&server) else { return true };
        count.bytes += bytes as u64;
        count.bytes <= count.limit
    }
}

pub struct Endpoint {
    pub wiring: Wiring,
    pub log: Arc<dyn Log>,
    pub rpc_server: RwLock<Option<RpcServer>>,
    /// The heartbeat timeouts that its links were set to.
    pub heartbeats: Mutex<Vec<Duration>>,
}

/// One node's connection to the network. It works only while the node is part of the network.
pub struct HubClient {
    pub hub: Arc<Hub>,
    pub own: ServerId,
}

impl HubClient {
    fn to(&self, server: ServerId) -> Option<Arc<Endpoint>> {
        if self.hub.cuts.read().contains(&[self.own, server]) {
            return None;
        }
        let endpoints = self.hub.endpoints.read();
        endpoints.contains_key(&self.own).then(|| endpoints.get(&server).cloned())?
    }
}

impl RpcClient for HubClient {
    fn call(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        let Some(end) = self.to(server) else { return on_response(Err(RpcError::NotConnected(server))) };
        let (own, hub) = (self.own, Arc::clone(&self.hub));
        let kind = request.get(2).copied().filter(|_| request[0] == 0);
        let group = request.get(3..11).map(|bytes| GroupId(u64::from_le_bytes(bytes.try_into().unwrap())));
        std::thread::spawn(move || {
            let (sender, receiver) = std::sync::mpsc::sync_channel(1);
            match &*end.rpc_server.read() {
                Some(rpc_server) => {
                    rpc_server.handle(own, request, Box::new(move |response| drop(sender.send(response))));
                }
                None => drop(sender),
            }
            let intercepted_response =
                |bytes| Intercepted { sent_by: own, responder: server, kind, group, bytes };
            let response = receiver
                .recv()
                .map(|response| response.map(|bytes| hub.intercepted(intercepted_response(bytes))));
            let response = match response {
                Ok(Ok(None)) => {
                    std::thread::sleep(timeout);
                    return on_response(Err(RpcError::NoResponse(server)));
                }
                Ok(Ok(Some(bytes))) => Ok(Ok(bytes)),
                Ok(Err(why)) => Ok(Err(why)),
                Err(closed) => Err(closed),
            };
            on_response(match response {
                Ok(Ok(response)) if !hub.passes(own, response.len()) => Err(RpcError::NoResponse(server)),
                Ok(response) => response.map_err(|why| RpcError::Refused { server, why }),
                Err(_) => Err(RpcError::NoResponse(server)),
            });
        });
    }

    fn is_connected(&self, server: ServerId) -> bool {
        self.to(server).is_some()
    }
}

impl PeerTransport for HubClient {
    fn send(&self, to: ServerId, mut messages: Vec<Message>) {
        let dropping = self.hub.dropping.lock().clone();
        messages.retain(|message| !dropping.contains(&(to, message.group)));
        if self.hub.is_cut_silently(self.own, to) {
            return;
        }
        if let Some(end) = self.to(to) {
            end.wiring.transport.receive(self.own, messages, &*end.log);
        }
    }

    fn set_heartbeat(&self, timeout: Duration) {
        if let Some(end) = self.hub.endpoints.read().get(&self.own) {
            end.heartbeats.lock().push(timeout);
        }
    }
}

/// The parts of a server that survive when its node is killed.
pub struct Machine {
    pub name: &'static str,
    pub engine: Arc<dyn Engine>,
    pub files: Arc<dyn Files>,
    /// The limit of its log.
    pub log_bytes_max: u64,
}

/// A running node.
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

    /// Starts the node, and waits until it has a catalog. A node without an identity joins the cluster of `into`, if given.
    pub fn start(&self, hub: &Arc<Hub>, into: Option<&Running>) -> Running {
        let running = self.start_without_catalog(hub, into);
        assert!(running.node.await_catalog(TEST_TIMEOUT), "{} has no catalog", self.name);
        running
    }

    /// Opens the machine's log, once the node that ran here before has released it.
    fn log_of(&self, dir: &Path, replicas: &Arc<Replicas>, wiring: &Wiring) -> Arc<dyn Log> {
        let deadline = Instant::now() + TEST_TIMEOUT;
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

    /// As [`Machine::start`], without waiting for a catalog.
    pub fn start_without_catalog(&self, hub: &Arc<Hub>, into: Option<&Running>) -> Running {
        let dir = PathBuf::from("data");
        let replicas = Replicas::new(self.engine.clone()).unwrap();
        let wiring = Wiring::new(replicas.clone());
        let log = self.log_of(&dir, &replicas, &wiring);
        let known = Identity::load(&*self.files, &dir).unwrap();
        let fresh = ServerId(uuid::Uuid::from_u128(self.name.bytes().map(u128::from).sum()));
        let server = known.as_ref().map_or(fresh, |known| known.server);
        wiring.peers.connect(Arc::new(HubClient { hub: hub.clone(), own: server }));
        let end = Arc::new(Endpoint {
            wiring: wiring.clone(),
            log: log.clone(),
            rpc_server: RwLock::new(None),
            heartbeats: Mutex::default(),
        });
        if let (None, Some(other)) = (&known, into) {
            hub.endpoints.write().insert(server, end.clone());
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
            join(&options, &wiring, members, &*self.files, &dir, Some(TEST_TIMEOUT)).unwrap();
        } else if known.is_none() {
            let identity = Identity { server, cluster: uuid::Uuid::from_u128(99), joined: None };
            identity.store(&*self.files, &dir).unwrap();
        }
        hub.endpoints.write().insert(server, end.clone());
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
            feed_retention: std::time::Duration::from_secs(3600),
            admin_password: (Object::default(), false),
        })
        .unwrap();
        *end.rpc_server.write() = Some(node.rpc_server());
        node.repair().set_return_timeout(RETURN_TIMEOUT);
        Running { node, hub: hub.clone() }
    }
}

impl Running {
    pub fn server(&self) -> ServerId {
        self.node.identity().server
    }

    /// Disconnects the node and ends it, without waiting for its proposals.
    pub fn kill(self) {
        let server = self.server();
        let gone = self.hub.endpoints.write().remove(&server);
        if let Some(end) = gone {
            *end.rpc_server.write() = None;
        }
        // Links do this when they end.
        for end in self.hub.endpoints.read().values() {
            end.log.peers_unreachable(end.wiring.transport.replicas_on(server));
        }
    }

    pub fn wait_ready(&self, table: &str) {
        let deadline = Instant::now() + TEST_TIMEOUT;
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

pub fn replicated(shards: usize, replicas: usize) -> DesiredShards {
    let tag = Text::from_static("default");
    DesiredShards::Placed(PlacementGoal {
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

/// Writes a row through the node that leads its shard. True if the write is acknowledged.
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
                // The write may have happened. Writing the row again has the same effect.
                Err(WriteError::Indeterminate { .. }) => {}
            }
        }
    }
    false
}

/// Writes row `n` with an additional text of `bytes` bytes.
pub fn write_long_until_done(nodes: &[&Running], n: u32, bytes: usize) {
    let (key, object) = row(n);
    let text = Datum::from("x".repeat(bytes));
    let object = object.iter().chain([(Text::from_static("text"), text)]).collect();
    wait_until("a long row", || put(nodes, &key, &object));
}

pub fn write_until_done(nodes: &[&Running], n: u32) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !write(nodes, n) {
        assert!(Instant::now() < deadline, "row {n} found no leader");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The rows among `0..count` that a node does not have. Waits until it has all of them, or the timeout is over.
pub fn missing(node: &Running, count: u32) -> Vec<u32> {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let catalog = node.node.catalog();
        let table = catalog.table("test", "t").unwrap();
        let is_missing = |n: &u32| {
            let (key, _) = row(*n);
            table
                .shard(&key)
                .local()
                .is_none_or(|local| local.is_recovering() || local.get(&key).unwrap().is_none())
        };
        let missing: Vec<u32> = (0..count).filter(is_missing).collect();
        if missing.is_empty() || Instant::now() > deadline {
            return missing;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The rows of table `t` that are stored on a node, including rows of shards that are not placed there.
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

/// Changes the shards of a table, or their replicas.
pub fn change(node: &Running, table: TableId, shards: DesiredShards) -> Result<TableConfig, AdminError> {
    let change = TableChange { shards: Some(shards), ..TableChange::default() };
    node.node.resharder().change_table(table, &change).map(|(_, after)| after)
}

#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: timed out");
        std::thread::sleep(Duration::from_millis(10));
    }
}
