//! The time between the first seal of a reshard and its new shards: leaders change, replicas are moved, and applied
//! entries may not be committed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use log::Role;
use rekindle_cluster::{AdminError, DesiredShards, TableChange, TableOptions, WriteAcks, places_of};
use shard::SealState;

use crate::fixture::{
    SET_SEAL, SPLIT_POINTS, create, on, table, three, wait_for_voters, wait_until_resharded,
};
use crate::hub::{
    Hub, Machine, Running, TEST_TIMEOUT, missing, replicated, row, wait_until, write_long_until_done,
    write_until_done,
};
use crate::reshard::{all_have_rows, while_writing};

/// A reshard abandons its seals if they take longer than this together.
const SEALING: Duration = Duration::from_secs(2);

/// The machine was too busy to complete the steps of a test within [`SEALING`].
#[derive(Debug)]
struct Disturbed;

/// Repeats `attempt` from the beginning until it was not disturbed.
#[track_caller]
fn retry_until_undisturbed(attempt: impl Fn() -> Result<(), Disturbed>) {
    let deadline = Instant::now() + 4 * TEST_TIMEOUT;
    while let Err(Disturbed) = attempt() {
        assert!(Instant::now() < deadline, "each attempt was disturbed");
    }
}

fn shards(wanted: DesiredShards) -> TableChange {
    TableChange { shards: Some(wanted), ..TableChange::default() }
}

/// Waits until every node has the table, and it is ready.
fn everywhere(nodes: &[&Running]) {
    for node in nodes {
        wait_until("the table", || node.node.catalog().table("test", "t").is_some());
        node.wait_ready("t");
    }
}

#[test]
fn a_change_of_leader_between_rounds_of_seals_does_not_delay_a_reshard() {
    retry_until_undisturbed(another_leads_between_the_rounds);
}

fn another_leads_between_the_rounds() -> Result<(), Disturbed> {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let (d, e) = (Machine::new("d").start(&hub, Some(&a)), Machine::new("e").start(&hub, Some(&a)));
    // Only b has all rows.
    create(&a, on(&[&[&a, &b, &d], &[&c, &b]]));
    everywhere(&[&a, &b, &c, &d, &e]);
    let writers = [&a, &b, &c, &d];
    (0..20).for_each(|n| write_until_done(&writers, n));
    let before = table(&e);
    let (first, successor) = (before.shards()[0].group(), before.config.shards[0].replicas[2].peer);
    let leads = |node: &Running| {
        let log = Arc::clone(node.node.log());
        move || log.group_status(first).is_ok_and(|status| matches!(status.role, Role::Leader { .. }))
    };
    wait_until("the leader", leads(&a));
    // The other replicas seal the shard without b, the only possible founder; so they are asked again.
    hub.drop_messages(b.server(), first);
    let (weak_hub, old, new) = (Arc::downgrade(&hub), a.server(), d.server());
    let (old_log, new_leads) = (Arc::clone(a.node.log()), leads(&d));
    let (is_sealed, responses) = (AtomicBool::new(false), Arc::new(AtomicU32::new(0)));
    let responses_of_new = Arc::clone(&responses);
    hub.intercept(move |response| {
        if response.kind == Some(SET_SEAL) && response.group == Some(first) {
            if response.responder == old && !is_sealed.swap(true, Ordering::AcqRel) {
                old_log.transfer(first, successor);
                wait_until("another leader", &new_leads);
                weak_hub.upgrade().unwrap().deliver_messages();
            }
            responses_of_new.fetch_add(u32::from(response.responder == new), Ordering::AcqRel);
        }
        Some(response.bytes)
    });
    let mut divided = Ok(());
    let written = while_writing(&writers, 20, || {
        divided = e.node.resharder().change_table(before.config.id, &shards(on(&[&[&b]]))).map(drop);
    });
    if matches!(divided, Err(AdminError::ReplicasNotReady)) {
        return Err(Disturbed);
    }
    divided.unwrap();
    assert!(responses.load(Ordering::Acquire) > 0, "the new leader was asked");
    assert_eq!(table(&e).config.history.epoch, 1, "no seal was abandoned");
    all_have_rows(&[&b], written);
    Ok(())
}

#[test]
fn a_seal_that_is_applied_but_not_committed_does_not_end_a_group() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let (d, e) = (Machine::new("d").start(&hub, Some(&a)), Machine::new("e").start(&hub, Some(&a)));
    let options = TableOptions {
        shards: on(&[&[&a, &b, &c, &d]]),
        write_acks: WriteAcks::Single,
        ..TableOptions::default()
    };
    a.node.schema().create_table("test", "t", options).unwrap();
    everywhere(&[&a, &b, &c, &d, &e]);
    let writers = [&a, &b, &c, &d];
    (0..20).for_each(|n| write_until_done(&writers, n));
    let before = table(&e);
    let first = before.shards()[0].group();
    wait_until("the leader", || table(&a).shards()[0].local().is_some_and(|local| local.is_leader()));
    let local = Arc::clone(table(&a).shards()[0].local().unwrap());
    let (log, weak_hub, dropping) =
        (Arc::clone(a.node.log()), Arc::downgrade(&hub), [c.server(), d.server()]);
    let (is_alone, was_alone) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let was_alone_flag = Arc::clone(&was_alone);
    hub.intercept(move |response| {
        // The reshard is planned by then.
        if response.kind == Some(SPLIT_POINTS) && !is_alone.swap(true, Ordering::AcqRel) {
            let hub = weak_hub.upgrade().unwrap();
            dropping.iter().for_each(|server| hub.drop_messages(*server, first));
            // A seal of another reshard, applied by a leader that does not wait for followers: as if it had just been
            // elected and did not know of the seal. One other replica has the entry, and could be a founder.
            drop(local.set_seal_state(SealState::sealed(0)));
            local.abandon_seal(SealState::sealed(0));
            wait_until("the seal", || local.seal_state().is_sealed());
            let status = log.group_status(first).unwrap();
            was_alone_flag.store(status.committed < status.applied, Ordering::Release);
        }
        Some(response.bytes)
    });
    let two = shards(on(&[&[&a, &b, &c, &d], &[&b, &c, &d, &a]]));
    let refused = e.node.resharder().change_table(before.config.id, &two).unwrap_err();
    assert!(was_alone.load(Ordering::Acquire), "the seal is not committed");
    assert!(matches!(refused, AdminError::ReplicasNotReady), "{refused}");
    assert_eq!(table(&e).shards()[0].group(), first);
    hub.deliver_messages();
    (20..40).for_each(|n| write_until_done(&writers, n));
    wait_until("the reshard", || e.node.resharder().change_table(before.config.id, &two).is_ok());
    all_have_rows(&writers, 40);
}

