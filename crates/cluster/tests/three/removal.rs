//! A server is removed for good: not while a shard needs it, and whoever is told so can do something about it.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rekindle_cluster::{AdminError, RepairMode, RepairScope, ShardPlaces, ShardsWanted, TableOptions};

use crate::fixture::{END, ENDS, create, on, table, three, wait_for_voters};
use crate::hub::{Hub, Machine, PATIENCE, change, missing, stored, wait_until, write_until_done};

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
        let refused = node.node.removal().remove_server(gone).unwrap_err();
        let AdminError::NeededForMajority { server, tables } = &refused else { panic!("{refused}") };
        assert_eq!((&**server, &**tables), ("c", "`test.t`"));
        assert!(refused.to_string().contains("emergency_repair"), "{refused}");
        assert!(node.node.catalog().server(gone).is_some() && !node.node.catalog().is_removed(gone));
        assert_eq!(table(node).config, before);
    }
    wait_until("the repair", || {
        a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).is_ok()
    });
    a.node.removal().remove_server(gone).unwrap();
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
    a.node.removal().remove_server(second).unwrap_err();
    let b = machines[1].start(&hub, None);
    wait_until("two of three", || a.node.removal().remove_server(third).is_ok());
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
    b.node.removal().remove_server(gone).unwrap();
    (0..10).for_each(|n| write_until_done(&[&a, &b], n));
}

#[test]
fn a_replica_on_its_way_out_that_still_votes_keeps_its_server() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &c]]));
    a.wait_ready("t");
    let (id, gone, group) = (table(&a).config.id, c.server(), table(&a).shards()[0].group());
    // It is there when it is sent away, and does not hear of that.
    [a.server(), gone].into_iter().for_each(|server| hub.deafen(server, group));
    change(&b, id, on(&[&[&a]])).unwrap();
    c.kill();
    hub.let_all_hear();
    let refused = b.node.removal().remove_server(gone).unwrap_err();
    assert!(matches!(refused, AdminError::NeededForMajority { .. }), "{refused}");
    let members = a.node.log().group_status(group).unwrap().members;
    assert_eq!((members.voters.len(), members.removed.len()), (2, 0));
    wait_until("the repair", || {
        b.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).is_ok()
    });
    b.node.removal().remove_server(gone).unwrap();
}

#[test]
fn many_tables_are_named_by_some_of_them() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    for nth in 0..13 {
        let options = TableOptions { shards: on(&[&[&a, &c]]), ..TableOptions::default() };
        a.node.schema().create_table("test", &format!("t{nth:02}"), options).unwrap();
    }
    (0..13).for_each(|nth| a.wait_ready(&format!("t{nth:02}")));
    let gone = c.server();
    c.kill();
    let Err(AdminError::NeededForMajority { tables, .. }) = b.node.removal().remove_server(gone) else {
        panic!("it is needed")
    };
    assert!(tables.starts_with("`test.t00`, `test.t01`, ") && tables.ends_with(" and 3 more"), "{tables}");
}

#[test]
fn the_only_voting_replica_is_given_up_in_the_way_that_keeps_what_others_have() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let replicas = vec![(c.server(), true), (a.server(), false)];
    create(&a, ShardsWanted::Named(vec![ShardPlaces { primary: c.server(), replicas }]));
    let alone = TableOptions { shards: on(&[&[&c]]), ..TableOptions::default() };
    let alone = a.node.schema().create_table("test", "u", alone).unwrap().id;
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&c], n));
    wait_until("the rows on a", || stored(&a).len() == 20);
    let (id, gone) = (table(&a).config.id, c.server());
    c.kill();
    let text = b.node.removal().remove_server(gone).unwrap_err().to_string();
    let begin = "Server `c` has the only voting replica of a shard of table `test.t`.";
    assert!(
        text.starts_with(begin) && text.contains("`emergency_repair` with 'unsafe_rollback' on"),
        "{text}"
    );
    wait_until("the repair", || {
        b.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).is_ok()
    });
    let text = b.node.removal().remove_server(gone).unwrap_err().to_string();
    assert!(text.contains("`test.u`") && text.contains("'unsafe_rollback_or_erase'"), "{text}");
    b.node.repair().emergency_repair(alone, RepairMode::RollbackOrErase, RepairScope::Cluster).unwrap();
    b.node.removal().remove_server(gone).unwrap();
    (20..30).for_each(|n| write_until_done(&[&a], n));
    assert_eq!(missing(&a, 30), []);
}

/// Answers of how far logs reach that are kept back, and how many there are.
#[derive(Default)]
struct KeptBack {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl KeptBack {
    fn wait(&self) {
        let mut state = self.state.lock();
        state.0 += 1;
        while !state.1 {
            self.changed.wait(&mut state);
        }
    }

    fn let_go(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}

#[test]
fn servers_that_hang_are_asked_together_and_hold_up_no_other_change() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    wait_for_voters(&a, 4);
    create(&a, on(&[&[&b, &c, &d], &[&c, &d, &b]]));
    a.wait_ready("t");
    let (gone, asker) = (d.server(), a.server());
    d.kill();
    let kept = Arc::new(KeptBack::default());
    let meddler = Arc::clone(&kept);
    hub.meddle(move |answer| {
        if answer.asked_by == asker && matches!(answer.kind, Some(END | ENDS)) {
            meddler.wait();
        }
        Some(answer.bytes)
    });
    let removal = std::thread::spawn({
        let node = Arc::clone(&a.node);
        move || node.removal().remove_server(gone)
    });
    wait_until("questions to both", || kept.state.lock().0 == 2);
    let (sender, receiver) = std::sync::mpsc::channel();
    let node = Arc::clone(&a.node);
    std::thread::spawn(move || sender.send(node.schema().create_db("meanwhile").is_ok()));
    assert!(matches!(receiver.recv_timeout(PATIENCE), Ok(true)), "the removal holds up others");
    kept.let_go();
    removal.join().unwrap().unwrap();
    assert!(a.node.catalog().is_removed(gone));
}
