//! Emergency repairs of tables, and the changes of members by force that they make or refuse.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use io::Files;
use io::sim::{Fault, SimFiles};
use log::{GroupId, Members};
use rekindle_cluster::{
    AdminError, DesiredShards, RepairMode, RepairScope, RpcHandler, ServerId, ShardConfig, ShardPlaces,
    TableChange, TableOptions,
};

use crate::fixture::{
    LOG_POSITION, RESET_MEMBERS, create, five, on, reshard, table, three, wait_for_voters,
    wait_until_resharded,
};
use crate::hub::{Hub, Machine, Running, missing, replicated, stored, wait_until, write, write_until_done};

/// Sends `node` a request of `from` to set the members of a group by force (docs/formats/cluster-request.md).
pub fn reset(node: &Running, from: ServerId, group: GroupId, members: &Members) -> Result<Bytes, String> {
    let (mut request, members) = (BytesMut::new(), members.encode());
    request.put_slice(&[0, 4, RESET_MEMBERS]);
    request.put_u64_le(group.0);
    request.put_u32_le(members.len() as u32);
    request.put_slice(&members);
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let respond = Box::new(move |response| drop(sender.send(response)));
    node.node.rpc_server().handle(from, request.freeze(), respond);
    receiver.recv().unwrap()
}

#[test]
fn members_are_not_set_by_force_while_a_quorum_is_alive() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(1, 3), ..TableOptions::default() };
    a.node.schema().create_table("test", "t", options).unwrap();
    a.wait_ready("t");
    let group = a.node.catalog().table("test", "t").unwrap().shards()[0].group();
    let members = || a.node.log().group_status(group).unwrap().members;
    let (before, own) = (members(), a.node.log().group_status(group).unwrap().own);
    let alone = Members::first(vec![own]);
    let refused = reset(&a, b.server(), group, &alone).unwrap_err();
    assert!(refused.contains("is connected to most voters"), "{refused}");
    let stranger = ServerId(uuid::Uuid::from_u128(77));
    let refused = reset(&a, stranger, group, &alone).unwrap_err();
    assert!(refused.contains("does not belong to this cluster"), "{refused}");
    assert_eq!(members(), before);
    // With two of three down, the request is accepted.
    let server = b.server();
    b.kill();
    c.kill();
    reset(&a, server, group, &alone).unwrap();
    assert_eq!(members().voters, [own]);
    reset(&a, server, group, &alone).expect("the request can be repeated");
}

/// Five voters of the catalog, and a table of twenty rows with replicas on the first three of them.
fn five_and_a_table_on_three(hub: &Arc<Hub>) -> ([Machine; 3], [Running; 5]) {
    let (machines, [a, b, c]) = three(hub);
    let (d, e) = (Machine::new("d").start(hub, Some(&a)), Machine::new("e").start(hub, Some(&a)));
    wait_for_voters(&a, 5);
    create(&a, on(&[&[&b, &a, &c]]));
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    (machines, [a, b, c, d, e])
}

#[test]
fn a_repair_does_not_continue_from_an_older_position_while_a_founder_may_come_back() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c, d, e]) = five_and_a_table_on_three(&hub);
    let (id, old) = (table(&a).config.id, table(&a).shards()[0].group());
    assert_eq!(missing(&a, 20), []);
    hub.drop_messages(a.server(), old);
    let config = reshard(&d, on(&[&[&b, &a, &c], &[&c, &b, &a]]));
    assert!(config.shards.iter().all(|shard| shard.founders.len() == 3), "{config:?}");
    wait_until("the new shards on a", || table(&a).shards().len() == 2);
    let gone = [b.server(), c.server()];
    [b, c].into_iter().for_each(Running::kill);
    wait_until("the new shards on e", || table(&e).shards().len() == 2);
    for refused in [
        d.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster),
        e.node.repair().plan_repair(id, RepairMode::Rollback, RepairScope::Cluster),
    ] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, AdminError::RowsUnreachable { .. }), "{refused}");
        assert!(refused.to_string().contains("server_config"), "{refused}");
    }
    assert_eq!(a.node.log().group_status(old).unwrap().members.voters.len(), 3);
    for server in gone {
        wait_until("the removal", || d.node.removal().remove_server(server).is_ok());
    }
    wait_until("the repair", || {
        drop(d.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster));
        (20..30).all(|n| write(&[&a], n))
    });
    wait_until_resharded(&[&a, &d, &e]);
    assert_eq!(missing(&a, 30), []);
}

