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
use parking_lot::{Mutex, RwLock};
use rekindle_cluster::{
    Answered, Ask, AskError, Desk, Identity, JoinOptions, Node, NodeOptions, Post, RepairMode, Route, Serve,
    ServerId, ShardPlaces, ShardsWanted, TableChange, TableOptions, Wanted, Wire, join, readiness,
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
    // The heartbeats its links were told.
    heard: Mutex<Vec<Duration>>,
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

    fn set_heartbeat(&self, timeout: Duration) {
        if let Some(end) = self.hub.ends.read().get(&self.own) {
            end.heard.lock().push(timeout);
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
        let end = Arc::new(End {
            post: post.clone(),
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
    wait_until("the newer catalog", || a.node.catalog().database("after").is_some());
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
struct Farewells(Mutex<Vec<ServerId>>);

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

/// Waits until `is_so`.
#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_table_whose_majority_is_gone_lives_again_with_every_row_of_the_survivor() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(2, 3), ..TableOptions::default() };
    let id = a.node.create_table("test", "t", options).unwrap().id;
    a.wait_ready("t");
    let healthy = a.node.plan_repair(id, RepairMode::Rollback).unwrap_err();
    assert_eq!(healthy.to_string(), "This table doesn't need to be repaired.");
    for n in 0..200 {
        write_until_done(&[&a, &b, &c], n);
    }
    assert_eq!(missing(&c, 200), []);
    let lost = [a.server(), b.server()];
    a.kill();
    b.kill();
    // The catalog has lost its majority too.
    let planned = c.node.plan_repair(id, RepairMode::Rollback).unwrap();
    assert_eq!(c.node.catalog().table_by_id(id).unwrap().config.shards[0].replicas.len(), 3);
    let repaired = c.node.emergency_repair(id, RepairMode::Rollback).unwrap();
    assert_eq!(planned.shards, repaired.shards);
    assert!(repaired.shards.iter().all(|shard| shard.primary == c.server() && shard.replicas.len() == 1));
    for n in 200..300 {
        write_until_done(&[&c], n);
    }
    assert_eq!(missing(&c, 300), []);
    for server in lost {
        assert!(c.node.catalog().is_removed(server), "{server} is still in the catalog");
    }
    // One of those that were given up comes back: its replicas are told, and nothing is lost.
    let catalogs = |node: &Running| node.node.log().group_status(GroupId(0));
    let back = machines[0].start(&hub, None);
    wait_until("the old replica of the catalog leaves", || catalogs(&back).is_err());
    for n in 300..320 {
        write_until_done(&[&c], n);
    }
    assert_eq!(missing(&c, 320), []);
}

#[test]
fn a_shard_without_any_replica_is_only_erased_when_asked_to() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let places = vec![ShardPlaces { primary: c.server(), replicas: vec![(c.server(), true)] }];
    let options = TableOptions { shards: ShardsWanted::Named(places), ..TableOptions::default() };
    let id = a.node.create_table("test", "t", options).unwrap().id;
    a.wait_ready("t");
    write_until_done(&[&a, &b, &c], 1);
    c.kill();
    let refused = a.node.emergency_repair(id, RepairMode::Rollback).unwrap_err().to_string();
    assert!(refused.starts_with("One or more shards of this table have no available replicas."), "{refused}");
    let repaired = a.node.emergency_repair(id, RepairMode::RollbackOrErase).unwrap();
    assert!([a.server(), b.server()].contains(&repaired.shards[0].primary));
    write_until_done(&[&a, &b], 2);
    let holder = if repaired.shards[0].primary == a.server() { &a } else { &b };
    let catalog = holder.node.catalog();
    let shard = &catalog.table_by_id(id).unwrap().shards()[0];
    assert_eq!(shard.near().map(|near| near.count()), Some(1), "only the new row is there");
}

#[test]
fn a_server_that_was_removed_is_not_let_in_again() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(1, 3), ..TableOptions::default() };
    a.node.create_table("test", "t", options).unwrap();
    a.wait_ready("t");
    let gone = c.server();
    let still_there = a.node.remove_server(gone).unwrap_err().to_string();
    assert!(still_there.contains("is connected"), "{still_there}");
    c.kill();
    a.node.remove_server(gone).unwrap();
    let members = |node: &Running| node.node.log().group_status(GroupId(0)).unwrap().members;
    wait_until("two voters", || members(&a).voters.len() == 2 || members(&b).voters.len() == 2);
    // The one that leads forgets nothing when it is started again.
    a.kill();
    let a = machines[0].start(&hub, None);
    wait_until("two voters again", || members(&a).voters.len() == 2);
    assert_eq!(members(&a).removed.len(), 1);
    let options = JoinOptions {
        server: gone,
        cluster: a.node.identity().cluster,
        name: Text::from_static("c"),
        tags: Vec::new(),
        cache_size_mb: None,
        addresses: Vec::new(),
        is_proxy: false,
    };
    let fresh = Machine::new("c");
    let post = Post::new(Replicas::new(fresh.engine.clone()).unwrap());
    post.connect(Arc::new(Line { hub: hub.clone(), own: gone }));
    let end = End {
        post: post.clone(),
        log: a.node.log().clone(),
        desk: RwLock::new(None),
        heard: Mutex::default(),
    };
    hub.ends.write().insert(gone, Arc::new(end));
    let members = || vec![a.server()];
    let patience = Duration::from_millis(500);
    let refused = join(&options, &post, members, &*fresh.files, &PathBuf::from("data"), patience);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("removed from the cluster for good"), "{refused}");
}

