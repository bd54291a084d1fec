//! Replicas that a table is given so that it can be divided are there for that and no longer, unless somebody
//! wants them meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use log::GroupId;
use rekindle_cluster::{
    AdminError, RepairMode, RepairScope, ServerId, ShardConfig, ShardPlaces, TableChange, Temporary,
    places_of,
};

use crate::fixture::{SET_MARK, create, divide, on, settled, table, three};
use crate::hub::{Hub, Machine, Running, missing, row, wait_until, write_until_done};

/// Where the replicas of the shards are, those that were added too, each shard's in order.
fn everywhere(shards: &[ShardConfig]) -> Vec<Vec<ServerId>> {
    let servers = |shard: &ShardConfig| {
        let mut servers: Vec<ServerId> = shard.replicas.iter().map(|replica| replica.server).collect();
        servers.sort();
        servers
    };
    shards.iter().map(servers).collect()
}

fn servers(shards: &[&[&Running]]) -> Vec<Vec<ServerId>> {
    let servers = |nodes: &&[&Running]| {
        let mut servers: Vec<ServerId> = nodes.iter().map(|node| node.server()).collect();
        servers.sort();
        servers
    };
    shards.iter().map(servers).collect()
}

/// Waits until the table has replicas there and nowhere else, and shows no others.
#[track_caller]
fn wait_for(node: &Running, shards: &[&[&Running]]) {
    wait_until("the replicas that are wanted, and no others", || {
        let config = &table(node).config;
        let shown: Vec<Vec<ServerId>> = places_of(&config.shards).iter().map(shown).collect();
        everywhere(&config.shards) == servers(shards)
            && shown == servers(shards)
            && config.shards.iter().all(|shard| shard.leaving.is_empty())
    });
}

fn shown(place: &ShardPlaces) -> Vec<ServerId> {
    let mut servers: Vec<ServerId> = place.replicas.iter().map(|(server, _)| *server).collect();
    servers.sort();
    servers
}

/// A table whose rows all lie in the first shard, so that each of the even shards needs it: how many rows.
fn lopsided(nodes: &[&Running], shards: &[&[&Running]]) -> u32 {
    create(nodes[0], on(shards));
    for node in nodes {
        wait_until("the table", || node.node.catalog().table("test", "t").is_some());
    }
    nodes[0].wait_ready("t");
    let first = table(nodes[0]).shards()[0].group();
    let lies_there = |n: &u32| table(nodes[0]).shard(&row(*n).0).group() == first;
    let rows: Vec<u32> = (0..60).filter(lies_there).collect();
    rows.iter().for_each(|n| write_until_done(nodes, *n));
    rows.len().try_into().unwrap()
}

/// Whether a replica of the first shard was added on `node`.
fn is_added(to: &Running, node: &Running) -> bool {
    let config = &table(to).config;
    config.shards[0].replicas.iter().any(|replica| replica.server == node.server())
}

/// What `work` does once a replica was added on `node`.
fn once_added<'a>(to: &'a Running, node: &'a Running, work: impl Fn() + 'a) -> impl Fn() -> bool + 'a {
    let is_done = AtomicBool::new(false);
    move || {
        if is_added(to, node) && !is_done.swap(true, Ordering::AcqRel) {
            work();
        }
        true
    }
}

/// Waits until a node's replica of a group has its rows and votes.
#[track_caller]
fn wait_for_vote(node: &Running, group: GroupId) {
    wait_until("its vote", || {
        let status = node.node.log().group_status(group);
        status.is_ok_and(|status| !status.needs_rows && status.members.voters.contains(&status.own))
    });
}

#[test]
fn replicas_that_were_added_are_none_of_the_table_when_somebody_else_moves_its_own() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    lopsided(&[&a, &b, &c, &d], &[&[&a, &b], &[&c, &b, &d]]);
    let gone = d.server();
    let id = table(&a).config.id;
    // It does not get ready before its server hears.
    hub.deafen(c.server(), table(&a).shards()[0].group());
    let d = Mutex::new(Some(d));
    let done = a.node.resharder().rebalance(
        id,
        &once_added(&a, &c, || {
            d.lock().unwrap().take().unwrap().kill();
            a.node.removal().remove_server(gone).unwrap();
            hub.let_all_hear();
        }),
    );
    assert!(done.unwrap());
    settled(&[&a, &b, &c]);
    wait_for(&a, &[&[&a, &b], &[&c, &b]]);
}

