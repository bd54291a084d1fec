//! Reshards of tables: no rows are copied where they are present already, and no acknowledged row is lost, whichever
//! server stops at whatever time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use engine::memory::MemoryEngine;
use log::GroupId;
use parking_lot::Mutex;
use rekindle_cluster::{
    AdminError, DesiredShards, RepairMode, RepairScope, ReplicaState, Route, ServerId, ShardPlaces,
    TableChange, TableConfig, TableOptions, WriteAcks,
};
use shard::SealState;

use crate::fixture::{STATES, create, on, reshard, table, three, wait_for_voters, wait_until_resharded};
use crate::hub::{
    Hub, Machine, Running, TEST_TIMEOUT, missing, replicated, wait_until, write, write_until_done,
};

/// Waits for the end of the reshard. Each of `nodes` then has exactly the first `written` rows.
#[track_caller]
pub fn all_have_rows(nodes: &[&Running], written: u32) {
    wait_until_resharded(nodes);
    for node in nodes {
        assert_eq!(missing(node, written), []);
        assert_eq!(rows(node), u64::from(written));
    }
}

pub fn rows(node: &Running) -> u64 {
    table(node).shards().iter().map(|shard| shard.local().map_or(0, |local| local.count())).sum()
}

/// Writes rows one after another, from `first` on, while `work` runs. Returns the number of the next row.
pub fn while_writing(nodes: &[&Running], first: u32, work: impl FnOnce() + Send) -> u32 {
    let (next, done) = (AtomicU32::new(first), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Acquire) {
                write_until_done(nodes, next.load(Ordering::Acquire));
                next.fetch_add(1, Ordering::AcqRel);
            }
        });
        let worked = threads.spawn(work).join();
        done.store(true, Ordering::Release);
        worked.unwrap();
    });
    next.into_inner()
}

#[test]
fn reshards_on_the_same_servers_neither_copy_nor_remove_replicas() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let all: Vec<&Running> = nodes.iter().collect();
    create(all[0], replicated(1, 3));
    (0..200).for_each(|n| write_until_done(&all, n));
    let written = while_writing(&all, 200, || {
        for (turn, shards) in [4, 2, 5, 1, 3].into_iter().enumerate() {
            let by = all[turn % 3];
            let config = reshard(by, replicated(shards, 3));
            assert_eq!(config.shards.len(), shards);
            for shard in &config.shards {
                assert_eq!(shard.founders.len(), 3, "all are founders: {shard:?}");
                assert!(shard.leaving.is_empty());
            }
            all.iter().for_each(|node| assert_eq!(node.node.copies().under_way(), [], "nothing is copied"));
        }
        assert!(all[1].node.resharder().rebalance(table(all[1]).config.id, &|| true).unwrap());
    });
    all_have_rows(&all, written);
}

#[test]
fn a_shard_without_named_servers_is_refused() {
    let (_machines, nodes) = three(&Arc::new(Hub::default()));
    create(&nodes[0], on(&[&[&nodes[0]]]));
    let nowhere = ShardPlaces { primary: nodes[0].server(), replicas: Vec::new() };
    let change = TableChange { shards: Some(DesiredShards::Named(vec![nowhere])), ..TableChange::default() };
    let refused =
        nodes[0].node.resharder().change_table(table(&nodes[0]).config.id, &change).unwrap_err().to_string();
    assert!(refused.contains("nowhere to put the data"), "{refused}");
}

#[test]
fn shards_on_different_servers_are_merged() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let [a, b, c] = &nodes;
    let all = [a, b, c];
    create(a, on(&[&[a, b], &[b, c]]));
    (0..200).for_each(|n| write_until_done(&all, n));
    let written = while_writing(&all, 200, || drop(reshard(b, on(&[&[c, a]]))));
    wait_until_resharded(&all);
    assert_eq!((missing(a, written), missing(c, written)), (vec![], vec![]));
    assert!(table(b).shards()[0].local().is_none());
    // And split onto servers that do not have the rows.
    let written = while_writing(&all, written, || drop(reshard(a, on(&[&[b], &[a], &[c, b]]))));
    wait_until_resharded(&all);
    assert_eq!(rows(a) + rows(c), u64::from(written) - table(b).shards()[0].local().unwrap().count());
    for n in 0..written {
        let (key, _) = crate::hub::row(n);
        let holders = all.iter().filter(|node| {
            let table = table(node);
            table.shard(&key).local().is_some_and(|local| local.get(&key).unwrap().is_some())
        });
        assert!(holders.count() >= 1, "row {n}");
    }
}

