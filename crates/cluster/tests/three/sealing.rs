//! What happens between the first seal of a division and its new shards: leaders change, replicas are moved, and what
//! is applied need not be committed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use log::Role;
use rekindle_cluster::{AdminError, ShardsWanted, TableChange, TableOptions, WriteAcks, places_of};
use shard::SealState;

use crate::division::{everybody_has, while_writing};
use crate::fixture::{CUTS, SET_MARK, create, on, settled, table, three, wait_for_voters};
use crate::hub::{
    Hub, Machine, PATIENCE, Running, missing, replicated, row, wait_until, write_long_until_done,
    write_until_done,
};

/// The seals are given up when they take longer together.
const SEALING: Duration = Duration::from_secs(2);

/// The machine was too busy for what was to happen within [`SEALING`].
#[derive(Debug)]
struct Disturbed;

/// Tries from the beginning until it was not disturbed.
#[track_caller]
fn undisturbed(attempt: impl Fn() -> Result<(), Disturbed>) {
    let deadline = Instant::now() + 4 * PATIENCE;
    while let Err(Disturbed) = attempt() {
        assert!(Instant::now() < deadline, "it was always disturbed");
    }
}

fn shards(wanted: ShardsWanted) -> TableChange {
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
fn a_leader_that_changes_between_the_rounds_of_marks_holds_no_division_up() {
    undisturbed(another_leads_between_the_rounds);
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
    let (first, heir) = (before.shards()[0].group(), before.config.shards[0].replicas[2].peer);
    let leads = |node: &Running| {
        let log = Arc::clone(node.node.log());
        move || log.group_status(first).is_ok_and(|status| matches!(status.role, Role::Leader { .. }))
    };
    wait_until("the leader", leads(&a));
    // The others seal it without the only one that can begin what comes after it; so they are asked again.
    hub.deafen(b.server(), first);
    let (its_hub, old, new) = (Arc::downgrade(&hub), a.server(), d.server());
    let (old_log, new_leads) = (Arc::clone(a.node.log()), leads(&d));
    let (is_sealed, answers) = (AtomicBool::new(false), Arc::new(AtomicU32::new(0)));
    let answers_of_new = Arc::clone(&answers);
    hub.meddle(move |answer| {
        if answer.kind == Some(SET_MARK) && answer.group == Some(first) {
            if answer.answered_by == old && !is_sealed.swap(true, Ordering::AcqRel) {
                old_log.transfer(first, heir);
                wait_until("another leader", &new_leads);
                its_hub.upgrade().unwrap().let_all_hear();
            }
            answers_of_new.fetch_add(u32::from(answer.answered_by == new), Ordering::AcqRel);
        }
        Some(answer.bytes)
    });
    let mut divided = Ok(());
    let written = while_writing(&writers, 20, || {
        divided = e.node.resharder().change_table(before.config.id, &shards(on(&[&[&b]]))).map(drop);
    });
    if matches!(divided, Err(AdminError::ReplicasNotReady)) {
        return Err(Disturbed);
    }
    divided.unwrap();
    assert!(answers.load(Ordering::Acquire) > 0, "the new leader was asked");
    assert_eq!(table(&e).config.lineage.epoch, 1, "nothing was given up");
    everybody_has(&[&b], written);
    Ok(())
}

#[test]
fn a_seal_that_is_applied_and_not_committed_ends_nothing() {
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
    wait_until("the leader", || table(&a).shards()[0].local().is_some_and(|near| near.is_leader()));
    let near = Arc::clone(table(&a).shards()[0].local().unwrap());
    let (log, its_hub, deaf) = (Arc::clone(a.node.log()), Arc::downgrade(&hub), [c.server(), d.server()]);
    let (is_alone, was_alone) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let alone_told = Arc::clone(&was_alone);
    hub.meddle(move |answer| {
        // All is planned by then.
        if answer.kind == Some(CUTS) && !is_alone.swap(true, Ordering::AcqRel) {
            let hub = its_hub.upgrade().unwrap();
            deaf.iter().for_each(|server| hub.deafen(*server, first));
            // A seal of somebody else, applied by one that waits for nobody: as if it led since just now and did not know
            // that it is to be sealed. One of the others has it, and could begin what comes after it.
            drop(near.set_seal_state(SealState::sealed(0)));
            near.abandon_seal(SealState::sealed(0));
            wait_until("the seal", || near.seal_state().is_sealed());
            let status = log.group_status(first).unwrap();
            alone_told.store(status.committed < status.applied, Ordering::Release);
        }
        Some(answer.bytes)
    });
    let two = shards(on(&[&[&a, &b, &c, &d], &[&b, &c, &d, &a]]));
    let refused = e.node.resharder().change_table(before.config.id, &two).unwrap_err();
    assert!(was_alone.load(Ordering::Acquire), "too few others have it");
    assert!(matches!(refused, AdminError::ReplicasNotReady), "{refused}");
    assert_eq!(table(&e).shards()[0].group(), first);
    hub.let_all_hear();
    (20..40).for_each(|n| write_until_done(&writers, n));
    wait_until("the division", || e.node.resharder().change_table(before.config.id, &two).is_ok());
    everybody_has(&writers, 40);
}

#[test]
fn one_that_needs_a_copy_gets_it_from_a_sealed_shard_that_needs_its_vote() {
    undisturbed(a_sealed_shard_gives_a_copy);
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
        let near = [&a, &b].map(|node| table(node).shards()[0].local().cloned());
        near.into_iter().flatten().find(|near| near.is_leader())
    };
    let sealed = leader().ok_or(Disturbed)?.set_seal_state(SealState::sealed(0));
    sealed.wait().map_err(|_| Disturbed)?;
    // The log keeps nothing of it, because of another shard's rows.
    let (mut written, since) = (40, Instant::now());
    while [&a, &b].iter().any(|node| status(node).start < status(node).last) {
        if table(&a).shard(&row(written).0).group() != group {
            write_long_until_done(&[&a, &b], written, 1000);
        }
        written += 1;
    }
    let is_sealed =
        |node: &Running| table(node).shards()[0].local().is_some_and(|near| near.seal_state().is_sealed());
    if since.elapsed() > SEALING || ![&a, &b].into_iter().all(is_sealed) {
        return Err(Disturbed);
    }
    // Of those who have it one is gone. The other is elected, and commits nothing without c.
    a.kill();
    b.kill();
    let a = machines[0].start_unheard(&hub, None);
    let c = machines[2].start_unheard(&hub, None);
    [&a, &c].iter().for_each(|node| assert!(node.node.await_catalog(PATIENCE)));
    (0..40).for_each(|n| write_until_done(&[&a, &c], n));
    wait_until("the rows", || missing(&c, 40).is_empty());
    Ok(())
}

