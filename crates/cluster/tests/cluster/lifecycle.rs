//! The life of a cluster: nodes join, share tables, fail and return, and no row is lost.

use std::sync::Arc;
use std::time::Instant;

use datum::KeyRange;
use log::GroupId;
use parking_lot::Mutex;
use rekindle_cluster::{
    DesiredShards, ReplicaState, RpcHandler, ServerId, ShardPlaces, TableChange, TableHandle, TableOptions,
};

use crate::fixture::three;
use crate::hub::{
    Hub, Machine, Running, TEST_TIMEOUT, missing, replicated, wait_until, write_long_until_done,
    write_until_done,
};

#[test]
fn three_nodes_share_a_catalog_that_each_can_change() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    for (node, name) in nodes.iter().zip(["x", "y", "z"]) {
        node.node.schema().create_db(name).unwrap();
    }
    for node in &nodes {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while node.node.catalog().database("z").is_none() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let catalog = node.node.catalog();
        assert!(catalog.database("x").is_some() && catalog.database("y").is_some());
        assert_eq!(catalog.servers().len(), 3);
    }
    let taken = nodes[2].node.schema().create_db("x").unwrap_err();
    assert_eq!(taken.to_string(), "Database `x` already exists.");
}

#[test]
fn every_node_knows_the_state_of_many_tables_on_other_servers() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let names: Vec<String> = (0..20).map(|n| format!("t{n}")).collect();
    for name in &names {
        let options = TableOptions { shards: replicated(2, 1), ..TableOptions::default() };
        nodes[0].node.schema().create_table("test", name, options).unwrap();
    }
    for node in &nodes {
        wait_until("a catalog of all tables", || node.node.catalog().tables().len() == names.len());
        names.iter().for_each(|name| node.wait_ready(name));
        let catalog = node.node.catalog();
        let tables: Vec<&TableHandle> = catalog.tables().into_iter().map(|table| &**table).collect();
        let states = node.node.states().table_states(&tables);
        assert_eq!((tables.len(), states.len()), (20, 20));
        for (table, shards) in tables.iter().zip(&states) {
            assert_eq!(shards.len(), 2);
            for (config, state) in table.config.shards.iter().zip(shards) {
                let server = config.replicas[0].server;
                assert_eq!(state.leader, Some(server));
                assert_eq!(state.replicas, [(server, ReplicaState::Ready)]);
            }
        }
    }
}

/// The rows exceed the limit of bytes in flight to one follower, so some entries are still held back when the copy of the
/// rows has overtaken them.
#[test]
fn a_replica_that_received_a_copy_of_a_large_table_continues_from_the_log() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(1, 1), ..TableOptions::default() };
    a.node.schema().create_table("test", "t", options).unwrap();
    a.wait_ready("t");
    for n in 0..200 {
        write_long_until_done(&[&a, &b, &c], n, 100_000);
    }
    let table = a.node.catalog().table("test", "t").unwrap().config.id;
    let wider = TableChange { shards: Some(replicated(1, 3)), ..TableChange::default() };
    a.node.resharder().change_table(table, &wider).unwrap();
    a.wait_ready("t");
    for n in 200..240 {
        write_until_done(&[&a, &b, &c], n);
    }
    for node in [&a, &b, &c] {
        assert_eq!(missing(node, 240), []);
    }
}

#[test]
fn no_acknowledged_row_is_lost_when_a_leader_is_killed_and_restarted() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(2, 3), ..TableOptions::default() };
    a.node.schema().create_table("test", "t", options).unwrap();
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
    // The catalog has a quorum too.
    b.node.schema().create_db("after").unwrap();
    let a = machines[0].start(&hub, None);
    assert_eq!(missing(&a, 400), []);
    a.wait_ready("t");
    wait_until("the newer catalog", || a.node.catalog().database("after").is_some());
}