#[test]
fn a_node_that_was_told_nothing_yet_catches_up_when_asked() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    for round in 0..20 {
        let name = format!("db{round}");
        nodes[round % 3].node.create_db(&name).unwrap();
        for node in &nodes {
            let has = || node.node.catalog().database(&name).is_some();
            let found = has() || node.node.catch_up(PATIENCE) && has() || has();
            assert!(found, "{name} is missing");
        }
    }
}

#[test]
fn the_heartbeat_is_a_setting_of_the_whole_cluster() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    assert_eq!(nodes[1].node.catalog().heartbeat_secs(), 10);
    let too_short = nodes[1].node.set_heartbeat(1).unwrap_err().to_string();
    assert_eq!(too_short, "The heartbeat timeout must be at least two seconds");
    nodes[1].node.set_heartbeat(3).unwrap();
    for node in &nodes {
        wait_until("the new setting", || node.node.catalog().heartbeat_secs() == 3);
    }
    let is_told = |end: &Arc<End>| end.heard.lock().last() == Some(&Duration::from_secs(3));
    wait_until("all links are told", || hub.ends.read().values().all(is_told));
}

#[test]
fn a_proxy_has_the_catalog_and_nothing_else_and_is_forgotten_when_it_goes() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let proxy = Machine::new("proxy").start(&hub, Some(&a));
    let options = TableOptions { shards: replicated(2, 3), ..TableOptions::default() };
    proxy.node.create_table("test", "t", options).unwrap();
    proxy.wait_ready("t");
    for n in 0..50 {
        write_until_done(&[&a, &b, &c], n);
    }
    let catalog = proxy.node.catalog();
    assert!(catalog.table("test", "t").unwrap().shards().iter().all(|shard| shard.near().is_none()));
    let four = proxy.node.create_table(
        "test",
        "four",
        TableOptions { shards: replicated(1, 4), ..TableOptions::default() },
    );
    assert!(four.unwrap_err().to_string().starts_with("Can't put 4 replicas"), "a proxy holds nothing");
    let voters = catalog.servers().iter().filter(|server| server.catalog.voting).count();
    assert_eq!((catalog.servers().len(), voters), (4, 3));
    proxy.node.take_leave().unwrap();
    wait_until("the proxy is forgotten", || a.node.catalog().servers().len() == 3);
}
