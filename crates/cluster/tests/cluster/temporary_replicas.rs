//! Temporary replicas, which a reshard adds to have all rows on one server, are removed after it, unless another change
//! wants them meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use log::GroupId;
use rekindle_cluster::{
    AdminError, RepairMode, RepairScope, ServerId, ShardConfig, ShardPlaces, TableChange, Temporary,
    places_of,
};

use crate::fixture::{SET_SEAL, create, on, reshard, table, three, wait_until_resharded};
use crate::hub::{Hub, Machine, Running, missing, row, wait_until, write_until_done};

/// The servers of each shard's replicas, including temporary ones, sorted.
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

/// Waits until the table has, and shows, replicas on exactly these servers.
#[track_caller]
fn wait_for(node: &Running, shards: &[&[&Running]]) {
    wait_until("exactly the wanted replicas", || {
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

/// Creates a table whose rows are all in the first shard, so that each of the rebalanced shards needs it. Returns their
/// number.
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

/// A callback that runs `work` once a temporary replica was added on `node`, and always returns true.
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
fn temporary_replicas_do_not_stay_when_another_change_moves_the_tables_own() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    lopsided(&[&a, &b, &c, &d], &[&[&a, &b], &[&c, &b, &d]]);
    let gone = d.server();
    let id = table(&a).config.id;
    // The temporary replica does not become ready while messages to its server are dropped.
    hub.drop_messages(c.server(), table(&a).shards()[0].group());
    let d = Mutex::new(Some(d));
    let done = a.node.resharder().rebalance(
        id,
        &once_added(&a, &c, || {
            d.lock().unwrap().take().unwrap().kill();
            a.node.removal().remove_server(gone).unwrap();
            hub.deliver_messages();
        }),
    );
    assert!(done.unwrap());
    wait_until_resharded(&[&a, &b, &c]);
    wait_for(&a, &[&[&a, &b], &[&c, &b]]);
}

#[test]
fn concurrent_reshards_do_not_keep_each_others_temporary_replicas() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    lopsided(&[&a, &b, &c], &[&[&a, &b], &[&c, &b]]);
    let id = table(&a).config.id;
    hub.drop_messages(c.server(), table(&a).shards()[0].group());
    let done = a.node.resharder().rebalance(
        id,
        &once_added(&a, &c, || {
            hub.deliver_messages();
            wait_until("a reshard", || matches!(b.node.resharder().rebalance(id, &|| true), Ok(true)));
        }),
    );
    assert!(matches!(done, Ok(true) | Err(AdminError::ReplicasNotReady)), "{done:?}");
    wait_until_resharded(&[&a, &b, &c]);
    wait_for(&a, &[&[&a, &b], &[&c, &b]]);
}

#[test]
fn temporary_replicas_are_removed_when_the_deadline_passes() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let nodes = [&a, &b, &c];
    lopsided(&nodes, &[&[&a, &b], &[&c, &b]]);
    let id = table(&a).config.id;
    hub.drop_messages(c.server(), table(&a).shards()[0].group());
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
    hub.deliver_messages();
    // The same if the caller cancels.
    let done = a.node.resharder().rebalance(id, &|| !is_added(&a, &c));
    assert!(matches!(done, Err(AdminError::ReplicasNotReady) | Ok(true)), "{done:?}");
    wait_until_resharded(&nodes);
    wait_for(&a, &[&[&a, &b], &[&c, &b]]);
}

#[test]
fn temporary_replicas_are_removed_when_the_seals_fail() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    let nodes = [&a, &b, &c, &d];
    lopsided(&nodes, &[&[&a, &b], &[&c, &b]]);
    let groups: Vec<_> = table(&a).shards().iter().map(|shard| shard.group()).collect();
    let asked = d.server();
    hub.intercept(move |response| {
        let is_mark = response.sent_by == asked && response.kind == Some(SET_SEAL);
        (!is_mark).then_some(response.bytes)
    });
    let done = d.node.resharder().rebalance(table(&a).config.id, &|| true);
    assert!(matches!(done, Err(AdminError::ReplicasNotReady)), "{done:?}");
    assert_eq!(table(&d).shards().iter().map(|shard| shard.group()).collect::<Vec<_>>(), groups);
    assert!(table(&d).config.history.epoch > 0, "seals were set");
    wait_for(&a, &[&[&a, &b], &[&c, &b]]);
    write_until_done(&nodes, 0);
}

