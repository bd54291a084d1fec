//! A node in memory and a client of it.

#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::sync::Arc;

use cluster::{Node, NodeOptions};
use datum::{Datum, Object, Text};
use engine::memory::MemoryEngine;
use io::Files;
use io::sim::{SimClock, SimFiles, SimRandom};
use log::memory::MemoryLog;
use rekindle_query::{
    Answer, Client, PointAnswer, QueryError, ServerFacts, Service, ServiceOptions, Session,
};
use reql::wire::{Query, parse_query};
use reql::{Cancel, EvalError};
use serde_json::{Map, Value, json};
use shard::Replicas;

/// A client of a node of its own.
pub struct House {
    pub service: Arc<Service>,
    node: Arc<Node>,
    indexes: Option<cluster::IndexThread>,
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
        self.indexes = Some(cluster::IndexThread::start(&self.node).unwrap());
    }

    /// The same node; its indexes are not built.
    pub fn without_index_thread() -> House {
        let files: Arc<dyn Files> = Arc::new(SimFiles::new(7));
        let dir = PathBuf::from("data");
        files.create_dir_all(&dir).unwrap();
        let replicas = Replicas::new(Arc::new(MemoryEngine::new())).unwrap();
        let log = Arc::new(MemoryLog::new(replicas.clone()));
        let node = Node::open(NodeOptions {
            dir,
            server_name: Text::from_static("here"),
            server_tags: vec![Text::from_static("default")],
            replicas,
            log,
            clock: Arc::new(SimClock::new()),
            files,
            random: Arc::new(SimRandom::new(7)),
            admin_password: (Object::default(), false),
        })
        .unwrap();
        let service = Service::new(ServiceOptions {
            node: node.clone(),
            passwords: Arc::new(|password, _| (Object::default(), !password.is_empty())),
            facts: ServerFacts::default(),
            scan_threads: 2,
        });
        House { service, node, indexes: None }
    }

    /// A session of `user`.
    pub fn session(&self, user: &str) -> Session {
        let address = "127.0.0.1:5000".parse().unwrap();
        Session::new(self.service.clone(), Client { user: user.into(), address })
    }

    /// Runs a term with options of the whole query, by the fast path if it takes it.
    pub fn run(&self, user: &str, term: Value, options: Map<String, Value>) -> Result<Outcome, QueryError> {
        let query = query(term, options)?;
        let session = self.session(user);
        match session.point(&query) {
            Some(PointAnswer::Read(answer)) => Ok(Outcome::Atom(answer?)),
            Some(PointAnswer::Write(write)) => Ok(Outcome::Atom(block_on(write)?)),
            None => run_long(&session, &query),
        }
    }

    /// Runs a term by the long way.
    pub fn run_long(&self, term: Value, options: Map<String, Value>) -> Result<Outcome, QueryError> {
        run_long(&self.session("admin"), &query(term, options)?)
    }
}

pub fn query(term: Value, options: Map<String, Value>) -> Result<Query, QueryError> {
    Ok(parse_query(json!([1, term, options]).to_string().as_bytes())?)
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
