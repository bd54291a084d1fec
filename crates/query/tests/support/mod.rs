//! A node in memory and a client of it.

#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod world;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cluster::{Node, NodeOptions, OnResponse, RpcClient, RpcError, RpcHandler, ServerId, Wiring};
use datum::{Datum, KeyRange, Object, Text, json as datum_json};
use engine::memory::MemoryEngine;
use io::memory::Budget;
use io::sim::{SimClock, SimFiles, SimRandom};
use io::{Files, Random};
use log::memory::MemoryLog;
use rekindle_query::{
    Answer, Client, PointAnswer, QueryError, QueryServer, RecentLog, ServerFacts, Service, ServiceOptions,
    Session,
};
use reql::wire::{Query, parse_query};
use reql::{Cancel, EvalError};
use serde_json::{Map, Value, json};
use shard::Replicas;

/// A client of a node of its own.
pub struct House {
    pub service: Arc<Service>,
    /// Who answers, when the service has nothing itself and asks for everything.
    pub desk: Option<QueryServer>,
    node: Arc<Node>,
    indexes: Option<cluster::IndexThread>,
}

/// How questions go from one service to the other: as bytes, and sometimes not at all.
struct Straight {
    desk: QueryServer,
    losses: Option<SimRandom>,
}

/// Who asks and who answers.
pub const ASKER: ServerId = ServerId(uuid::Uuid::from_u128(1));
pub const ANSWERER: ServerId = ServerId(uuid::Uuid::from_u128(2));

/// The second byte of a question that writes.
const WRITE: u8 = 2;

impl RpcClient for Straight {
    fn call(&self, server: ServerId, question: Bytes, _patience: Duration, answered: OnResponse) {
        assert_eq!(server, ANSWERER);
        if let Some(random) = &self.losses {
            match random.next_u64() % 8 {
                0 => return answered(Err(RpcError::NotConnected(server))),
                1 if question[1] != WRITE => return answered(Err(RpcError::NoAnswer(server))),
                _ => {}
            }
        }
        let refused = move |why| RpcError::Refused { server, why };
        self.desk.handle(ASKER, question, Box::new(move |answer| answered(answer.map_err(refused))));
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

/// A way on which what was asked aside leaves with the turn and not before.
struct InTurns {
    way: Arc<dyn RpcClient>,
    aside: Mutex<Vec<(ServerId, Bytes, Duration, OnResponse)>>,
}

impl RpcClient for InTurns {
    fn call(&self, server: ServerId, question: Bytes, patience: Duration, answered: OnResponse) {
        self.way.call(server, question, patience, answered);
    }

    fn call_buffered(&self, server: ServerId, question: Bytes, patience: Duration, answered: OnResponse) {
        self.aside.lock().unwrap().push((server, question, patience, answered));
    }

    fn flush(&self) {
        let aside = std::mem::take(&mut *self.aside.lock().unwrap());
        for (server, question, patience, answered) in aside {
            self.way.call(server, question, patience, answered);
        }
    }

    fn is_connected(&self, server: ServerId) -> bool {
        self.way.is_connected(server)
    }
}

/// What a query answered.
pub enum Outcome {
    Atom(Datum),
    Stream(Vec<Vec<Datum>>),
}

impl House {
    /// A new node with the database `test`.
    pub fn new() -> House {
        let mut house = House::without_index_thread();
        house.start_index_thread();
        house
    }

    /// Begins to build indexes.
    pub fn start_index_thread(&mut self) {
        self.indexes =
            Some(cluster::IndexThread::start(self.node.indexes(), self.node.clock().clone()).unwrap());
    }

    /// The same node; its indexes are not built.
    pub fn without_index_thread() -> House {
        let files: Arc<dyn Files> = Arc::new(SimFiles::new(7));
        let dir = PathBuf::from("data");
        files.create_dir_all(&dir).unwrap();
        let replicas = Replicas::new(Arc::new(MemoryEngine::new())).unwrap();
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
            admin_password: (Object::default(), false),
        })
        .unwrap();
        House { service: service(node.clone()), desk: None, node, indexes: None }
    }