#[test]
fn replicas_that_are_moved_after_the_seals_stay_where_they_were_moved() {
    undisturbed(replicas_are_moved_after_the_seals);
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
    hub.meddle(move |answer| {
        if answer.kind == Some(CUTS) {
            *planned_at.lock().unwrap() = Some(Instant::now());
        }
        if answer.kind == Some(SET_MARK) && !is_moved.swap(true, Ordering::AcqRel) {
            other.resharder().change_table(id, &elsewhere).unwrap();
        }
        Some(answer.bytes)
    });
    let done = a.node.resharder().rebalance(id, &|| true);
    let planned = planned.lock().unwrap().expect("it was planned");
    if planned.elapsed() >= SEALING {
        return Err(Disturbed);
    }
    // All marks were there: those that are missing are waited for until that is over.
    assert!(matches!(done, Err(AdminError::ReplicasNotReady)), "{done:?}");
    let places = |node: &Running| places_of(&table(node).config.shards);
    let moved = match on(&[&[&c], &[&b]]) {
        ShardsWanted::Named(moved) => moved,
        ShardsWanted::Placed(_) => unreachable!("they are named"),
    };
    assert_eq!(places(&a), moved);
    write_until_done(&[&b, &c], 60);
    wait_until("they have moved", || {
        let shards = &table(&a).config.shards;
        places(&a) == moved && shards.iter().all(|shard| shard.leaving.is_empty())
    });
    // And so they stay when the shards are made equal.
    wait_until("a division", || matches!(a.node.resharder().rebalance(id, &|| true), Ok(true)));
    settled(&[&a]);
    assert_eq!(places(&a), moved);
    Ok(())
}
