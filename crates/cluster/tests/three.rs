//! Several nodes in one process: they join, share tables, lose one, and miss nothing.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datum::{Bytes, Datum, Object, PrimaryKey, Text};
use engine::Engine;
use engine::memory::MemoryEngine;
use io::Files;
use io::real::{RealClock, RealRandom};
use io::sim::SimFiles;
use log::file::{FileLog, FileLogOptions};
use log::{Durability, GroupId, Letter, Log};
use parking_lot::RwLock;
use rekindle_cluster::{
    Answered, Ask, AskError, Desk, Identity, JoinOptions, Node, NodeOptions, Post, Route, Serve, ServerId,
    ShardsWanted, TableChange, TableOptions, Wanted, Wire, join, readiness,
};
use shard::{Decision, Replicas, WriteError};

const PATIENCE: Duration = Duration::from_secs(30);

/// The network: who is there, and how to reach them.
#[derive(Default)]
struct Hub {
    ends: RwLock<HashMap<ServerId, Arc<End>>>,
}

struct End {
    post: Arc<Post>,
    log: Arc<dyn Log>,
    desk: RwLock<Option<Desk>>,
}

/// One node's way into the network. It works only while the node is in it.
struct Line {
    hub: Arc<Hub>,
    own: ServerId,
}

impl Line {
    fn to(&self, server: ServerId) -> Option<Arc<End>> {
        let ends = self.hub.ends.read();
        ends.contains_key(&self.own).then(|| ends.get(&server).cloned())?
    }
}

impl Ask for Line {
    fn ask(&self, server: ServerId, question: Bytes, _patience: Duration, answered: Answered) {
        let Some(end) = self.to(server) else { return answered(Err(AskError::NotConnected(server))) };
        let own = self.own;
        std::thread::spawn(move || {
            let (sender, receiver) = std::sync::mpsc::sync_channel(1);
            match &*end.desk.read() {
                Some(desk) => desk.serve(own, question, Box::new(move |reply| drop(sender.send(reply)))),
                None => drop(sender),
            }
            answered(match receiver.recv() {
                Ok(reply) => reply.map_err(|why| AskError::Refused { server, why }),
                Err(_) => Err(AskError::NoAnswer(server)),
            });
        });
    }

    fn is_connected(&self, server: ServerId) -> bool {
        self.to(server).is_some()
    }
}

impl Wire for Line {
    fn mail(&self, to: ServerId, letters: Vec<Letter>) {
        if let Some(end) = self.to(to) {
            end.post.arrived(self.own, letters, &*end.log);
        }
    }
}

/// What stays when a node is killed.
struct Machine {
    name: &'static str,
    engine: Arc<dyn Engine>,
    files: Arc<dyn Files>,
}

/// A node that runs.
struct Running {
    node: Arc<Node>,
    hub: Arc<Hub>,
}

impl Machine {
    fn new(name: &'static str) -> Machine {
        let files: Arc<dyn Files> = Arc::new(SimFiles::new(7));
        files.create_dir_all(&PathBuf::from("data")).unwrap();
        Machine { name, engine: Arc::new(MemoryEngine::new()), files }
    }

