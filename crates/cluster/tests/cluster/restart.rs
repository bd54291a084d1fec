//! Restarts of nodes whose engine or files have lost recent state.

use std::path::Path;
use std::sync::Arc;

use engine::Engine;
use engine::memory::MemoryEngine;
use io::Files;
use io::sim::SimFiles;
use rekindle_cluster::{DesiredShards, ServerId, ShardPlaces, TableChange, TableOptions};

use crate::fixture::{three, wait_for_voters};
use crate::hub::{Hub, Machine, Running, missing, replicated, wait_until, write_until_done};

/// One shard with one replica on each of `servers`.
fn on(servers: &[ServerId]) -> DesiredShards {
    let place = |server: &ServerId| ShardPlaces { primary: *server, replicas: vec![(*server, true)] };
    DesiredShards::Named(servers.iter().map(place).collect())
}

fn groups(node: &Running) -> Vec<log::GroupId> {
    let catalog = node.node.catalog();
    catalog.table("test", "t").unwrap().shards().iter().map(|shard| shard.group()).collect()
}

/// The first machine, with `memory` as its engine, the two others, and the nodes that run on them.
fn three_of_which_the_first_has(
    hub: &Arc<Hub>,
    memory: &MemoryEngine,
) -> (Machine, [Machine; 2], [Running; 3]) {
    let first = Machine { engine: Arc::new(memory.clone()), ..Machine::new("a") };
    let others = [Machine::new("b"), Machine::new("c")];
    let a = first.start(hub, None);
    let b = others[0].start(hub, Some(&a));
    let c = others[1].start(hub, Some(&a));
    wait_for_voters(&a, 3);
    (first, others, [a, b, c])
}

#[test]
fn an_older_catalog_does_not_delete_rows_that_a_later_one_places_here() {
    let (hub, memory) = (Arc::new(Hub::default()), MemoryEngine::new());
    let (first, others, [a, b, c]) = three_of_which_the_first_has(&hub, &memory);
    let (here, there) = (a.server(), b.server());
    let options = TableOptions { shards: on(&[here]), ..TableOptions::default() };
    let table = a.node.schema().create_table("test", "t", options).unwrap().id;
    for n in 0..60 {
        write_until_done(&[&a], n);
    }
    // Half of the table is to move to a server that is down, and is moved back before that.
    b.kill();
    let change = |servers: &[ServerId]| TableChange { shards: Some(on(servers)), ..TableChange::default() };
    a.node.resharder().change_table(table, &change(&[here, there])).unwrap();
    let halves = groups(&a);
    assert_eq!(halves.len(), 2);
    // The last flushed state of its engine: the earlier catalog, and all rows.
    memory.flush().unwrap();
    let before = memory.after_crash();
    a.node.resharder().change_table(table, &change(&[here])).unwrap();
    wait_until("the end of the halves", || {
        halves.iter().all(|group| a.node.log().group_status(*group).is_err())
    });
    c.kill();
    a.kill();
    let first = Machine { engine: Arc::new(before), ..first };
    let a = first.start(&hub, None);
    // No server is up that could send it the later catalog. Its log has it, if the commit index was written in time.
    let known = groups(&a);
    assert!(known == halves || known.len() == 1, "{known:?}");
    let _c = others[1].start(&hub, None);
    wait_until("the later catalog", || groups(&a).len() == 1);
    assert_eq!(missing(&a, 60), []);
    let catalog = a.node.catalog();
    assert_eq!(catalog.table("test", "t").unwrap().shards()[0].local().unwrap().count(), 60);
}

