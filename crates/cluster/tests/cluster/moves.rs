//! Shards that are being moved while servers are lost permanently.

use std::sync::Arc;

use log::Members;
use rekindle_cluster::{DesiredShards, RepairMode, RepairScope, ServerId, ShardConfig, ShardPlaces};

use crate::fixture::{RESET_MEMBERS, create, on, table, three_and};
use crate::hub::{Hub, Running, change, missing, wait_until, write_until_done};

/// The servers of a shard's wanted replicas, and of its leaving replicas.
fn places(shard: &ShardConfig) -> [Vec<ServerId>; 2] {
    [&shard.replicas, &shard.leaving].map(|those| those.iter().map(|replica| replica.server).collect())
}

#[test]
fn a_shard_that_moves_to_a_server_that_a_repair_removes_stays_on_its_old_servers() {
    for stays in [true, false] {
        let hub = Arc::new(Hub::default());
        let ([a, b, c], [d]) = three_and(&hub, ["d"]);
        create(&a, on(&[&[&a, &b]]));
        a.wait_ready("t");
        (0..20).for_each(|n| write_until_done(&[&a, &b], n));
        let (id, group) = (table(&a).config.id, table(&a).shards()[0].group());
        // The new replica receives nothing.
        hub.drop_messages(c.server(), group);
        change(&a, id, if stays { on(&[&[&a, &c]]) } else { on(&[&[&c]]) }).unwrap();
        wait_until("the change on b", || !table(&b).config.shards[0].leaving.is_empty());
        let gone = [c.server(), d.server()];
        [c, d].into_iter().for_each(Running::kill);
        assert_eq!(b.node.repair().repair_catalog().unwrap(), gone);
        wait_until("the end of the move", || {
            places(&table(&a).config.shards[0]) == [vec![a.server()], vec![]]
        });
        (20..30).for_each(|n| write_until_done(&[&a, &b], n));
        assert_eq!(missing(&a, 30), []);
    }
}

#[test]
fn a_move_that_is_cancelled_because_its_server_is_lost_does_not_end_the_repair_of_another_shard() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], [d]) = three_and(&hub, ["d"]);
    create(&a, on(&[&[&a, &b], &[&a, &c, &d]]));
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&a, &b], n));
    let (id, groups) = (table(&a).config.id, [0, 1].map(|nth| table(&a).shards()[nth].group()));
    hub.drop_messages(c.server(), groups[0]);
    change(&a, id, on(&[&[&a, &c], &[&a, &c, &d]])).unwrap();
    wait_until("the change on b", || !table(&b).config.shards[0].leaving.is_empty());
    [c, d].into_iter().for_each(Running::kill);
    let node = Arc::clone(&a.node);
    hub.intercept(move |response| {
        if response.kind == Some(RESET_MEMBERS) && response.group == Some(groups[1]) {
            let first = || node.catalog().table("test", "t").unwrap().config.shards[0].replicas.len();
            wait_until("the end of the move", || first() == 1);
        }
        Some(response.bytes)
    });
    let repaired = b.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).unwrap();
    hub.intercept(|response| Some(response.bytes));
    for shard in &repaired.table.shards {
        assert_eq!(places(shard)[0], [a.server()]);
    }
    (20..30).for_each(|n| write_until_done(&[&a, &b], n));
    assert_eq!(missing(&a, 30), []);
}

#[test]
fn a_repair_that_is_finished_removes_the_lost_replicas_and_moves_no_others() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], [d, _e]) = three_and(&hub, ["d", "e"]);
    create(&a, on(&[&[&a, &b, &c]]));
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    assert_eq!(missing(&a, 20), []);
    let (id, shard) = (table(&a).config.id, table(&a).config.shards[0].clone());
    let peers: Vec<_> = shard.replicas.iter().map(|replica| replica.peer).collect();
    let lost = [b.server(), c.server()];
    [b, c].into_iter().for_each(Running::kill);
    // The first step of a repair.
    let alone = Members { voters: vec![peers[0]], removed: peers[1..].to_vec(), ..Members::default() };
    a.node.log().reset_members(shard.group, alone).unwrap();
    hub.drop_messages(d.server(), shard.group);
    let replicas = [d.server()].into_iter().chain(lost).map(|server| (server, true)).collect();
    let wanted = DesiredShards::Named(vec![ShardPlaces { primary: d.server(), replicas }]);
    wait_until("the change", || change(&d, id, wanted.clone()).is_ok());
    assert_eq!(places(&table(&d).config.shards[0])[1], [a.server()]);
    let planned = d.node.repair().plan_repair(id, RepairMode::Rollback, RepairScope::Table).unwrap();
    let repaired = d.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Table).unwrap();
    assert_eq!(planned, repaired);
    assert_eq!(places(&repaired.table.shards[0]), [vec![d.server()], vec![a.server()]]);
    hub.deliver_messages();
    wait_until("the end of the move", || table(&d).config.shards[0].leaving.is_empty());
    (20..30).for_each(|n| write_until_done(&[&d], n));
    assert_eq!(missing(&d, 30), []);
}