#[test]
fn a_seal_of_a_reshard_that_stopped_is_abandoned() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let all: Vec<&Running> = nodes.iter().collect();
    create(all[0], replicated(1, 3));
    (0..20).for_each(|n| write_until_done(&all, n));
    let led = || {
        all.iter().find_map(|node| match table(node).shards()[0].leader() {
            Some(Route::Local(local)) => Some(Arc::clone(local)),
            _ => None,
        })
    };
    let leader = led().unwrap();
    leader.set_seal_state(SealState::sealed(0)).wait().unwrap();
    assert!(!write(&all, 20), "it is sealed");
    write_until_done(&all, 20);
    assert_eq!(leader.seal_state(), SealState::open(1));
    assert_eq!(table(all[0]).config.history.epoch, 1);
    // An earlier seal that arrives now has no effect.
    leader.set_seal_state(SealState::sealed(0)).wait().unwrap();
    assert!(write(&all, 21));
    reshard(all[2], replicated(2, 3));
    wait_until_resharded(&all);
    assert_eq!(missing(all[1], 22), []);
}

#[test]
fn a_server_that_was_down_during_a_reshard_gets_the_new_shards() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = three(&hub);
    create(&a, replicated(2, 3));
    (0..100).for_each(|n| write_until_done(&[&a, &b, &c], n));
    c.kill();
    reshard(&a, replicated(3, 2));
    (100..150).for_each(|n| write_until_done(&[&a, &b], n));
    wait_until_resharded(&[&a, &b]);
    let c = machines[2].start(&hub, None);
    reshard(&b, replicated(3, 3));
    wait_until_resharded(&[&a, &b, &c]);
    assert_eq!(missing(&c, 150), []);
    assert_eq!(rows(&c), 150);
    // It counts for the quorum: another server may stop.
    wait_until("three voters in each shard", || {
        let led = |shard: &rekindle_cluster::ShardHandle| {
            [&a, &b, &c].iter().any(|node| {
                let status = node.node.log().group_status(shard.group());
                status.is_ok_and(|status| status.members.voters.len() == 3)
            })
        };
        table(&a).shards().iter().all(led)
    });
    a.kill();
    (150..170).for_each(|n| write_until_done(&[&b, &c], n));
}

/// A machine whose engine loses unflushed writes when it stops.
struct Weak {
    engine: MemoryEngine,
    machine: Machine,
}

impl Weak {
    fn new(name: &'static str) -> Weak {
        let engine = MemoryEngine::new();
        Weak { machine: Machine { engine: Arc::new(engine.clone()), ..Machine::new(name) }, engine }
    }

    fn stop(self, running: Running) -> Weak {
        running.kill();
        // A thread of the node that still runs could record in the log that rows are durable which the engine then loses.
        wait_until("the end of the process", || Arc::strong_count(&self.machine.engine) == 1);
        let engine = self.engine.after_crash();
        Weak { machine: Machine { engine: Arc::new(engine.clone()), ..self.machine }, engine }
    }
}

