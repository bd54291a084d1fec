//! A node in memory and its clients.

#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod world;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cluster::{Node, NodeOptions, OnResponse, RpcClient, RpcError, RpcHandler, ServerId, Wiring};
use datum::{Datum, KeyRange, Object, Text, json as datum_json};
use engine::Engine;
use engine::memory::MemoryEngine;
use io::memory::Budget;
use io::sim::{SimClock, SimFiles, SimRandom};
use io::{Files, Random};
use log::memory::MemoryLog;
use rekindle_query::{
    Answer, Client, PointAnswer, Query, QueryError, QueryServer, RecentLog, ServerFacts, Service,
    ServiceOptions, Session,
};
use reql::{Cancel, EvalError};
use serde_json::{Map, Value, json};
use shard::Replicas;

/// A node with a service and, in some tests, a second service that has the shards.
pub struct TestNode {
    pub service: Arc<Service>,
    /// The server of the other service, to which this one sends all requests.
    pub server: Option<QueryServer>,
    node: Arc<Node>,
    indexes: Option<cluster::IndexThread>,
}

/// Passes requests to the other service, and may lose some.
struct DirectClient {
    server: QueryServer,
    losses: Option<SimRandom>,
}

/// The server ids of the two services.
pub const SENDER: ServerId = ServerId(uuid::Uuid::from_u128(1));
pub const RECEIVER: ServerId = ServerId(uuid::Uuid::from_u128(2));

/// The second byte of a request that writes.
const WRITE: u8 = 2;

