//! Tables get other shards: nobody copies what they have, nobody loses what was acknowledged, whoever stops
//! and whenever.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use engine::memory::MemoryEngine;
use log::GroupId;
use parking_lot::Mutex;
use rekindle_cluster::{
    AdminError, RepairMode, RepairScope, ReplicaState, Route, ServerId, ShardPlaces, ShardsWanted,
    TableChange, TableConfig, TableOptions, WriteAcks,
};
use shard::SealState;

use crate::fixture::{STATES, create, divide, on, settled, table, three, wait_for_voters};
use crate::hub::{Hub, Machine, PATIENCE, Running, missing, replicated, wait_until, write, write_until_done};

/// When all is done, each of `nodes` has the first `written` rows and no others.
#[track_caller]
pub fn everybody_has(nodes: &[&Running], written: u32) {
    settled(nodes);
    for node in nodes {
        assert_eq!(missing(node, written), []);
        assert_eq!(rows(node), u64::from(written));
    }
}

pub fn rows(node: &Running) -> u64 {
    table(node).shards().iter().map(|shard| shard.local().map_or(0, |near| near.count())).sum()
}

/// Writes rows one after another while `work` is done; how many there are then.
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
fn shards_come_and_go_and_no_replica_is_copied_or_taken_away() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let all: Vec<&Running> = nodes.iter().collect();
    create(all[0], replicated(1, 3));
    (0..200).for_each(|n| write_until_done(&all, n));
    let written = while_writing(&all, 200, || {
        for (turn, shards) in [4, 2, 5, 1, 3].into_iter().enumerate() {
            let by = all[turn % 3];
            let config = divide(by, replicated(shards, 3));
            assert_eq!(config.shards.len(), shards);
            for shard in &config.shards {
                assert_eq!(shard.founders.len(), 3, "everybody begins it: {shard:?}");
                assert!(shard.leaving.is_empty());
            }
            all.iter().for_each(|node| assert_eq!(node.node.copies().under_way(), [], "nothing is copied"));
        }
        assert!(all[1].node.resharder().rebalance(table(all[1]).config.id, &|| true).unwrap());
    });
    everybody_has(&all, written);
}

#[test]
fn a_shard_keeps_its_replicas_when_nowhere_is_named_for_it() {
    let (_machines, nodes) = three(&Arc::new(Hub::default()));
    create(&nodes[0], on(&[&[&nodes[0]]]));
    let nowhere = ShardPlaces { primary: nodes[0].server(), replicas: Vec::new() };
    let change = TableChange { shards: Some(ShardsWanted::Named(vec![nowhere])), ..TableChange::default() };
    let refused =
        nodes[0].node.resharder().change_table(table(&nodes[0]).config.id, &change).unwrap_err().to_string();
    assert!(refused.contains("nowhere to put the data"), "{refused}");
}

#[test]
fn shards_that_lie_on_different_servers_are_put_together() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let [a, b, c] = &nodes;
    let all = [a, b, c];
    create(a, on(&[&[a, b], &[b, c]]));
    (0..200).for_each(|n| write_until_done(&all, n));
    let written = while_writing(&all, 200, || drop(divide(b, on(&[&[c, a]]))));
    settled(&all);
    assert_eq!((missing(a, written), missing(c, written)), (vec![], vec![]));
    assert!(table(b).shards()[0].local().is_none());
    // And taken apart to where nobody has them.
    let written = while_writing(&all, written, || drop(divide(a, on(&[&[b], &[a], &[c, b]]))));
    settled(&all);
    assert_eq!(rows(a) + rows(c), u64::from(written) - table(b).shards()[0].local().unwrap().count());
    for n in 0..written {
        let (key, _) = crate::hub::row(n);
        let holders = all.iter().filter(|node| {
            let table = table(node);
            table.shard(&key).local().is_some_and(|near| near.get(&key).unwrap().is_some())
        });
        assert!(holders.count() >= 1, "row {n}");
    }
}

#[test]
fn a_seal_of_somebody_who_stopped_is_given_up() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let all: Vec<&Running> = nodes.iter().collect();
    create(all[0], replicated(1, 3));
    (0..20).for_each(|n| write_until_done(&all, n));
    let led = || {
        all.iter().find_map(|node| match table(node).shards()[0].leader() {
            Some(Route::Local(near)) => Some(Arc::clone(near)),
            _ => None,
        })
    };
    let leader = led().unwrap();
    leader.set_seal_state(SealState::sealed(0)).wait().unwrap();
    assert!(!write(&all, 20), "it is sealed");
    write_until_done(&all, 20);
    assert_eq!(leader.seal_state(), SealState::open(1));
    assert_eq!(table(all[0]).config.lineage.epoch, 1);
    // A seal of before that arrives now means nothing.
    leader.set_seal_state(SealState::sealed(0)).wait().unwrap();
    assert!(write(&all, 21));
    divide(all[2], replicated(2, 3));
    settled(&all);
    assert_eq!(missing(all[1], 22), []);
}