#[test]
fn two_who_divide_a_table_do_not_take_what_the_other_added_for_its_own() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    lopsided(&[&a, &b, &c], &[&[&a, &b], &[&c, &b]]);
    let id = table(&a).config.id;
    hub.deafen(c.server(), table(&a).shards()[0].group());
    let done = a.node.resharder().rebalance(
        id,
        &once_added(&a, &c, || {
            hub.let_all_hear();
            wait_until("a division", || matches!(b.node.resharder().rebalance(id, &|| true), Ok(true)));
        }),
    );
    assert!(matches!(done, Ok(true) | Err(AdminError::ReplicasNotReady)), "{done:?}");
    settled(&[&a, &b, &c]);
    wait_for(&a, &[&[&a, &b], &[&c, &b]]);
}

#[test]
fn replicas_that_were_added_go_when_there_was_no_time_for_them() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let nodes = [&a, &b, &c];
    lopsided(&nodes, &[&[&a, &b], &[&c, &b]]);
    let id = table(&a).config.id;
    hub.deafen(c.server(), table(&a).shards()[0].group());
    let was_there = AtomicBool::new(false);
    let deadline = Instant::now() + Duration::from_secs(3);
    let done = a.node.resharder().rebalance_until(
        id,
        deadline,
        &once_added(&a, &c, || was_there.store(true, Ordering::Release)),
    );
    assert!(matches!(done, Err(AdminError::ReplicasNotReady)), "{done:?}");
    assert!(was_there.load(Ordering::Acquire));
    wait_for(&a, &[&[&a, &b], &[&c, &b]]);
    hub.let_all_hear();
    // Whoever asks for it does without, too.
    let done = a.node.resharder().rebalance(id, &|| !is_added(&a, &c));
    assert!(matches!(done, Err(AdminError::ReplicasNotReady) | Ok(true)), "{done:?}");
    settled(&nodes);
    wait_for(&a, &[&[&a, &b], &[&c, &b]]);
}

#[test]
fn replicas_that_were_added_go_when_nothing_comes_of_the_seals() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    let nodes = [&a, &b, &c, &d];
    lopsided(&nodes, &[&[&a, &b], &[&c, &b]]);
    let groups: Vec<_> = table(&a).shards().iter().map(|shard| shard.group()).collect();
    let asked = d.server();
    hub.meddle(move |answer| {
        let is_mark = answer.asked_by == asked && answer.kind == Some(SET_MARK);
        (!is_mark).then_some(answer.bytes)
    });
    let done = d.node.resharder().rebalance(table(&a).config.id, &|| true);
    assert!(matches!(done, Err(AdminError::ReplicasNotReady)), "{done:?}");
    assert_eq!(table(&d).shards().iter().map(|shard| shard.group()).collect::<Vec<_>>(), groups);
    assert!(table(&d).config.lineage.epoch > 0, "it came to the seals");
    wait_for(&a, &[&[&a, &b], &[&c, &b]]);
    write_until_done(&nodes, 0);
}

#[test]
fn replicas_that_were_added_stay_if_somebody_wants_them_meanwhile() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let nodes = [&a, &b, &c];
    lopsided(&nodes, &[&[&a, &b], &[&c, &b]]);
    let id = table(&a).config.id;
    let first = table(&a).shards()[0].group();
    hub.deafen(c.server(), first);
    let change = TableChange { shards: Some(on(&[&[&a, &b, &c], &[&c, &b]])), ..TableChange::default() };
    let is_wanted = AtomicBool::new(false);
    let want = once_added(&a, &c, || {
        b.node.resharder().change_table(id, &change).unwrap();
        is_wanted.store(true, Ordering::Release);
    });
    let done = a.node.resharder().rebalance(id, &|| want() && !is_wanted.load(Ordering::Acquire));
    assert!(matches!(done, Err(AdminError::ReplicasNotReady)), "{done:?}");
    assert_eq!(table(&a).shards()[0].group(), first);
    hub.let_all_hear();
    wait_for(&a, &[&[&a, &b, &c], &[&c, &b]]);
    a.wait_ready("t");
    write_until_done(&nodes, 0);
    assert_eq!(missing(&c, 1), []);
}

