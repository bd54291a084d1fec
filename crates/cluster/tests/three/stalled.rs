//! A disk that is full, while its server lives.

use std::path::Path;
use std::sync::Arc;

use io::Files;
use io::sim::SimFiles;
use log::{Durability, GroupId};
use rekindle_cluster::Route;
use shard::Decision;

use crate::division::{create, on};
use crate::hub::{Hub, Machine, Running, missing, row, wait_until, write_until_done};

fn look(nodes: &[&Running]) {
    nodes.iter().for_each(|node| node.node.mind_log());
}

#[test]
fn what_a_server_with_a_full_disk_led_is_led_by_others_and_found_there() {
    let hub = Arc::new(Hub::default());
    let files = SimFiles::new(7);
    files.create_dir_all(Path::new("data")).unwrap();
    let full = Machine { files: Arc::new(files.clone()), ..Machine::new("a") };
    let a = full.start(&hub, None);
    let (b, c) = (Machine::new("b").start(&hub, Some(&a)), Machine::new("c").start(&hub, Some(&a)));
    let nodes = [&a, &b, &c];
    wait_until("three voters", || a.node.log().group_status(GroupId(0)).unwrap().members.voters.len() == 3);
    create(&a, on(&[&[&a, &b, &c]]));
    a.wait_ready("t");
    write_until_done(&nodes, 0);
    let handle = |node: &Running| node.node.catalog().table("test", "t").unwrap().shards()[0].clone();
    wait_until("a leads", || matches!(handle(&a).leader(), Some(Route::Near(_))));

    files.fill(true);
    let shard = handle(&a).near().unwrap().clone();
    let (key, object) = row(1);
    // It waits until there is space.
    let late = shard.write_rows(vec![(key, Decision::Put(object))], Durability::Hard);
    wait_until("it is noticed", || {
        look(&nodes);
        a.node.own_stall().is_some()
    });
    wait_until("another leads", || {
        look(&nodes);
        [&b, &c].iter().any(|node| handle(node).near().is_some_and(|near| near.is_leader()))
    });
    wait_until("both have heard of it", || {
        look(&nodes);
        b.node.is_stalled(a.server()) && c.node.is_stalled(a.server())
    });
    write_until_done(&[&b, &c], 2);
    let there = handle(&a);
    assert!(!matches!(there.leader(), Some(Route::Near(_))), "what a holds is old");
    assert!(!there.hears(), "its log hears nothing");
    wait_until("others say who leads", || {
        a.node.find_leaders(&[&there]);
        matches!(there.leader(), Some(Route::Far(_)))
    });
    // The catalog was led there, too.
    b.node.create_db("meanwhile").unwrap();

    files.fill(false);
    wait_until("there is space again", || {
        look(&nodes);
        a.node.own_stall().is_none() && !b.node.is_stalled(a.server())
    });
    wait_until("a hears who leads", || {
        matches!(handle(&a).leader(), Some(Route::Far(_))) && handle(&a).hears()
    });
    a.wait_ready("t");
    wait_until("a has the news", || a.node.catalog().database("meanwhile").is_some());
    drop(late);
    write_until_done(&nodes, 1);
    for node in nodes {
        assert_eq!(missing(node, 3), [], "an acknowledged row is lost");
    }
}