    /// Starts the node; one without an identity joins `into`, if that is given.
    fn start(&self, hub: &Arc<Hub>, into: Option<&Running>) -> Running {
        let dir = PathBuf::from("data");
        let replicas = Replicas::new(self.engine.clone()).unwrap();
        let post = Post::new(replicas.clone());
        let options = FileLogOptions { mail: post.clone(), watch: post.clone(), ..FileLogOptions::default() };
        let clock = Arc::new(RealClock::new());
        let log: Arc<dyn Log> = Arc::new(
            FileLog::open(self.files.clone(), clock.clone(), &dir.join("log"), replicas.clone(), options)
                .unwrap(),
        );
        let known = Identity::load(&*self.files, &dir).unwrap();
        let fresh = ServerId(uuid::Uuid::from_u128(self.name.bytes().map(u128::from).sum()));
        let server = known.as_ref().map_or(fresh, |known| known.server);
        post.connect(Arc::new(Line { hub: hub.clone(), own: server }));
        let end = Arc::new(End { post: post.clone(), log: log.clone(), desk: RwLock::new(None) });
        if let (None, Some(other)) = (&known, into) {
            hub.ends.write().insert(server, end.clone());
            let options = JoinOptions {
                server,
                cluster: other.node.identity().cluster,
                name: Text::from_static(self.name),
                tags: vec![Text::from_static("default")],
                cache_size_mb: None,
                addresses: Vec::new(),
            };
            let members = || vec![other.node.identity().server];
            join(&options, &post, members, &*self.files, &dir, PATIENCE).unwrap();
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
            post,
            clock,
            files: self.files.clone(),
            random: Arc::new(RealRandom),
            admin_password: (Object::default(), false),
        })
        .unwrap();
        *end.desk.write() = Some(node.desk());
        assert!(node.await_catalog(PATIENCE), "{} has no catalog", self.name);
        Running { node, hub: hub.clone() }
    }
}

impl Running {
    fn server(&self) -> ServerId {
        self.node.identity().server
    }

    /// Cuts the node off and ends it; what it had proposed is not waited for.
    fn kill(self) {
        let gone = self.hub.ends.write().remove(&self.server());
        if let Some(end) = gone {
            *end.desk.write() = None;
        }
    }