    /// A new node whose service asks another one for every row. With a seed, some questions are
    /// lost on the way.
    pub fn far(losses: Option<u64>) -> House {
        let losses = losses.map(SimRandom::new);
        House::asking(|desk| Arc::new(Straight { desk, losses }))
    }

    /// The same; questions go to the other one as `way` takes them there.
    pub fn asking(way: impl FnOnce(QueryServer) -> Arc<dyn RpcClient>) -> House {
        House::asking_for(|_| true, way)
    }

    /// The same for shards of which that is so; the others are at hand.
    pub fn asking_for(
        is_far: impl Fn(&KeyRange) -> bool + Send + Sync + 'static,
        way: impl FnOnce(QueryServer) -> Arc<dyn RpcClient>,
    ) -> House {
        let House { service: other, node, indexes, .. } = House::new();
        let desk = QueryServer::new(other);
        let service = service(node.clone());
        service.peers().connect(Arc::new(InTurns { way: way(desk.clone()), aside: Mutex::default() }));
        service.peers().force_target(move |range| is_far(range).then_some(ANSWERER));
        House { service, desk: Some(desk), node, indexes }
    }

    /// A new node whose service asks another one for every row, where what both do is drawn from `memory`.
    pub fn drawing_from(memory: &Arc<Budget>) -> House {
        let House { node, indexes, .. } = House::new();
        let service = || service_drawing_from(node.clone(), ServerFacts::default(), memory.clone());
        let desk = QueryServer::new(service());
        let service = service();
        service.peers().connect(Arc::new(Straight { desk: desk.clone(), losses: None }));
        service.peers().force_target(|_| Some(ANSWERER));
        House { service, desk: Some(desk), node, indexes }
    }

    /// The same, where the one logs into the first book and the other into the second.
    pub fn logging([here, there]: [RecentLog; 2]) -> House {
        let House { node, indexes, .. } = House::new();
        let desk = QueryServer::new(service_with(node.clone(), logs(there)));
        let service = service_with(node.clone(), logs(here));
        service.peers().connect(Arc::new(Straight { desk: desk.clone(), losses: None }));
        service.peers().force_target(|_| Some(ANSWERER));
        House { service, desk: Some(desk), node, indexes }
    }

    /// A session of `user`.
    pub fn session(&self, user: &str) -> Session {
        let address = "127.0.0.1:5000".parse().unwrap();
        Session::new(self.service.clone(), Client { user: user.into(), address })
    }

    /// Runs a term with options of the whole query, by the fast path if it takes it.
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
            Some(PointAnswer::Write(write)) => Ok(Outcome::Atom(block_on(write)?)),
            None => run_long(&session, &query),
        }
    }

    /// Runs a term by the long way.
    pub fn run_long(&self, term: Value, options: Map<String, Value>) -> Result<Outcome, QueryError> {
        run_long(&self.session("admin"), &query(term, options)?)
    }
}

fn logs(logs: RecentLog) -> ServerFacts {
    ServerFacts { logs, ..ServerFacts::default() }
}

fn service(node: Arc<Node>) -> Arc<Service> {
    service_with(node, ServerFacts::default())
}

fn service_with(node: Arc<Node>, facts: ServerFacts) -> Arc<Service> {
    service_drawing_from(node, facts, Budget::unlimited())
}

fn service_drawing_from(node: Arc<Node>, facts: ServerFacts, memory: Arc<Budget>) -> Arc<Service> {
    Service::new(ServiceOptions {
        node,
        passwords: Arc::new(|password, _| (Object::default(), !password.is_empty())),
        facts,
        scan_threads: 2,
        web: Some(Arc::new(world::SmallWeb)),
        scripts: Some(Arc::new(world::SmallScripts::default())),
        memory,
    })
}

pub fn query(term: Value, options: Map<String, Value>) -> Result<Query, QueryError> {
    Ok(parse_query(json!([1, term, options]).to_string().as_bytes())?)
}

fn datums(texts: &[u8]) -> Vec<Datum> {
    let text = [b"[", texts, b"]"].concat();
    match datum_json::parse(&text).unwrap() {
        Datum::Array(rows) => rows.into_vec(),
        other => panic!("not rows: {other:?}"),
    }
}

fn run_long(session: &Session, query: &Query) -> Result<Outcome, QueryError> {
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
