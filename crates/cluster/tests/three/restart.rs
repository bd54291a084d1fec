//! What a node does that starts again and knows less than it did.

use std::sync::Arc;

use engine::Engine;
use engine::memory::MemoryEngine;
use rekindle_cluster::{ServerId, ShardPlaces, ShardsWanted, TableChange, TableOptions};

use crate::hub::{Hub, Machine, Running, missing, wait_until, write_until_done};

/// One shard with one replica on each of `servers`.
fn on(servers: &[ServerId]) -> ShardsWanted {
    let place = |server: &ServerId| ShardPlaces { primary: *server, replicas: vec![(*server, true)] };
    ShardsWanted::Named(servers.iter().map(place).collect())
}

fn groups(node: &Running) -> Vec<log::GroupId> {
    let catalog = node.node.catalog();
    catalog.table("test", "t").unwrap().shards().iter().map(|shard| shard.group()).collect()
}

#[test]
fn a_catalog_of_before_does_not_take_rows_away_that_a_later_one_places_there() {
    let (hub, memory) = (Arc::new(Hub::default()), MemoryEngine::new());
    let first = Machine { engine: Arc::new(memory.clone()), ..Machine::new("a") };
    let others = [Machine::new("b"), Machine::new("c")];
    let a = first.start(&hub, None);
    let b = others[0].start(&hub, Some(&a));
    let c = others[1].start(&hub, Some(&a));
    let voters = || a.node.log().group_status(log::GroupId(0)).unwrap().members.voters.len();
    wait_until("three who vote on the catalog", || voters() == 3);
    let (here, there) = (a.server(), b.server());
    let options = TableOptions { shards: on(&[here]), ..TableOptions::default() };
    let table = a.node.create_table("test", "t", options).unwrap().id;
    for n in 0..60 {
        write_until_done(&[&a], n);
    }
    // Half of the table is to go to one who is not there, and comes back before it went.
    b.kill();
    let change = |servers: &[ServerId]| TableChange { shards: Some(on(servers)), ..TableChange::default() };
    a.node.change_table(table, &change(&[here, there])).unwrap();
    let halves = groups(&a);
    assert_eq!(halves.len(), 2);
    // What its engine has written down last: the catalog of before, and all rows.
    memory.flush().unwrap();
    let before = memory.after_crash();
    a.node.change_table(table, &change(&[here])).unwrap();
    wait_until("the end of the halves", || {
        halves.iter().all(|group| a.node.log().group_status(*group).is_err())
    });
    c.kill();
    a.kill();
    let first = Machine { engine: Arc::new(before), ..first };
    let a = first.start(&hub, None);
    assert_eq!(groups(&a), halves, "nobody is there to tell it of the later catalog");
    let _c = others[1].start(&hub, None);
    wait_until("the later catalog", || groups(&a).len() == 1);
    assert_eq!(missing(&a, 60), []);
    let catalog = a.node.catalog();
    assert_eq!(catalog.table("test", "t").unwrap().shards()[0].near().unwrap().count(), 60);
}