#[test]
fn who_was_away_during_a_division_comes_back_to_the_new_shards() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = three(&hub);
    create(&a, replicated(2, 3));
    (0..100).for_each(|n| write_until_done(&[&a, &b, &c], n));
    c.kill();
    divide(&a, replicated(3, 2));
    (100..150).for_each(|n| write_until_done(&[&a, &b], n));
    settled(&[&a, &b]);
    let c = machines[2].start(&hub, None);
    divide(&b, replicated(3, 3));
    settled(&[&a, &b, &c]);
    assert_eq!(missing(&c, 150), []);
    assert_eq!(rows(&c), 150);
    // It counts: another may go.
    wait_until("three who vote in each shard", || {
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

/// Machines whose engines lose what was not flushed when they stop.
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
        // What still runs of it could write into the log that rows are there for good which the engine is to lose.
        wait_until("the end of the process", || Arc::strong_count(&self.machine.engine) == 1);
        let engine = self.engine.after_crash();
        Weak { machine: Machine { engine: Arc::new(engine.clone()), ..self.machine }, engine }
    }
}

#[test]
fn whoever_stops_in_the_middle_of_a_division_and_forgets_what_was_not_flushed_has_it_again() {
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
            // Some have opened the new shards by now, and some have not.
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
            nodes.push(machine.machine.start_unheard(&hub, None));
            machines.push(machine);
        }
        let all: Vec<&Running> = nodes.iter().collect();
        all.iter().for_each(|node| assert!(node.node.await_catalog(PATIENCE)));
        settled(&all);
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
    divide(all[1], replicated(3, 3));
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
fn a_seal_that_comes_too_late_does_not_keep_members_from_changing() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let all: Vec<&Running> = nodes.iter().collect();
    let [a, b, c] = &nodes;
    create(a, on(&[&[a, b]]));
    (0..20).for_each(|n| write_until_done(&all, n));
    let leader = || {
        all.iter().find_map(|node| match table(node).shards()[0].leader() {
            Some(Route::Local(near)) => Some(Arc::clone(near)),
            _ => None,
        })
    };
    leader().unwrap().set_seal_state(SealState::sealed(0)).wait().unwrap();
    write_until_done(&all, 20);
    // It was on its way while the division that wanted it was given up.
    leader().unwrap().set_seal_state(SealState::sealed(0)).wait().unwrap();
    assert_eq!(leader().unwrap().seal_state(), SealState::open(1));
    divide(a, on(&[&[a, b, c]]));
    settled(&all);
    assert_eq!(missing(c, 21), []);
}

#[test]
fn a_division_that_nobody_could_begin_is_given_up() {
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
    // The others seal that shard without it.
    hub.deafen(b.server(), first);
    let refused = e.node.resharder().change_table(table(&e).config.id, &one).unwrap_err();
    assert!(matches!(refused, AdminError::ReplicasNotReady), "{refused}");
    assert_eq!(table(&e).shards().len(), 2);
    (20..40).for_each(|n| write_until_done(&[&a, &b, &c, &d], n));
    hub.let_all_hear();
    wait_until("the division", || e.node.resharder().change_table(table(&e).config.id, &one).is_ok());
    everybody_has(&[&b], 40);
}

#[test]
fn a_replica_that_lags_for_a_moment_begins_the_new_shards_with_the_others() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    create(&a, on(&[&[&a, &b, &c]]));
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    wait_until("the table", || d.node.catalog().table("test", "t").is_some());
    a.wait_ready("t");
    fall_behind(&hub, &c, &[&a, &b, &c], 20);
    // It hears again once the division has been put off.
    let (asked, looks, its_hub) = (d.server(), AtomicU32::new(0), Arc::downgrade(&hub));
    hub.meddle(move |answer| {
        if answer.kind == Some(STATES)
            && answer.asked_by == asked
            && looks.fetch_add(1, Ordering::AcqRel) == 2
        {
            its_hub.upgrade().unwrap().let_all_hear();
        }
        Some(answer.bytes)
    });
    let config = divide(&d, on(&[&[&a, &b, &c], &[&b, &c, &a]]));
    assert!(config.shards.iter().all(|shard| shard.founders.len() == 3), "{config:?}");
    everybody_has(&[&a, &b, &c], 21);
}

