//! Proxies hold no replicas and do not vote, even if only one other server is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{GroupId, Members};
use rekindle_cluster::{AdminError, RepairMode, RepairScope};

use crate::fixture::{create, on, table, three};
use crate::hub::{Hub, Machine, Running, change, missing, replicated, wait_until, write_until_done};
use crate::repair::reset;

fn wait_for_table(proxy: &Running) {
    wait_until("the table on the proxy", || proxy.node.catalog().table("test", "t").is_some());
}

/// Three servers with a table, and a proxy that shows the same catalog.
fn three_and_a_proxy(hub: &Arc<Hub>) -> ([Machine; 3], [Running; 4]) {
    let (machines, [a, b, c]) = three(hub);
    let proxy = Machine::new("proxy").start(hub, Some(&a));
    create(&a, replicated(1, 3));
    a.wait_ready("t");
    wait_for_table(&proxy);
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    assert_eq!(missing(&a, 20), []);
    (machines, [a, b, c, proxy])
}

#[test]
fn a_repaired_catalog_never_continues_on_a_proxy() {
    for is_asked_of_proxy in [false, true] {
        let hub = Arc::new(Hub::default());
        let (_machines, [a, b, c, proxy]) = three_and_a_proxy(&hub);
        let (id, own) = (table(&a).config.id, a.node.catalog().server(a.server()).unwrap().catalog.peer);
        let lost = [b.server(), c.server()];
        [b, c].into_iter().for_each(Running::kill);
        let asked = if is_asked_of_proxy { &proxy } else { &a };
        wait_until("the repair", || {
            match asked.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster) {
                Ok(_) => true,
                Err(error) => panic!("{error}"),
            }
        });
        assert_eq!(a.node.log().group_status(GroupId(0)).unwrap().members.voters, [own]);
        (20..30).for_each(|n| write_until_done(&[&a], n));
        assert_eq!(missing(&a, 30), []);
        a.node.schema().create_db("after").unwrap();
        wait_until("the database on the proxy", || proxy.node.catalog().database("after").is_some());
        assert!(lost.iter().all(|server| a.node.catalog().is_removed(*server)));
        let catalog = a.node.catalog();
        let votes = |running: &Running| catalog.server(running.server()).unwrap().catalog.voting;
        assert_eq!((catalog.servers().len(), votes(&a), votes(&proxy)), (2, true, false));
    }
}

#[test]
fn an_erased_shard_does_not_begin_again_on_a_proxy() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let proxy = Machine::new("proxy").start(&hub, Some(&a));
    create(&a, on(&[&[&c]]));
    a.wait_ready("t");
    wait_for_table(&proxy);
    let id = table(&a).config.id;
    c.kill();
    let planned =
        proxy.node.repair().plan_repair(id, RepairMode::RollbackOrErase, RepairScope::Cluster).unwrap();
    let repaired =
        proxy.node.repair().emergency_repair(id, RepairMode::RollbackOrErase, RepairScope::Cluster).unwrap();
    for config in [&planned.table, &repaired.table] {
        assert!([a.server(), b.server()].contains(&config.shards[0].primary), "{:?}", config.shards);
    }
    (0..10).for_each(|n| write_until_done(&[&a, &b], n));
}

#[test]
fn a_proxy_gets_no_replica_and_no_vote_by_force() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c, proxy]) = three_and_a_proxy(&hub);
    let (id, before) = (table(&a).config.id, table(&a).config.clone());
    let refused = change(&a, id, on(&[&[&a, &proxy]])).unwrap_err();
    assert!(matches!(refused, AdminError::ServerMissing(_)), "{refused}");
    assert_eq!(table(&a).config, before);
    let peer = a.node.catalog().server(proxy.server()).unwrap().catalog.peer;
    let asks = a.server();
    [b, c].into_iter().for_each(Running::kill);
    let alone = Members::first(vec![peer]);
    let refused = reset(&proxy, asks, GroupId(0), &alone).unwrap_err();
    assert!(refused.contains("proxy"), "{refused}");
}

#[test]
fn a_proxy_whose_cluster_is_unreachable_leaves_at_once() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c, proxy]) = three_and_a_proxy(&hub);
    let goes = |proxy: &Running| {
        let begun = Instant::now();
        assert!(proxy.node.servers().leave().is_err());
        begun.elapsed()
    };
    a.kill();
    c.kill();
    let took = goes(&proxy);
    assert!(took < Duration::from_secs(1), "{took:?} with one of three");
    b.kill();
    let took = goes(&proxy);
    assert!(took < Duration::from_secs(1), "{took:?} with no server");
}

#[test]
fn a_proxy_whose_cluster_has_no_leader_leaves_within_seconds() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c, proxy]) = three_and_a_proxy(&hub);
    // They are connected, but receive no messages of the catalog's group.
    [&a, &b, &c].iter().for_each(|node| hub.drop_messages(node.server(), GroupId(0)));
    let leads = |node: &Running| {
        node.node
            .log()
            .group_status(GroupId(0))
            .is_ok_and(|status| matches!(status.role, log::Role::Leader { .. }))
    };
    wait_until("no leader", || ![&a, &b, &c].iter().any(|node| leads(node)));
    let begun = Instant::now();
    assert!(proxy.node.servers().leave().is_err());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}