#[test]
fn the_first_server_does_not_bootstrap_the_cluster_again() {
    let (hub, memory) = (Arc::new(Hub::default()), MemoryEngine::new());
    // Its engine never flushed anything: after a power loss everything it has is in the log.
    let (first, _others, [a, b, c]) = three_of_which_the_first_has(&hub, &memory);
    b.node.schema().drop_db("test").unwrap();
    let admin = |node: &Running| node.node.catalog().user("admin").unwrap().clone();
    let before = admin(&b);
    wait_until("the same catalog", || a.node.catalog().database("test").is_none());
    a.kill();
    let first = Machine { engine: Arc::new(memory.after_crash()), ..first };
    let a = first.start(&hub, None);
    // Anything it would write at the start comes before this.
    a.node.schema().create_db("after").unwrap();
    wait_until("the catalog", || {
        [&a, &b, &c].iter().all(|node| node.node.catalog().database("after").is_some())
    });
    for node in [&a, &b, &c] {
        assert!(node.node.catalog().database("test").is_none(), "a database that was dropped is there again");
        assert_eq!(admin(node), before);
    }
}

#[test]
fn the_first_server_starts_before_the_others() {
    let (hub, memory) = (Arc::new(Hub::default()), MemoryEngine::new());
    let (first, others, [a, b, c]) = three_of_which_the_first_has(&hub, &memory);
    [a, b, c].into_iter().for_each(Running::kill);
    let first = Machine { engine: Arc::new(memory.after_crash()), ..first };
    let begun = std::time::Instant::now();
    let a = first.start_without_catalog(&hub, None);
    assert!(begun.elapsed() < std::time::Duration::from_secs(8), "the start waits for other servers");
    let _b = others[0].start(&hub, None);
    wait_until("the catalog", || a.node.catalog().user("admin").is_some());
}

#[test]
fn a_replica_that_left_its_group_and_is_still_named_by_the_catalog_is_replaced() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(1, 3), ..TableOptions::default() };
    a.node.schema().create_table("test", "t", options).unwrap();
    a.wait_ready("t");
    for n in 0..20 {
        write_until_done(&[&a, &b, &c], n);
    }
    let group = groups(&c)[0];
    let peer = c.node.log().group_status(group).unwrap().own;
    c.node.log().leave_group(group).unwrap();
    c.kill();
    let c = machines[2].start(&hub, None);
    let named = || {
        let catalog = a.node.catalog();
        let replicas = catalog.table("test", "t").unwrap().shards()[0].replicas().to_vec();
        replicas.into_iter().find(|replica| replica.server == c.server()).unwrap().peer
    };
    wait_until("another replica", || named() != peer);
    a.wait_ready("t");
    assert_eq!(missing(&c, 20), []);
}

/// Ends a node, and returns when its log has released the files.
fn stop(node: Running) {
    let log = Arc::downgrade(node.node.log());
    node.kill();
    wait_until("the end of its log", || log.strong_count() == 0);
}

#[test]
fn a_server_whose_older_files_are_restored_receives_missing_rows_without_new_writes() {
    let hub = Arc::new(Hub::default());
    let (a, b) = (Machine::new("a"), Machine::new("b"));
    let (a, b) = {
        let first = a.start(&hub, None);
        let second = b.start(&hub, Some(&first));
        (first, second)
    };
    let (files, memory) = (SimFiles::new(7), MemoryEngine::new());
    files.create_dir_all(Path::new("data")).unwrap();
    let third =
        Machine { files: Arc::new(files.clone()), engine: Arc::new(memory.clone()), ..Machine::new("c") };
    let c = third.start(&hub, Some(&a));
    let options = TableOptions { shards: replicated(1, 3), ..TableOptions::default() };
    a.node.schema().create_table("test", "t", options).unwrap();
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    a.wait_ready("t");
    stop(c);
    memory.flush().unwrap();
    let before = Machine {
        files: Arc::new(files.copy()),
        engine: Arc::new(memory.after_crash()),
        ..Machine::new("c")
    };
    let c = third.start(&hub, None);
    (20..60).for_each(|n| write_until_done(&[&a, &b, &c], n));
    a.node.schema().create_db("since_then").unwrap();
    assert_eq!(missing(&c, 60), []);
    stop(c);

    let c = before.start(&hub, None);
    assert_eq!(missing(&c, 60), [], "rows acknowledged since then");
    a.wait_ready("t");
    wait_until("the latest catalog", || c.node.catalog().database("since_then").is_some());
}