impl RpcClient for DirectClient {
    fn call(&self, server: ServerId, request: Bytes, _timeout: Duration, on_response: OnResponse) {
        assert_eq!(server, RECEIVER);
        if let Some(random) = &self.losses {
            match random.next_u64() % 8 {
                0 => return on_response(Err(RpcError::NotConnected(server))),
                1 if request[1] != WRITE => return on_response(Err(RpcError::NoResponse(server))),
                _ => {}
            }
        }
        let refused = move |why| RpcError::Refused { server, why };
        self.server.handle(SENDER, request, Box::new(move |answer| on_response(answer.map_err(refused))));
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

/// A client that sends buffered requests when it is flushed, and not earlier.
struct BufferingClient {
    client: Arc<dyn RpcClient>,
    buffered: Mutex<Vec<(ServerId, Bytes, Duration, OnResponse)>>,
}

impl RpcClient for BufferingClient {
    fn call(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        self.client.call(server, request, timeout, on_response);
    }

    fn call_buffered(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        self.buffered.lock().unwrap().push((server, request, timeout, on_response));
    }

    fn flush(&self) {
        let buffered = std::mem::take(&mut *self.buffered.lock().unwrap());
        for (server, request, timeout, on_response) in buffered {
            self.client.call(server, request, timeout, on_response);
        }
    }

    fn is_connected(&self, server: ServerId) -> bool {
        self.client.is_connected(server)
    }
}

/// The result of a query.
pub enum Outcome {
    Atom(Datum),
    Stream(Vec<Vec<Datum>>),
}

impl TestNode {
    /// A new node with the database `test`.
    pub fn new() -> TestNode {
        let mut test_node = TestNode::without_index_thread();
        test_node.start_index_thread();
        test_node
    }

    /// Starts building indexes.
    pub fn start_index_thread(&mut self) {
        self.indexes =
            Some(cluster::IndexThread::start(self.node.indexes(), self.node.clock().clone()).unwrap());
    }

    /// A new node with the rows in `engine` and a row cache of this size, without building indexes.
    pub fn with_engine(engine: Arc<dyn Engine>, row_cache_bytes: usize) -> TestNode {
        TestNode::with_replicas(Replicas::with_row_cache(engine, row_cache_bytes).unwrap())
    }

    /// The same, with a second service that has the shards.
    pub fn remote_with_engine(engine: Arc<dyn Engine>) -> TestNode {
        let TestNode { service: other, node, indexes, .. } = TestNode::with_engine(engine, 0);
        let server = QueryServer::new(other);
        let service = service(node.clone());
        service.remote_calls().connect(Arc::new(DirectClient { server: server.clone(), losses: None }));
        service.remote_calls().force_target(|_| Some(RECEIVER));
        TestNode { service, server: Some(server), node, indexes }
    }

    /// The same, in memory, without building indexes.
    pub fn without_index_thread() -> TestNode {
        TestNode::with_replicas(Replicas::new(Arc::new(MemoryEngine::new())).unwrap())
    }

    fn with_replicas(replicas: Arc<Replicas>) -> TestNode {
        let files: Arc<dyn Files> = Arc::new(SimFiles::new(7));
        let dir = PathBuf::from("data");
        files.create_dir_all(&dir).unwrap();
        let log = Arc::new(MemoryLog::new(replicas.clone()));
        let wiring = Wiring::new(replicas.clone());
        let node = Node::open(NodeOptions {
            dir,
            server_name: Text::from_static("here"),
            server_tags: vec![Text::from_static("default")],
            cache_size_mb: None,
            addresses: Vec::new(),
            replicas,
            log,
            wiring,
            clock: Arc::new(SimClock::new()),
            files,
            random: Arc::new(SimRandom::new(7)),
            feed_retention: std::time::Duration::from_secs(3600),
            admin_password: (Object::default(), false),
        })
        .unwrap();
        TestNode { service: service(node.clone()), server: None, node, indexes: None }
    }

    /// A new node whose service sends requests for every row to another one. With a seed, some requests are lost.
    pub fn remote(losses: Option<u64>) -> TestNode {
        let losses = losses.map(SimRandom::new);
        TestNode::with_client(|server| Arc::new(DirectClient { server, losses }))
    }

    /// The same, with a client made by `client`.
    pub fn with_client(client: impl FnOnce(QueryServer) -> Arc<dyn RpcClient>) -> TestNode {
        TestNode::with_client_for(|_| true, client)
    }

    /// The same, only for the shards that `is_far` selects; the others are local.
    pub fn with_client_for(
        is_far: impl Fn(&KeyRange) -> bool + Send + Sync + 'static,
        client: impl FnOnce(QueryServer) -> Arc<dyn RpcClient>,
    ) -> TestNode {
        let TestNode { service: other, node, indexes, .. } = TestNode::new();
        let server = QueryServer::new(other);
        let service = service(node.clone());
        service.remote_calls().connect(Arc::new(BufferingClient {
            client: client(server.clone()),
            buffered: Mutex::default(),
        }));
        service.remote_calls().force_target(move |range| is_far(range).then_some(RECEIVER));
        TestNode { service, server: Some(server), node, indexes }
    }

    /// A new node whose service sends requests for every row to another one; both use the budget `memory`.
    pub fn with_memory(memory: &Arc<Budget>) -> TestNode {
        let TestNode { node, indexes, .. } = TestNode::new();
        let service = || service_with_memory(node.clone(), ServerFacts::default(), memory.clone());
        let server = QueryServer::new(service());
        let service = service();
        service.remote_calls().connect(Arc::new(DirectClient { server: server.clone(), losses: None }));
        service.remote_calls().force_target(|_| Some(RECEIVER));
        TestNode { service, server: Some(server), node, indexes }
    }

    /// The same, with the logs of the two services.
    pub fn with_logs([here, there]: [RecentLog; 2]) -> TestNode {
        let TestNode { node, indexes, .. } = TestNode::new();
        let server = QueryServer::new(service_with(node.clone(), logs(there)));
        let service = service_with(node.clone(), logs(here));
        service.remote_calls().connect(Arc::new(DirectClient { server: server.clone(), losses: None }));
        service.remote_calls().force_target(|_| Some(RECEIVER));
        TestNode { service, server: Some(server), node, indexes }
    }

    pub fn session(&self, user: &str) -> Session {
        let address = "127.0.0.1:5000".parse().unwrap();
        Session::new(self.service.clone(), Client { user: user.into(), address })
    }

    /// Runs a term with options, on the fast path if that takes it.
    pub fn run(&self, user: &str, term: Value, options: Map<String, Value>) -> Result<Outcome, QueryError> {
        let query = Arc::new(query(term, options)?);
        let session = self.session(user);
        let answer = session.point(&query);
        self.service.flush();
        match answer {
            Some(PointAnswer::Read(answer)) => Ok(Outcome::Atom(answer?)),
            Some(PointAnswer::Rows(rows)) => Ok(Outcome::Stream(vec![datums(rows.json())])),
            Some(PointAnswer::Count(count)) => Ok(Outcome::Atom(count)),
            Some(PointAnswer::RemoteRead(read)) => Ok(Outcome::Atom(block_on(read)?)),
            Some(PointAnswer::DiskRead(read)) => Ok(Outcome::Atom(block_on(read)?)),
            Some(PointAnswer::RowsOnDisk) => match session.rows_from_disk(&query) {
                Some(rows) => Ok(Outcome::Stream(vec![datums(rows.json())])),
                None => run_slow_path(&session, &query),
            },
            Some(PointAnswer::Write(write)) => Ok(Outcome::Atom(block_on(write)?)),
            None => run_slow_path(&session, &query),
        }
    }

    pub fn run_slow_path(&self, term: Value, options: Map<String, Value>) -> Result<Outcome, QueryError> {
        run_slow_path(&self.session("admin"), &query(term, options)?)
    }
}

fn logs(logs: RecentLog) -> ServerFacts {
    ServerFacts { logs, ..ServerFacts::default() }
}

fn service(node: Arc<Node>) -> Arc<Service> {
    service_with(node, ServerFacts::default())
}

fn service_with(node: Arc<Node>, facts: ServerFacts) -> Arc<Service> {
    service_with_memory(node, facts, Budget::unlimited())
}

fn service_with_memory(node: Arc<Node>, facts: ServerFacts, memory: Arc<Budget>) -> Arc<Service> {
    Service::new(ServiceOptions {
        node,
        passwords: Arc::new(|password, _| (Object::default(), !password.is_empty())),
        facts,
        scan_threads: 2,
        http_client: Some(Arc::new(world::SamplePages)),
        scripts: Some(Arc::new(world::SmallScripts::default())),
        memory,
    })
}

pub fn query(term: Value, options: Map<String, Value>) -> Result<Query, QueryError> {
    Ok(Query::parse(json!([1, term, options]).to_string().into())?)
}

fn datums(texts: &[u8]) -> Vec<Datum> {
    let text = [b"[", texts, b"]"].concat();
    match datum_json::parse(&text).unwrap() {
        Datum::Array(rows) => rows.into_vec(),
        other => panic!("not rows: {other:?}"),
    }
}

fn run_slow_path(session: &Session, query: &Query) -> Result<Outcome, QueryError> {
    match session.run(query, Arc::new(Cancel::new()))?.answer {
        Answer::Atom(datum) => Ok(Outcome::Atom(datum)),
        Answer::Stream(mut cursor) => {
            let mut batches = Vec::new();
            loop {
                let batch = cursor.next_batch()?;
                batches.push(batch.items);
                if batch.done {
                    return Ok(Outcome::Stream(batches));
                }
            }
        }
    }
}

/// Waits for a write on this thread.
pub fn block_on(write: impl Future<Output = Result<Datum, EvalError>>) -> Result<Datum, EvalError> {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut write = std::pin::pin!(write);
    loop {
        match write.as_mut().poll(&mut context) {
            std::task::Poll::Ready(answer) => return answer,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