#[test]
fn a_replica_with_the_last_position_continues_while_founders_are_down() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c, d, e]) = five_and_a_table_on_three(&hub);
    let (id, old) = (table(&a).config.id, table(&a).shards()[0].group());
    // It never receives the seal, so the sealed group is not deleted.
    hub.drop_messages(c.server(), old);
    let config = reshard(&d, on(&[&[&b, &a, &c], &[&c, &b, &a]]));
    let is_open = |shard: &ShardConfig| a.node.log().group_status(shard.group).is_ok();
    wait_until("the new shards on a", || config.shards.iter().all(is_open));
    [b, c].into_iter().for_each(Running::kill);
    for node in [&d, &e] {
        let sealed = || table(node).config.history.sealed.iter().any(|sealed| sealed.group == old);
        wait_until("the sealed group in the catalog", sealed);
    }
    wait_until("the repair", || {
        match d.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster) {
            Err(error @ AdminError::RowsUnreachable { .. }) => panic!("{error}"),
            _ => (20..30).all(|n| write(&[&a], n)),
        }
    });
    assert_eq!(missing(&a, 30), []);
}

#[test]
fn a_shard_with_live_wanted_replicas_but_without_a_quorum_of_members_is_repaired() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let on = |servers: [&Running; 2]| {
        let replicas = servers.iter().map(|node| (node.server(), true)).collect();
        DesiredShards::Named(vec![ShardPlaces { primary: servers[0].server(), replicas }])
    };
    let options = TableOptions { shards: on([&a, &b]), ..TableOptions::default() };
    let table = a.node.schema().create_table("test", "t", options).unwrap().id;
    a.wait_ready("t");
    for n in 0..20 {
        write_until_done(&[&a, &b], n);
    }
    wait_until("the rows on b", || stored(&b).len() == 20);
    assert!(matches!(
        b.node.repair().plan_repair(table, RepairMode::Rollback, RepairScope::Cluster),
        Err(AdminError::NothingToRepair)
    ));
    // It has no rows and no vote while its messages are dropped.
    hub.drop_messages(c.server(), b.node.catalog().table("test", "t").unwrap().shards()[0].group());
    let change = TableChange { shards: Some(on([&b, &c])), ..TableChange::default() };
    wait_until("the change", || b.node.resharder().change_table(table, &change).is_ok());
    a.kill();
    hub.deliver_messages();
    let leads = || {
        b.node.catalog().table("test", "t").unwrap().shards()[0].local().is_some_and(|local| local.leads())
    };
    wait_until("the end of its leadership", || !leads());
    // Both wanted replicas are up, but one of the two voters is not.
    wait_until("the repair", || {
        match b.node.repair().emergency_repair(table, RepairMode::Rollback, RepairScope::Cluster) {
            Ok(_) => true,
            Err(AdminError::NothingToRepair) => panic!("it has no leader, and nothing to repair"),
            Err(_) => false,
        }
    });
    for n in 20..30 {
        write_until_done(&[&b, &c], n);
    }
    b.wait_ready("t");
    assert_eq!(missing(&c, 30), []);
}

#[test]
fn a_failure_after_members_were_set_by_force_is_indeterminate() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    wait_for_voters(&a, 4);
    create(&a, on(&[&[&a, &b, &c]]));
    a.wait_ready("t");
    (0..10).for_each(|n| write_until_done(&[&a, &b, &c], n));
    let id = table(&d).config.id;
    [b, c].into_iter().for_each(Running::kill);
    // The repair continues with a, the first replica that has all rows; the response that reaches d says that nothing was
    // changed.
    hub.intercept(|response| match response.kind {
        Some(1) => Some(Bytes::from_static(b"\x03no")),
        _ => Some(response.bytes),
    });
    let error = d.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).unwrap_err();
    assert!(error.is_indeterminate(), "{error}");
    assert!(!error.to_string().contains("nothing was changed"), "{error}");
    hub.intercept(|response| Some(response.bytes));
    wait_until("the rest of the repair", || {
        match d.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster) {
            Ok(_) | Err(AdminError::NothingToRepair) => true,
            Err(error) => {
                assert!(error.is_indeterminate(), "{error}");
                false
            }
        }
    });
    (10..20).for_each(|n| write_until_done(&[&a, &d], n));
    let names: Vec<datum::Text> =
        d.node.catalog().servers().iter().map(|server| server.name.clone()).collect();
    assert_eq!(names, ["a", "d"]);
}