#[test]
fn a_replica_that_lags_for_long_holds_no_division_up() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b, &c], &[&b, &c, &a]]));
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    a.wait_ready("t");
    let founders = |config: &TableConfig| config.shards.iter().map(|s| s.founders.len()).collect::<Vec<_>>();
    // Less time than it would be waited for: the rows are to lie evenly before it is over.
    fall_behind(&hub, &c, &[&a, &b, &c], 20);
    let id = table(&a).config.id;
    let deadline = std::time::Instant::now() + Duration::from_secs(3);
    assert!(a.node.resharder().rebalance_until(id, deadline, &|| true).unwrap());
    assert_eq!(founders(&table(&a).config).iter().min(), Some(&2));
    hub.let_all_hear();
    everybody_has(&[&a, &b, &c], 21);
    // It has all that one of the shards has that are put together.
    fall_behind(&hub, &c, &[&a, &b, &c], 21);
    assert_eq!(founders(&divide(&a, on(&[&[&a, &b, &c]]))), [2]);
    hub.let_all_hear();
    everybody_has(&[&a, &b, &c], 22);
}

/// The first shard's log does not reach `node` any more, and its leader has noticed. Writes row number `n`.
fn fall_behind(hub: &Hub, node: &Running, all: &[&Running], n: u32) {
    hub.deafen(node.server(), table(all[0]).shards()[0].group());
    // A group at rest notices nothing.
    write_until_done(all, n);
    wait_until("the replica that lags", || {
        let states = all[0].node.states().table_state(&table(all[0]));
        states[0].replicas.contains(&(node.server(), ReplicaState::Backfilling))
    });
}

#[test]
fn a_table_whose_writes_wait_for_one_replica_is_divided_under_them() {
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
            divide(all[turn % 3], replicated(shards, 3));
        }
    });
    everybody_has(&all, written);
}

#[test]
fn a_table_that_lost_its_majority_in_a_division_is_repaired() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&b, &c]]));
    (0..60).for_each(|n| write_until_done(&[&b, &c], n));
    divide(&a, on(&[&[&b, &c], &[&c, &b]]));
    // It may have opened the new shards, and said so, or not.
    c.kill();
    let id = table(&a).config.id;
    wait_until("the repair", || {
        // Before the new shards can be repaired the old ones may have to be.
        drop(a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster));
        (60..70).all(|n| write(&[&b], n))
    });
    settled(&[&a, &b]);
    assert_eq!(missing(&b, 70), []);
}

#[test]
fn who_begins_a_shard_without_its_rows_gets_them_although_the_power_goes_everywhere() {
    // Its leader may hear too early that its rows are void.
    assert!((0..20).any(|_| found_without_rows()), "the leader heard of it each time");
}

/// One of three loses its rows just before a division, founds the new shards, and gets half of a copy when the power goes
/// everywhere. Whether it was taken for a founder.
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
    // Its rows are void now, and gone; it gets no copy before the shard is sealed, nor after it.
    hub.count_answers(c.server(), 0);
    c.node.log().begin_restore(old).unwrap();
    c.node.replicas().mark_recovering(old);
    shard::clear_rows(table(&c).shards()[0].local().unwrap(), &datum::KeyRange::all()).unwrap();
    let config = divide(&a, on(&[&[&a, &b, &c], &[&b, &a, &c]]));
    if config.shards.iter().any(|shard| shard.founders.len() < 3) {
        return false;
    }
    // Then it gets about half.
    hub.count_answers(c.server(), 2_000_000);
    wait_until("a copy that is interrupted", || hub.answered(c.server()).1);
    let news: Vec<GroupId> = config.shards.iter().map(|shard| shard.group).collect();
    let waits = |group: &&GroupId| c.node.log().group_status(**group).is_ok_and(|status| status.needs_rows);
    assert!(news.iter().any(|group| waits(&group)), "it has begun without rows");
    hub.count_answers(c.server(), u64::MAX);
    let mut nodes = Vec::new();
    machines = {
        let [first, second, third] = machines;
        [first.stop(a), second.stop(b), third.stop(c)]
    };
    machines.iter().for_each(|machine| nodes.push(machine.machine.start_unheard(&hub, None)));
    nodes.iter().for_each(|node| assert!(node.node.await_catalog(PATIENCE)));
    let all: Vec<&Running> = nodes.iter().collect();
    settled(&all);
    for node in &all {
        assert_eq!(missing(node, 40), []);
        assert_eq!(crate::hub::stored(node), crate::hub::stored(all[0]));
        assert_eq!(rows(node), 40);
    }
    true
}