#[test]
fn temporary_replicas_stay_if_another_change_wants_them_meanwhile() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let nodes = [&a, &b, &c];
    lopsided(&nodes, &[&[&a, &b], &[&c, &b]]);
    let id = table(&a).config.id;
    let first = table(&a).shards()[0].group();
    hub.drop_messages(c.server(), first);
    let change = TableChange { shards: Some(on(&[&[&a, &b, &c], &[&c, &b]])), ..TableChange::default() };
    let is_wanted = AtomicBool::new(false);
    let want = once_added(&a, &c, || {
        b.node.resharder().change_table(id, &change).unwrap();
        is_wanted.store(true, Ordering::Release);
    });
    let done = a.node.resharder().rebalance(id, &|| want() && !is_wanted.load(Ordering::Acquire));
    assert!(matches!(done, Err(AdminError::ReplicasNotReady)), "{done:?}");
    assert_eq!(table(&a).shards()[0].group(), first);
    hub.deliver_messages();
    wait_for(&a, &[&[&a, &b, &c], &[&c, &b]]);
    a.wait_ready("t");
    write_until_done(&nodes, 0);
    assert_eq!(missing(&c, 1), []);
}

#[test]
fn temporary_replicas_do_not_become_replicas_of_other_shards() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let nodes = [&a, &b, &c];
    lopsided(&nodes, &[&[&a, &b], &[&c, &b]]);
    reshard(&a, on(&[&[&c, &a]]));
    wait_until_resharded(&nodes);
    wait_for(&a, &[&[&c, &a]]);
}

#[test]
fn temporary_replicas_stay_while_the_server_of_one_of_the_tables_own_is_away() {
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
    assert!(matches!(done, Err(AdminError::NoQuorum { .. })), "{done:?}");
    let shard = table(&a).config.shards[0].clone();
    assert_eq!((&shard.temporary[..], &shard.leaving[..]), (&[Temporary::Replica(c.server())][..], &[][..]));
    // The temporary replica can replace the one on the disconnected server.
    a.node.resharder().change_table(id, &instead).unwrap();
    // The other shard has no quorum without that server, and continues after a repair without it.
    let refused = a.node.removal().remove_server(gone).unwrap_err();
    assert!(matches!(refused, AdminError::NeededForQuorum { .. }), "{refused}");
    wait_until("the repair", || {
        a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).is_ok()
    });
    wait_until("the removal", || a.node.removal().remove_server(gone).is_ok());
    wait_for(&a, &[&[&a, &c], &[&c]]);
    write_until_done(&[&a, &c], 0);
    assert_eq!(missing(&c, 1), []);
}

#[test]
fn a_temporary_replica_without_rows_does_not_replace_the_only_one() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    lopsided(&[&a, &b, &c], &[&[&b], &[&c]]);
    let (id, gone) = (table(&a).config.id, b.server());
    hub.drop_messages(c.server(), table(&a).shards()[0].group());
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
    assert!(matches!(done, Err(AdminError::NoQuorum { .. })), "{done:?}");
    let shard = table(&a).config.shards[0].clone();
    assert_eq!((shard.primary, &shard.leaving[..]), (gone, &[][..]));
}

#[test]
fn a_temporary_replica_that_votes_stays_when_a_repair_removes_the_only_other_one() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    lopsided(&[&a, &b, &c], &[&[&b], &[&c]]);
    let (id, first, gone) = (table(&a).config.id, table(&a).shards()[0].group(), b.server());
    let b = Mutex::new(Some(b));
    let add = once_added(&a, &c, || {
        wait_for_vote(&c, first);
        b.lock().unwrap().take().unwrap().kill();
        let refused = a.node.removal().remove_server(gone).unwrap_err();
        assert!(matches!(refused, AdminError::NeededForQuorum { .. }), "{refused}");
    });
    let done = a.node.resharder().rebalance(id, &|| add() && b.lock().unwrap().is_some());
    assert!(matches!(done, Err(AdminError::NoQuorum { .. })), "{done:?}");
    wait_until("the repair", || {
        a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).is_ok()
    });
    a.node.removal().remove_server(gone).unwrap();
    wait_for(&a, &[&[&c], &[&c]]);
    assert_eq!(table(&a).config.shards[0].temporary, []);
    write_until_done(&[&a, &c], 0);
    assert_eq!(missing(&c, 1), []);
}