/// Five voters of the catalog, and a table of two shards with replicas on the first three of them.
fn five_and_two_shards(hub: &Arc<Hub>) -> [Running; 5] {
    let [a, b, c, d, e] = five(hub);
    create(&a, on(&[&[&a, &b, &c], &[&a, &b, &c]]));
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    assert_eq!(missing(&a, 20), []);
    wait_until("the table on d", || d.node.catalog().table("test", "t").is_some());
    [a, b, c, d, e]
}

#[test]
fn a_repair_that_was_interrupted_is_finished_when_it_is_repeated() {
    for forced in [1, 2] {
        let hub = Arc::new(Hub::default());
        let [a, b, c, d, e] = five_and_two_shards(&hub);
        let (id, before) = (table(&d).config.id, table(&d).config.clone());
        [b, c].into_iter().for_each(Running::kill);
        let set = AtomicU32::new(0);
        hub.intercept(move |response| match response.kind {
            Some(RESET_MEMBERS) if set.fetch_add(1, Ordering::AcqRel) + 1 == forced => {
                Some(Bytes::from_static(b"?"))
            }
            _ => Some(response.bytes),
        });
        let error =
            d.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).unwrap_err();
        assert!(matches!(error, AdminError::RepairBegun(_)), "{error}");
        hub.intercept(|response| Some(response.bytes));
        wait_until("leaders of the repaired shards", || {
            let table = table(&a);
            let led = table.shards().iter().filter(|shard| shard.local().unwrap().is_leader());
            led.count() as u32 >= forced
        });
        assert_eq!(table(&d).config, before);
        let planned = d.node.repair().plan_repair(id, RepairMode::Rollback, RepairScope::Table).unwrap();
        let repaired =
            d.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Table).unwrap();
        assert_eq!(planned, repaired);
        for shard in &repaired.table.shards {
            assert_eq!(shard.replicas.iter().map(|r| r.server).collect::<Vec<_>>(), [a.server()]);
        }
        let again = d.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Table);
        assert!(matches!(again, Err(AdminError::NothingToRepair)), "{again:?}");
        (20..30).for_each(|n| write_until_done(&[&a, &d, &e], n));
        assert_eq!(missing(&a, 30), []);
    }
}

#[test]
fn links_to_servers_without_a_part_in_a_repair_may_break_during_it() {
    let hub = Arc::new(Hub::default());
    let [a, b, c, d, e] = five_and_two_shards(&hub);
    let proxy = Machine::new("proxy").start(&hub, Some(&a));
    wait_until("the proxy", || d.node.catalog().servers().len() == 6);
    let id = table(&d).config.id;
    [b, c].into_iter().for_each(Running::kill);
    let (weak, pair) = (Arc::downgrade(&hub), [d.server(), proxy.server()]);
    hub.intercept(move |response| {
        if response.kind == Some(RESET_MEMBERS) {
            weak.upgrade().unwrap().cut(pair[0], pair[1]);
        }
        Some(response.bytes)
    });
    let repaired = d.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Table).unwrap();
    assert!(repaired.table.shards.iter().all(|shard| shard.replicas.len() == 1), "{repaired:?}");
    assert!(!d.node.is_connected(proxy.server()));
    (20..30).for_each(|n| write_until_done(&[&a, &d, &e], n));
}

#[test]
fn a_proxy_that_comes_and_goes_does_not_end_the_repair_of_the_catalog() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    wait_for_voters(&a, 4);
    let proxy = Machine::new("proxy").start(&hub, Some(&a));
    wait_until("the proxy", || d.node.catalog().servers().len() == 5);
    let gone = [b.server(), c.server()];
    [b, c].into_iter().for_each(Running::kill);
    // The request is sent when the repair determines the lost servers, after it has waited for them, and before it sets
    // members.
    let (asked, weak, pair) = (AtomicU32::new(0), Arc::downgrade(&hub), [d.server(), proxy.server()]);
    hub.intercept(move |response| {
        let is_about_it = response.kind == Some(LOG_POSITION) && response.group == Some(GroupId(0));
        if is_about_it && asked.fetch_add(1, Ordering::AcqRel) == 2 {
            weak.upgrade().unwrap().cut(pair[0], pair[1]);
        }
        Some(response.bytes)
    });
    let removed = d.node.repair().repair_catalog().unwrap();
    assert_eq!(removed, gone);
    assert!(!d.node.is_connected(proxy.server()));
    hub.heal();
    d.node.schema().create_db("after").unwrap();
    wait_until("the new database", || proxy.node.catalog().database("after").is_some());
}