#[test]
fn servers_that_crash_during_a_reshard_recover_unflushed_rows() {
    let hub = Arc::new(Hub::default());
    let mut machines: Vec<Weak> = ["a", "b", "c"].map(Weak::new).into_iter().collect();
    let a = machines[0].machine.start(&hub, None);
    let b = machines[1].machine.start(&hub, Some(&a));
    let c = machines[2].machine.start(&hub, Some(&a));
    let mut nodes = vec![a, b, c];
    wait_for_voters(&nodes[0], 3);
    create(&nodes[0], replicated(1, 3));
    machines.iter().for_each(|machine| engine::Engine::flush(&machine.engine).unwrap());
    let mut written = 0;
    for turn in 0..8_u64 {
        let all: Vec<&Running> = nodes.iter().collect();
        let acknowledged = Mutex::new(written);
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut n = written;
                while !done.load(Ordering::Acquire) {
                    if write(&all, n) {
                        n += 1;
                        *acknowledged.lock() = n;
                    }
                }
            });
            let by = all[turn as usize % 3];
            let shards = if turn % 2 == 0 { 3 } else { 2 };
            let change = TableChange { shards: Some(replicated(shards, 3)), ..TableChange::default() };
            let divided = by.node.resharder().change_table(table(by).config.id, &change);
            assert!(divided.is_ok(), "turn {turn}: {divided:?}");
            // By now some servers have opened the new shards, and some have not.
            std::thread::sleep(Duration::from_millis(7 * turn));
            done.store(true, Ordering::Release);
        });
        written = acknowledged.into_inner();
        // One, two, or all of them stop.
        let stop = 1 + turn as usize % 3;
        let mut stopped = Vec::new();
        for nth in (0..stop).rev() {
            stopped.push((nth, machines.remove(nth).stop(nodes.remove(nth))));
        }
        for (_, machine) in stopped {
            nodes.push(machine.machine.start_without_catalog(&hub, None));
            machines.push(machine);
        }
        let all: Vec<&Running> = nodes.iter().collect();
        all.iter().for_each(|node| assert!(node.node.await_catalog(TEST_TIMEOUT)));
        wait_until_resharded(&all);
        for node in &all {
            assert_eq!(missing(node, written), [], "turn {turn}");
        }
    }
    let ids: BTreeSet<ServerId> = nodes.iter().map(Running::server).collect();
    assert_eq!(ids.len(), 3);
}

#[test]
fn a_table_is_dropped_while_its_shards_are_sealed() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let all: Vec<&Running> = nodes.iter().collect();
    create(all[0], replicated(1, 3));
    (0..20).for_each(|n| write_until_done(&all, n));
    reshard(all[1], replicated(3, 3));
    let groups: Vec<GroupId> = table(all[1]).shards().iter().map(|shard| shard.group()).collect();
    all[2].node.schema().drop_table("test", "t").unwrap();
    for node in &all {
        wait_until("nothing is left", || {
            node.node.catalog().table("test", "t").is_none()
                && groups
                    .iter()
                    .chain(&[GroupId(1)])
                    .all(|group| node.node.log().group_status(*group).is_err())
        });
    }
}

#[test]
fn a_late_seal_does_not_block_membership_changes() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let all: Vec<&Running> = nodes.iter().collect();
    let [a, b, c] = &nodes;
    create(a, on(&[&[a, b]]));
    (0..20).for_each(|n| write_until_done(&all, n));
    let leader = || {
        all.iter().find_map(|node| match table(node).shards()[0].leader() {
            Some(Route::Local(local)) => Some(Arc::clone(local)),
            _ => None,
        })
    };
    leader().unwrap().set_seal_state(SealState::sealed(0)).wait().unwrap();
    write_until_done(&all, 20);
    // This seal was on its way while its reshard was abandoned.
    leader().unwrap().set_seal_state(SealState::sealed(0)).wait().unwrap();
    assert_eq!(leader().unwrap().seal_state(), SealState::open(1));
    reshard(a, on(&[&[a, b, c]]));
    wait_until_resharded(&all);
    assert_eq!(missing(c, 21), []);
}

