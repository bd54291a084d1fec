//! A server is removed for good: not while a shard needs it, and whoever is told so can do something about it.

use std::sync::Arc;

use rekindle_cluster::{AdminError, RepairMode, ShardPlaces, ShardsWanted, TableOptions};

use crate::division::{create, on, table};
use crate::hub::{Hub, change, missing, three, wait_until, write_until_done};

#[test]
fn a_server_that_a_shard_needs_for_its_majority_is_not_removed() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &c]]));
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&a, &c], n));
    let (id, gone, before) = (table(&a).config.id, c.server(), table(&a).config.clone());
    c.kill();
    // Also by one that has no replica of it.
    for node in [&a, &b] {
        let refused = node.node.remove_server(gone).unwrap_err();
        let AdminError::NeededForMajority { server, tables } = &refused else { panic!("{refused}") };
        assert_eq!((&**server, &**tables), ("c", "`test.t`"));
        assert!(refused.to_string().contains("emergency_repair"), "{refused}");
        assert!(node.node.catalog().server(gone).is_some() && !node.node.catalog().is_removed(gone));
        assert_eq!(table(node).config, before);
    }
    wait_until("the repair", || a.node.emergency_repair(id, RepairMode::Rollback).is_ok());
    a.node.remove_server(gone).unwrap();
    (20..30).for_each(|n| write_until_done(&[&a, &b], n));
    assert_eq!(missing(&a, 30), []);
}

#[test]
fn a_server_that_comes_back_can_be_spared_later() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b, &c]]));
    a.wait_ready("t");
    let (second, third) = (b.server(), c.server());
    c.kill();
    b.kill();
    // Neither is the catalog there, nor most of the table.
    a.node.remove_server(second).unwrap_err();
    let b = machines[1].start(&hub, None);
    wait_until("two of three", || a.node.remove_server(third).is_ok());
    (0..10).for_each(|n| write_until_done(&[&a, &b], n));
    assert_eq!(table(&a).config.shards[0].replicas.len(), 2);
}

#[test]
fn a_server_whose_replicas_have_no_vote_can_be_spared() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let replicas = vec![(a.server(), true), (c.server(), false)];
    create(&a, ShardsWanted::Named(vec![ShardPlaces { primary: a.server(), replicas }]));
    a.wait_ready("t");
    let gone = c.server();
    c.kill();
    b.node.remove_server(gone).unwrap();
    (0..10).for_each(|n| write_until_done(&[&a, &b], n));
}

#[test]
fn a_replica_on_its_way_out_that_still_votes_keeps_its_server() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &c]]));
    a.wait_ready("t");
    let (id, gone, group) = (table(&a).config.id, c.server(), table(&a).shards()[0].group());
    c.kill();
    change(&b, id, on(&[&[&a]])).unwrap();
    let refused = b.node.remove_server(gone).unwrap_err();
    assert!(matches!(refused, AdminError::NeededForMajority { .. }), "{refused}");
    let members = a.node.log().group_status(group).unwrap().members;
    assert_eq!((members.voters.len(), members.removed.len()), (2, 0));
    wait_until("the repair", || b.node.emergency_repair(id, RepairMode::Rollback).is_ok());
    b.node.remove_server(gone).unwrap();
}

#[test]
fn many_tables_are_named_by_some_of_them() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    for nth in 0..13 {
        let options = TableOptions { shards: on(&[&[&a, &c]]), ..TableOptions::default() };
        a.node.create_table("test", &format!("t{nth:02}"), options).unwrap();
    }
    (0..13).for_each(|nth| a.wait_ready(&format!("t{nth:02}")));
    let gone = c.server();
    c.kill();
    let Err(AdminError::NeededForMajority { tables, .. }) = b.node.remove_server(gone) else {
        panic!("it is needed")
    };
    assert!(tables.starts_with("`test.t00`, `test.t01`, ") && tables.ends_with(" and 3 more"), "{tables}");
}