#[test]
fn a_disk_failure_while_members_are_set_on_another_server_is_indeterminate() {
    let hub = Arc::new(Hub::default());
    let files = SimFiles::new(7);
    files.create_dir_all(Path::new("data")).unwrap();
    let machine = Machine { files: Arc::new(files.clone()), ..Machine::new("b") };
    let a = Machine::new("a").start(&hub, None);
    let (b, c) = (machine.start(&hub, Some(&a)), Machine::new("c").start(&hub, Some(&a)));
    wait_for_voters(&a, 3);
    create(&a, on(&[&[&b, &c]]));
    a.wait_ready("t");
    (0..10).for_each(|n| write_until_done(&[&b, &c], n));
    let (id, group) = (table(&a).config.id, table(&a).shards()[0].group());
    c.kill();
    // The request is sent when the repair determines the lost servers, after it has waited for them, and before it sets
    // members.
    let asked = AtomicU32::new(0);
    hub.intercept(move |response| {
        let is_about_it = response.kind == Some(LOG_POSITION) && response.group == Some(group);
        if is_about_it && asked.fetch_add(1, Ordering::AcqRel) == 2 {
            files.inject(Fault::Sync);
        }
        Some(response.bytes)
    });
    let error = a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).unwrap_err();
    assert!(matches!(error, AdminError::RepairBegun(_)) && error.is_indeterminate(), "{error}");
}

#[test]
fn a_repair_does_not_wait_for_silent_followers_of_a_shard_that_has_a_leader() {
    let hub = Arc::new(Hub::default());
    let [a, b, c, d, _e] = five_and_two_shards(&hub);
    let (id, follower) = (table(&d).config.id, b.server());
    c.kill();
    hub.intercept(move |response| {
        (response.kind != Some(LOG_POSITION) || response.responder != follower).then_some(response.bytes)
    });
    let begin = Instant::now();
    let refused = d.node.repair().plan_repair(id, RepairMode::Rollback, RepairScope::Table);
    assert!(matches!(refused, Err(AdminError::NothingToRepair)), "{refused:?}");
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    (20..30).for_each(|n| write_until_done(&[&a, &b], n));
}

#[test]
fn a_nonvoting_replica_that_does_not_respond_does_not_end_a_repair() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let (d, e) = (Machine::new("d").start(&hub, Some(&a)), Machine::new("e").start(&hub, Some(&a)));
    wait_for_voters(&a, 5);
    let votes = [(&a, true), (&b, true), (&c, true), (&d, false)];
    let replicas = votes.iter().map(|(node, votes)| (node.server(), *votes)).collect();
    create(&a, DesiredShards::Named(vec![ShardPlaces { primary: a.server(), replicas }]));
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    let (id, silent, asker) = (table(&e).config.id, d.server(), e.server());
    [b, c].into_iter().for_each(Running::kill);
    let (lost, weak) = (Arc::new(AtomicU32::new(0)), Arc::downgrade(&hub));
    let counted = Arc::clone(&lost);
    hub.intercept(move |response| {
        // Its response is lost, and the next one is not.
        let is_lost = response.kind == Some(RESET_MEMBERS) && response.responder == silent;
        counted.fetch_add(u32::from(is_lost), Ordering::AcqRel);
        weak.upgrade().unwrap().limit_responses(asker, if is_lost { 0 } else { u64::MAX });
        Some(response.bytes)
    });
    let repaired = e.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Table).unwrap();
    assert_eq!(lost.load(Ordering::Acquire), 1, "it is asked once");
    assert_eq!(repaired.table.shards[0].replicas.len(), 2, "{repaired:?}");
    (20..30).for_each(|n| write_until_done(&[&a], n));
    assert_eq!(missing(&d, 30), []);
}