#[test]
fn a_reshard_that_no_server_could_found_is_abandoned() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let (d, e) = (Machine::new("d").start(&hub, Some(&a)), Machine::new("e").start(&hub, Some(&a)));
    // Only b has all rows.
    create(&a, on(&[&[&a, &b, &d], &[&c, &b]]));
    for node in [&a, &b, &c, &d, &e] {
        wait_until("the table", || node.node.catalog().table("test", "t").is_some());
        node.wait_ready("t");
    }
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c, &d], n));
    let first = table(&e).shards()[0].group();
    let one = TableChange { shards: Some(on(&[&[&b]])), ..TableChange::default() };
    // The other replicas seal the first shard without b.
    hub.drop_messages(b.server(), first);
    let refused = e.node.resharder().change_table(table(&e).config.id, &one).unwrap_err();
    assert!(matches!(refused, AdminError::ReplicasNotReady), "{refused}");
    assert_eq!(table(&e).shards().len(), 2);
    (20..40).for_each(|n| write_until_done(&[&a, &b, &c, &d], n));
    hub.deliver_messages();
    wait_until("the reshard", || e.node.resharder().change_table(table(&e).config.id, &one).is_ok());
    all_have_rows(&[&b], 40);
}

#[test]
fn a_replica_that_lags_briefly_is_a_founder_of_the_new_shards() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    create(&a, on(&[&[&a, &b, &c]]));
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    wait_until("the table", || d.node.catalog().table("test", "t").is_some());
    a.wait_ready("t");
    fall_behind(&hub, &c, &[&a, &b, &c], 20);
    // The messages to c are delivered again when the planner looks for the third time; it has deferred the reshard by then.
    let (asked, looks, weak_hub) = (d.server(), AtomicU32::new(0), Arc::downgrade(&hub));
    hub.intercept(move |response| {
        if response.kind == Some(STATES)
            && response.sent_by == asked
            && looks.fetch_add(1, Ordering::AcqRel) == 2
        {
            weak_hub.upgrade().unwrap().deliver_messages();
        }
        Some(response.bytes)
    });
    let config = reshard(&d, on(&[&[&a, &b, &c], &[&b, &c, &a]]));
    assert!(config.shards.iter().all(|shard| shard.founders.len() == 3), "{config:?}");
    all_have_rows(&[&a, &b, &c], 21);
}

#[test]
fn a_replica_that_lags_for_long_does_not_delay_a_reshard() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b, &c], &[&b, &c, &a]]));
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    a.wait_ready("t");
    let founders = |config: &TableConfig| config.shards.iter().map(|s| s.founders.len()).collect::<Vec<_>>();
    // The deadline is shorter than the wait for a lagging replica: the rebalance must end before it.
    fall_behind(&hub, &c, &[&a, &b, &c], 20);
    let id = table(&a).config.id;
    let deadline = std::time::Instant::now() + Duration::from_secs(3);
    assert!(a.node.resharder().rebalance_until(id, deadline, &|| true).unwrap());
    assert_eq!(founders(&table(&a).config).iter().min(), Some(&2));
    hub.deliver_messages();
    all_have_rows(&[&a, &b, &c], 21);
    // It has all rows of one of the two merged shards.
    fall_behind(&hub, &c, &[&a, &b, &c], 21);
    assert_eq!(founders(&reshard(&a, on(&[&[&a, &b, &c]]))), [2]);
    hub.deliver_messages();
    all_have_rows(&[&a, &b, &c], 22);
}

/// Drops the messages of the first shard to `node`, writes row `n`, and waits until the leader has noticed the lag.
fn fall_behind(hub: &Hub, node: &Running, all: &[&Running], n: u32) {
    hub.drop_messages(node.server(), table(all[0]).shards()[0].group());
    // A quiesced group would not notice.
    write_until_done(all, n);
    wait_until("the replica that lags", || {
        let states = all[0].node.states().table_state(&table(all[0]));
        states[0].replicas.contains(&(node.server(), ReplicaState::Backfilling))
    });
}