#[test]
fn a_replica_receives_a_copy_from_a_sealed_shard_that_needs_its_vote() {
    retry_until_undisturbed(a_sealed_shard_gives_a_copy);
}

fn a_sealed_shard_gives_a_copy() -> Result<(), Disturbed> {
    let hub = Arc::new(Hub::default());
    let machines = ["a", "b", "c"].map(|name| Machine { log_bytes_max: 32 << 10, ..Machine::new(name) });
    let a = machines[0].start(&hub, None);
    let b = machines[1].start(&hub, Some(&a));
    let c = machines[2].start(&hub, Some(&a));
    wait_for_voters(&a, 3);
    create(&a, replicated(2, 3));
    everywhere(&[&a, &b, &c]);
    (0..20).for_each(|n| write_until_done(&[&a, &b, &c], n));
    let group = table(&a).shards()[0].group();
    let status = |node: &Running| node.node.log().group_status(group).unwrap();
    c.kill();
    (20..40).for_each(|n| write_until_done(&[&a, &b], n));
    let leader = || {
        let local = [&a, &b].map(|node| table(node).shards()[0].local().cloned());
        local.into_iter().flatten().find(|local| local.is_leader())
    };
    let sealed = leader().ok_or(Disturbed)?.set_seal_state(SealState::sealed(0));
    sealed.wait().map_err(|_| Disturbed)?;
    // Writes rows to the other shard until the log keeps no entries of this group.
    let (mut written, since) = (40, Instant::now());
    while [&a, &b].iter().any(|node| status(node).start < status(node).last) {
        if table(&a).shard(&row(written).0).group() != group {
            write_long_until_done(&[&a, &b], written, 1000);
        }
        written += 1;
    }
    let is_sealed =
        |node: &Running| table(node).shards()[0].local().is_some_and(|local| local.seal_state().is_sealed());
    if since.elapsed() > SEALING || ![&a, &b].into_iter().all(is_sealed) {
        return Err(Disturbed);
    }
    // One of the two replicas with the rows stays down. The other is elected, and cannot commit without c.
    a.kill();
    b.kill();
    let a = machines[0].start_without_catalog(&hub, None);
    let c = machines[2].start_without_catalog(&hub, None);
    [&a, &c].iter().for_each(|node| assert!(node.node.await_catalog(TEST_TIMEOUT)));
    (0..40).for_each(|n| write_until_done(&[&a, &c], n));
    wait_until("the rows", || missing(&c, 40).is_empty());
    Ok(())
}

#[test]
fn replicas_that_are_moved_after_the_seals_stay_on_their_new_servers() {
    retry_until_undisturbed(replicas_are_moved_after_the_seals);
}

fn replicas_are_moved_after_the_seals() -> Result<(), Disturbed> {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&b, &c], &[&c, &b]]));
    everywhere(&[&a, &b, &c]);
    (0..60).for_each(|n| write_until_done(&[&b, &c], n));
    let id = table(&a).config.id;
    let (elsewhere, other, is_moved) =
        (shards(on(&[&[&c], &[&b]])), Arc::clone(&c.node), AtomicBool::new(false));
    // The seals begin later.
    let planned = Arc::new(Mutex::new(None));
    let planned_at = Arc::clone(&planned);
    hub.intercept(move |response| {
        if response.kind == Some(SPLIT_POINTS) {
            *planned_at.lock().unwrap() = Some(Instant::now());
        }
        if response.kind == Some(SET_SEAL) && !is_moved.swap(true, Ordering::AcqRel) {
            other.resharder().change_table(id, &elsewhere).unwrap();
        }
        Some(response.bytes)
    });
    let done = a.node.resharder().rebalance(id, &|| true);
    let planned = planned.lock().unwrap().expect("it was planned");
    if planned.elapsed() >= SEALING {
        return Err(Disturbed);
    }
    // All seals were set: the reshard would have waited [`SEALING`] for a missing one.
    assert!(matches!(done, Err(AdminError::ReplicasNotReady)), "{done:?}");
    let places = |node: &Running| places_of(&table(node).config.shards);
    let moved = match on(&[&[&c], &[&b]]) {
        DesiredShards::Named(moved) => moved,
        DesiredShards::Placed(_) => unreachable!("they are named"),
    };
    assert_eq!(places(&a), moved);
    write_until_done(&[&b, &c], 60);
    wait_until("they have moved", || {
        let shards = &table(&a).config.shards;
        places(&a) == moved && shards.iter().all(|shard| shard.leaving.is_empty())
    });
    // They also stay there after a rebalance.
    wait_until("a reshard", || matches!(a.node.resharder().rebalance(id, &|| true), Ok(true)));
    wait_until_resharded(&[&a]);
    assert_eq!(places(&a), moved);
    Ok(())
}