#[test]
fn replicas_are_added_and_removed_during_writes() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let table = a.node.schema().create_table("test", "t", TableOptions::default()).unwrap().id;
    for n in 0..300 {
        write_until_done(&[&a, &b, &c], n);
    }
    let change = |replicas| TableChange { shards: Some(replicated(1, replicas)), ..TableChange::default() };
    b.node.resharder().change_table(table, &change(3)).unwrap();
    for n in 300..400 {
        write_until_done(&[&a, &b, &c], n);
    }
    b.wait_ready("t");
    for node in [&a, &b, &c] {
        assert_eq!(missing(node, 400), []);
    }
    a.node.resharder().change_table(table, &change(1)).unwrap();
    for n in 400..450 {
        write_until_done(&[&a, &b, &c], n);
    }
    a.wait_ready("t");
    let holders = || {
        let is_holder = |node: &&Running| {
            let catalog = node.node.catalog();
            catalog.table("test", "t").unwrap().shards()[0].local().is_some()
        };
        [&a, &b, &c].into_iter().filter(is_holder).count()
    };
    let deadline = Instant::now() + TEST_TIMEOUT;
    while holders() != 1 {
        assert!(Instant::now() < deadline, "{} nodes hold the shard", holders());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_server_without_shards_of_a_resharded_table_keeps_none_of_its_rows() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(1, 3), ..TableOptions::default() };
    let table = a.node.schema().create_table("test", "t", options).unwrap().id;
    for n in 0..60 {
        write_until_done(&[&a, &b, &c], n);
    }
    a.wait_ready("t");
    assert_eq!(missing(&b, 60), []);
    let here = ShardPlaces { primary: a.server(), replicas: vec![(a.server(), true)] };
    let shards = Some(DesiredShards::Named(vec![here.clone(), here]));
    let change = TableChange { shards, ..TableChange::default() };
    wait_until("the reshard", || a.node.resharder().change_table(table, &change).is_ok());
    let rows = |node: &Running| {
        let part = storage::ShardRange { range: KeyRange::all(), group: GroupId(99) };
        let rows = storage::Table::new(node.node.replicas().store().clone(), table).snapshot(part).unwrap();
        let mut scan = rows.scan(&KeyRange::all(), storage::Direction::Ascending).to_the_end();
        scan.next_batch().unwrap().map_or(0, |batch| batch.len())
    };
    wait_until("the end of the rows of b and c", || rows(&b) == 0 && rows(&c) == 0);
    assert_eq!(missing(&a, 60), []);
}

#[test]
fn a_member_whose_server_is_down_is_removed_before_one_that_responds() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(1, 3), ..TableOptions::default() };
    let table = a.node.schema().create_table("test", "t", options).unwrap().id;
    a.wait_ready("t");
    let group = a.node.catalog().table("test", "t").unwrap().shards()[0].group();
    let leads = |node: &Running| {
        node.node.catalog().table("test", "t").unwrap().shards()[0].local().unwrap().is_leader()
    };
    let mut nodes = vec![a, b, c];
    let mut at = None;
    wait_until("a leader", || {
        at = nodes.iter().position(leads);
        at.is_some()
    });
    let leader = nodes.remove(at.unwrap());
    let members = leader.node.log().group_status(group).unwrap().members.voters;
    let place = |node: &Running| {
        let server = node.server();
        members.iter().position(|peer| leader.node.server_of(*peer) == Some(server)).unwrap()
    };
    nodes.sort_by_key(place);
    // According to the log the last member was active a moment ago, but its link is down.
    nodes.pop().unwrap().kill();
    let here = ShardPlaces { primary: leader.server(), replicas: vec![(leader.server(), true)] };
    let change = TableChange { shards: Some(DesiredShards::Named(vec![here])), ..TableChange::default() };
    // The killed server may have led the catalog.
    wait_until("the change", || leader.node.resharder().change_table(table, &change).is_ok());
    wait_until("a group of one", || {
        leader.node.log().group_status(group).is_ok_and(|status| status.members.voters.len() == 1)
    });
}

/// Records the servers that were reported as disconnected.
#[derive(Default)]
struct Disconnections(Mutex<Vec<ServerId>>);

impl RpcHandler for Disconnections {
    fn handle(&self, _from: ServerId, _request: bytes::Bytes, respond: rekindle_cluster::Responder) {
        respond(Err("this handler serves no requests".to_owned()));
    }

    fn disconnected(&self, server: ServerId) {
        self.0.lock().push(server);
    }
}

#[test]
fn the_query_handler_learns_that_a_server_has_disconnected() {
    let hub = Arc::new(Hub::default());
    let machine = Machine::new("a");
    let a = machine.start(&hub, None);
    let disconnections = Arc::new(Disconnections::default());
    a.node.set_query_handler(disconnections.clone());
    let server = a.node.identity().server;
    a.node.rpc_server().disconnected(server);
    assert_eq!(*disconnections.0.lock(), [server]);
}