    fn wait_ready(&self, table: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let catalog = self.node.catalog();
            let state = self.node.table_state(catalog.table("test", table).unwrap());
            if readiness(&state).all_replicas {
                return;
            }
            assert!(Instant::now() < deadline, "not ready: {state:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn replicated(shards: usize, replicas: usize) -> ShardsWanted {
    let tag = Text::from_static("default");
    ShardsWanted::Placed(Wanted {
        shards,
        replicas: [(tag.clone(), replicas)].into(),
        primary_tag: tag,
        nonvoting_tags: Vec::new(),
    })
}

fn row(n: u32) -> (PrimaryKey, Object) {
    let id = Datum::from(format!("{:08x}", n.wrapping_mul(0x9e37_79b9)));
    let object =
        [(Text::from_static("id"), id.clone()), (Text::from_static("n"), Datum::Number(f64::from(n)))];
    (PrimaryKey::encode(&id).unwrap(), object.into_iter().collect())
}

/// Writes a row wherever it is led from; true once it is acknowledged.
fn write(nodes: &[&Running], n: u32) -> bool {
    let (key, object) = row(n);
    for node in nodes {
        let catalog = node.node.catalog();
        let Some(table) = catalog.table("test", "t") else { continue };
        let handle = table.shard(&key);
        if let Some(Route::Near(shard)) = handle.leader() {
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

fn write_until_done(nodes: &[&Running], n: u32) {
    let deadline = Instant::now() + PATIENCE;
    while !write(nodes, n) {
        assert!(Instant::now() < deadline, "row {n} found no leader");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Which of the rows `0..count` a node does not have, when it has had time to get them.
fn missing(node: &Running, count: u32) -> Vec<u32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let catalog = node.node.catalog();
        let table = catalog.table("test", "t").unwrap();
        let is_missing = |n: &u32| {
            let (key, _) = row(*n);
            table.shard(&key).near().is_none_or(|near| near.is_void() || near.get(&key).unwrap().is_none())
        };
        let missing: Vec<u32> = (0..count).filter(is_missing).collect();
        if missing.is_empty() || Instant::now() > deadline {
            return missing;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn three(hub: &Arc<Hub>) -> ([Machine; 3], [Running; 3]) {
    let machines = [Machine::new("a"), Machine::new("b"), Machine::new("c")];
    let a = machines[0].start(hub, None);
    let b = machines[1].start(hub, Some(&a));
    let c = machines[2].start(hub, Some(&b));
    let deadline = Instant::now() + PATIENCE;
    let voters = || a.node.log().group_status(GroupId(0)).unwrap().members.voters.len();
    while voters() < 3 {
        assert!(Instant::now() < deadline, "{} voters", voters());
        std::thread::sleep(Duration::from_millis(10));
    }
    (machines, [a, b, c])
}

#[test]
fn three_nodes_share_a_catalog_that_each_can_change() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    for (node, name) in nodes.iter().zip(["x", "y", "z"]) {
        node.node.create_db(name).unwrap();
    }
    for node in &nodes {
        let deadline = Instant::now() + PATIENCE;
        while node.node.catalog().database("z").is_none() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        let catalog = node.node.catalog();
        assert!(catalog.database("x").is_some() && catalog.database("y").is_some());
        assert_eq!(catalog.servers().len(), 3);
    }
    let taken = nodes[2].node.create_db("x").unwrap_err();
    assert_eq!(taken.to_string(), "Database `x` already exists.");
}

#[test]
fn no_acknowledged_row_is_lost_when_a_leader_is_killed_and_it_comes_back() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(2, 3), ..TableOptions::default() };
    a.node.create_table("test", "t", options).unwrap();
    a.wait_ready("t");
    for n in 0..200 {
        write_until_done(&[&a, &b, &c], n);
    }
    a.kill();
    for n in 200..400 {
        write_until_done(&[&b, &c], n);
    }
    assert_eq!(missing(&b, 400), []);
    assert_eq!(missing(&c, 400), []);
    // The catalog has a majority too.
    b.node.create_db("after").unwrap();
    let a = machines[0].start(&hub, None);
    assert_eq!(missing(&a, 400), []);
    a.wait_ready("t");
    assert!(a.node.catalog().database("after").is_some());
}

#[test]
fn replicas_are_added_and_taken_away_while_rows_are_written() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let table = a.node.create_table("test", "t", TableOptions::default()).unwrap().id;
    for n in 0..300 {
        write_until_done(&[&a, &b, &c], n);
    }
    let change = |replicas| TableChange { shards: Some(replicated(1, replicas)), ..TableChange::default() };
    b.node.change_table(table, &change(3)).unwrap();
    for n in 300..400 {
        write_until_done(&[&a, &b, &c], n);
    }
    b.wait_ready("t");
    for node in [&a, &b, &c] {
        assert_eq!(missing(node, 400), []);
    }
    a.node.change_table(table, &change(1)).unwrap();
    for n in 400..450 {
        write_until_done(&[&a, &b, &c], n);
    }
    a.wait_ready("t");
    let holders = || {
        let is_holder = |node: &&Running| {
            let catalog = node.node.catalog();
            catalog.table("test", "t").unwrap().shards()[0].near().is_some()
        };
        [&a, &b, &c].into_iter().filter(is_holder).count()
    };
    let deadline = Instant::now() + PATIENCE;
    while holders() != 1 {
        assert!(Instant::now() < deadline, "{} nodes hold the shard", holders());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Remembers who it was told is gone.
#[derive(Default)]
struct Farewells(parking_lot::Mutex<Vec<ServerId>>);

impl Serve for Farewells {
    fn serve(&self, _from: ServerId, _question: bytes::Bytes, reply: rekindle_cluster::Reply) {
        reply(Err("nothing is answered here".to_owned()));
    }

    fn gone(&self, server: ServerId) {
        self.0.lock().push(server);
    }
}

#[test]
fn who_answers_queries_hears_that_a_server_is_gone() {
    let hub = Arc::new(Hub::default());
    let machine = Machine::new("a");
    let a = machine.start(&hub, None);
    let farewells = Arc::new(Farewells::default());
    a.node.answer_queries(farewells.clone());
    let server = a.node.identity().server;
    a.node.desk().gone(server);
    assert_eq!(*farewells.0.lock(), [server]);
}
