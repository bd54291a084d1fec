//! Permanent removal of servers: refused while a shard needs the server, with an error that names a remedy.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rekindle_cluster::{AdminError, DesiredShards, RepairMode, RepairScope, ShardPlaces, TableOptions};

use crate::fixture::{LOG_POSITION, LOG_POSITIONS, create, on, table, three, wait_for_voters};
use crate::hub::{Hub, Machine, TEST_TIMEOUT, change, missing, stored, wait_until, write_until_done};

#[test]
fn a_server_that_a_shard_needs_for_its_quorum_is_not_removed() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &c]]));
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&a, &c], n));
    let (id, gone, before) = (table(&a).config.id, c.server(), table(&a).config.clone());
    c.kill();
    // The same through a server that has no replica of the table.
    for node in [&a, &b] {
        let refused = node.node.removal().remove_server(gone).unwrap_err();
        let AdminError::NeededForQuorum { server, tables } = &refused else { panic!("{refused}") };
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
fn a_removal_succeeds_once_another_server_is_back() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b, &c]]));
    a.wait_ready("t");
    let (second, third) = (b.server(), c.server());
    c.kill();
    b.kill();
    // Neither the catalog nor the table has a quorum.
    a.node.removal().remove_server(second).unwrap_err();
    let b = machines[1].start(&hub, None);
    wait_until("two of three", || a.node.removal().remove_server(third).is_ok());
    (0..10).for_each(|n| write_until_done(&[&a, &b], n));
    assert_eq!(table(&a).config.shards[0].replicas.len(), 2);
}

#[test]
fn a_server_with_only_nonvoting_replicas_can_be_removed() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let replicas = vec![(a.server(), true), (c.server(), false)];
    create(&a, DesiredShards::Named(vec![ShardPlaces { primary: a.server(), replicas }]));
    a.wait_ready("t");
    let gone = c.server();
    c.kill();
    b.node.removal().remove_server(gone).unwrap();
    (0..10).for_each(|n| write_until_done(&[&a, &b], n));
}

#[test]
fn a_server_whose_leaving_replica_still_votes_is_not_removed() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &c]]));
    a.wait_ready("t");
    let (id, gone, group) = (table(&a).config.id, c.server(), table(&a).shards()[0].group());
    // It is connected when its replica is to leave, but receives no messages of the group.
    [a.server(), gone].into_iter().for_each(|server| hub.drop_messages(server, group));
    change(&b, id, on(&[&[&a]])).unwrap();
    c.kill();
    hub.deliver_messages();
    let refused = b.node.removal().remove_server(gone).unwrap_err();
    assert!(matches!(refused, AdminError::NeededForQuorum { .. }), "{refused}");
    let members = a.node.log().group_status(group).unwrap().members;
    assert_eq!((members.voters.len(), members.removed.len()), (2, 0));
    wait_until("the repair", || {
        b.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).is_ok()
    });
    b.node.removal().remove_server(gone).unwrap();
}

#[test]
fn the_error_names_only_some_of_many_tables() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    for nth in 0..13 {
        let options = TableOptions { shards: on(&[&[&a, &c]]), ..TableOptions::default() };
        a.node.schema().create_table("test", &format!("t{nth:02}"), options).unwrap();
    }
    (0..13).for_each(|nth| a.wait_ready(&format!("t{nth:02}")));
    let gone = c.server();
    c.kill();
    let Err(AdminError::NeededForQuorum { tables, .. }) = b.node.removal().remove_server(gone) else {
        panic!("it is needed")
    };
    assert!(tables.starts_with("`test.t00`, `test.t01`, ") && tables.ends_with(" and 3 more"), "{tables}");
}

#[test]
fn the_error_for_the_only_voting_replica_names_the_repair_that_keeps_the_rows_of_others() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let replicas = vec![(c.server(), true), (a.server(), false)];
    create(&a, DesiredShards::Named(vec![ShardPlaces { primary: c.server(), replicas }]));
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

/// Holds back responses with log positions, and counts them.
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

    fn release(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}

#[test]
fn servers_that_hang_are_asked_at_the_same_time_and_delay_no_other_change() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    wait_for_voters(&a, 4);
    create(&a, on(&[&[&b, &c, &d], &[&c, &d, &b]]));
    a.wait_ready("t");
    let (gone, asker) = (d.server(), a.server());
    d.kill();
    let kept = Arc::new(KeptBack::default());
    let interceptor = Arc::clone(&kept);
    hub.intercept(move |response| {
        if response.sent_by == asker && matches!(response.kind, Some(LOG_POSITION | LOG_POSITIONS)) {
            interceptor.wait();
        }
        Some(response.bytes)
    });
    let removal = std::thread::spawn({
        let node = Arc::clone(&a.node);
        move || node.removal().remove_server(gone)
    });
    wait_until("requests to both", || kept.state.lock().0 == 2);
    let (sender, receiver) = std::sync::mpsc::channel();
    let node = Arc::clone(&a.node);
    std::thread::spawn(move || sender.send(node.schema().create_db("meanwhile").is_ok()));
    assert!(matches!(receiver.recv_timeout(TEST_TIMEOUT), Ok(true)), "the removal delays other changes");
    kept.release();
    removal.join().unwrap().unwrap();
    assert!(a.node.catalog().is_removed(gone));
}