#[test]
fn a_table_with_single_write_acks_is_resharded_during_writes() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let all: Vec<&Running> = nodes.iter().collect();
    let options =
        TableOptions { shards: replicated(1, 3), write_acks: WriteAcks::Single, ..TableOptions::default() };
    all[0].node.schema().create_table("test", "t", options).unwrap();
    for node in &all {
        wait_until("the table", || node.node.catalog().table("test", "t").is_some());
    }
    (0..50).for_each(|n| write_until_done(&all, n));
    let written = while_writing(&all, 50, || {
        for (turn, shards) in [3, 2, 4, 1].into_iter().enumerate() {
            reshard(all[turn % 3], replicated(shards, 3));
        }
    });
    all_have_rows(&all, written);
}

#[test]
fn a_table_that_lost_its_quorum_in_a_reshard_is_repaired() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&b, &c]]));
    (0..60).for_each(|n| write_until_done(&[&b, &c], n));
    reshard(&a, on(&[&[&b, &c], &[&c, &b]]));
    // It may or may not have opened the new shards and reported that.
    c.kill();
    let id = table(&a).config.id;
    wait_until("the repair", || {
        // The old shards may have to be repaired before the new ones.
        drop(a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster));
        (60..70).all(|n| write(&[&b], n))
    });
    wait_until_resharded(&[&a, &b]);
    assert_eq!(missing(&b, 70), []);
}

#[test]
fn a_founder_without_rows_receives_them_despite_a_power_loss_of_all_servers() {
    // The leader may learn too early that the founder's rows are void.
    assert!((0..20).any(|_| found_without_rows()), "the leader learned of it each time");
}

/// One of three servers loses its rows just before a reshard, is a founder of the new shards, and has half of a copy when
/// all servers lose power. Returns whether it was chosen as a founder.
fn found_without_rows() -> bool {
    let hub = Arc::new(Hub::default());
    let mut machines = ["a", "b", "c"].map(Weak::new);
    let a = machines[0].machine.start(&hub, None);
    let b = machines[1].machine.start(&hub, Some(&a));
    let c = machines[2].machine.start(&hub, Some(&a));
    wait_for_voters(&a, 3);
    create(&a, on(&[&[&a, &b, &c]]));
    let old = table(&a).shards()[0].group();
    (0..40).for_each(|n| crate::hub::write_long_until_done(&[&a, &b, &c], n, 100_000));
    for node in [&a, &b, &c] {
        assert_eq!(missing(node, 40), []);
    }
    machines.iter().for_each(|machine| engine::Engine::flush(&machine.engine).unwrap());
    // Its rows are void now, and deleted. It receives no copy before the shard is sealed, nor after it.
    hub.limit_responses(c.server(), 0);
    c.node.log().begin_restore(old).unwrap();
    c.node.replicas().mark_recovering(old);
    shard::clear_rows(table(&c).shards()[0].local().unwrap(), &datum::KeyRange::all()).unwrap();
    let config = reshard(&a, on(&[&[&a, &b, &c], &[&b, &a, &c]]));
    if config.shards.iter().any(|shard| shard.founders.len() < 3) {
        return false;
    }
    // Then it receives about half of them.
    hub.limit_responses(c.server(), 2_000_000);
    wait_until("a copy that is interrupted", || hub.response_bytes(c.server()).1);
    let new_groups: Vec<GroupId> = config.shards.iter().map(|shard| shard.group).collect();
    let waits = |group: &&GroupId| c.node.log().group_status(**group).is_ok_and(|status| status.needs_rows);
    assert!(new_groups.iter().any(|group| waits(&group)), "it began without rows");
    hub.limit_responses(c.server(), u64::MAX);
    let mut nodes = Vec::new();
    machines = {
        let [first, second, third] = machines;
        [first.stop(a), second.stop(b), third.stop(c)]
    };
    machines.iter().for_each(|machine| nodes.push(machine.machine.start_without_catalog(&hub, None)));
    nodes.iter().for_each(|node| assert!(node.node.await_catalog(TEST_TIMEOUT)));
    let all: Vec<&Running> = nodes.iter().collect();
    wait_until_resharded(&all);
    for node in &all {
        assert_eq!(missing(node, 40), []);
        assert_eq!(crate::hub::stored(node), crate::hub::stored(all[0]));
        assert_eq!(rows(node), 40);
    }
    true
}