#[test]
fn replicas_that_were_added_do_not_come_to_other_shards() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let nodes = [&a, &b, &c];
    lopsided(&nodes, &[&[&a, &b], &[&c, &b]]);
    divide(&a, on(&[&[&c, &a]]));
    settled(&nodes);
    wait_for(&a, &[&[&c, &a]]);
}

#[test]
fn replicas_that_were_added_stay_while_one_of_the_tables_own_is_away() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    lopsided(&[&a, &b, &c], &[&[&a, &b], &[&c, &b]]);
    let (id, first, gone) = (table(&a).config.id, table(&a).shards()[0].group(), b.server());
    let instead = TableChange { shards: Some(on(&[&[&a, &c], &[&c, &b]])), ..TableChange::default() };
    let b = Mutex::new(Some(b));
    let add = once_added(&a, &c, || {
        wait_for_vote(&c, first);
        b.lock().unwrap().take().unwrap().kill();
    });
    let done = a.node.resharder().rebalance(id, &|| add() && b.lock().unwrap().is_some());
    assert!(matches!(done, Err(AdminError::NoMajority { .. })), "{done:?}");
    let shard = table(&a).config.shards[0].clone();
    assert_eq!((&shard.added[..], &shard.leaving[..]), (&[Temporary::Replica(c.server())][..], &[][..]));
    // It can take the place of the one that is away.
    a.node.resharder().change_table(id, &instead).unwrap();
    // The other shard has no majority without that one, and goes on when it is given up.
    let refused = a.node.removal().remove_server(gone).unwrap_err();
    assert!(matches!(refused, AdminError::NeededForMajority { .. }), "{refused}");
    wait_until("the repair", || {
        a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).is_ok()
    });
    wait_until("the removal", || a.node.removal().remove_server(gone).is_ok());
    wait_for(&a, &[&[&a, &c], &[&c]]);
    write_until_done(&[&a, &c], 0);
    assert_eq!(missing(&c, 1), []);
}

#[test]
fn a_replica_that_was_added_and_has_no_rows_does_not_take_the_place_of_the_only_one() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    lopsided(&[&a, &b, &c], &[&[&b], &[&c]]);
    let (id, gone) = (table(&a).config.id, b.server());
    hub.deafen(c.server(), table(&a).shards()[0].group());
    let b = Mutex::new(Some(b));
    let add = once_added(&a, &c, || {
        b.lock().unwrap().take().unwrap().kill();
        let removed = a.node.removal().remove_server(gone);
        assert!(
            matches!(&removed, Err(AdminError::OnlyReplica { server, .. }) if *server == "b"),
            "{removed:?}"
        );
    });
    let done = a.node.resharder().rebalance(id, &|| add() && b.lock().unwrap().is_some());
    assert!(matches!(done, Err(AdminError::NoMajority { .. })), "{done:?}");
    let shard = table(&a).config.shards[0].clone();
    assert_eq!((shard.primary, &shard.leaving[..]), (gone, &[][..]));
}

#[test]
fn a_replica_that_was_added_and_votes_is_the_tables_when_the_only_other_one_is_given_up() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    lopsided(&[&a, &b, &c], &[&[&b], &[&c]]);
    let (id, first, gone) = (table(&a).config.id, table(&a).shards()[0].group(), b.server());
    let b = Mutex::new(Some(b));
    let add = once_added(&a, &c, || {
        wait_for_vote(&c, first);
        b.lock().unwrap().take().unwrap().kill();
        let refused = a.node.removal().remove_server(gone).unwrap_err();
        assert!(matches!(refused, AdminError::NeededForMajority { .. }), "{refused}");
    });
    let done = a.node.resharder().rebalance(id, &|| add() && b.lock().unwrap().is_some());
    assert!(matches!(done, Err(AdminError::NoMajority { .. })), "{done:?}");
    wait_until("the repair", || {
        a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).is_ok()
    });
    a.node.removal().remove_server(gone).unwrap();
    wait_for(&a, &[&[&c], &[&c]]);
    assert_eq!(table(&a).config.shards[0].added, []);
    write_until_done(&[&a, &c], 0);
    assert_eq!(missing(&c, 1), []);
}
