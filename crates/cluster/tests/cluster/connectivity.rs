//! Repairs and removals through a server that is cut off from some others: a server that another one is connected to does
//! not count as lost, and a repair waits for servers that are restarting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use log::{GroupId, Role};
use rekindle_cluster::{AdminError, RepairMode, RepairScope};

use crate::fixture::{CONNECTED_SERVERS, LOG_POSITIONS, STATES, create, five, members, on, table, three};
use crate::hub::{Hub, Machine, Running, TEST_TIMEOUT, missing, wait_until, write_until_done};

fn cut(hub: &Hub, one: &Running, others: &[&Running]) {
    others.iter().for_each(|other| hub.cut(one.server(), other.server()));
}

#[track_caller]
fn assert_hidden<T: std::fmt::Debug>(outcome: Result<T, AdminError>, hidden: &str, seen_by: &str) {
    let refused = outcome.unwrap_err();
    let AdminError::ConnectedElsewhere { servers, by } = &refused else { panic!("{refused}") };
    assert_eq!((servers.as_str(), by.as_str()), (hidden, seen_by));
    assert!(!refused.is_indeterminate());
}

#[test]
fn a_table_is_not_repaired_through_a_server_that_is_cut_off_from_its_living_replicas() {
    let hub = Arc::new(Hub::default());
    let [a, b, c, d, e] = five(&hub);
    create(&a, on(&[&[&a, &d, &e]]));
    a.wait_ready("t");
    (0..20).for_each(|n| write_until_done(&[&a, &d, &e], n));
    let (id, group) = (table(&a).config.id, table(&a).shards()[0].group());
    let before = (table(&b).config.clone(), members(&a, group));
    cut(&hub, &a, &[&d, &e]);
    for mode in [RepairMode::Rollback, RepairMode::RollbackOrErase] {
        assert_hidden(a.node.repair().plan_repair(id, mode, RepairScope::Cluster), "`d`, `e`", "`b`, `c`");
    }
    let repaired = a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster);
    assert_hidden(repaired, "`d`, `e`", "`b`, `c`");
    let healthy = b.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster);
    assert!(matches!(healthy, Err(AdminError::NothingToRepair)), "{healthy:?}");
    assert_eq!((table(&c).config.clone(), members(&a, group)), before);
    hub.heal();
    (20..30).for_each(|n| write_until_done(&[&a, &d, &e], n));
    [&a, &d, &e].into_iter().for_each(|node| assert_eq!(missing(node, 30), []));
}

#[test]
fn the_catalog_is_not_repaired_through_a_server_that_is_cut_off() {
    let hub = Arc::new(Hub::default());
    let [a, b, c, d, e] = five(&hub);
    create(&a, on(&[&[&a]]));
    (0..10).for_each(|n| write_until_done(&[&a], n));
    let (id, before) = (table(&a).config.id, members(&a, GroupId(0)));
    cut(&hub, &a, &[&c, &d, &e]);
    assert_hidden(a.node.repair().plan_catalog_repair(), "`c`, `d`, `e`", "`b`");
    let node = Arc::clone(&a.node);
    let other = std::thread::spawn(move || {
        node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster)
    });
    assert_hidden(a.node.repair().repair_catalog(), "`c`, `d`, `e`", "`b`");
    assert_hidden(other.join().unwrap(), "`c`, `d`, `e`", "`b`");
    assert_eq!(members(&a, GroupId(0)), before);
    assert_eq!(b.node.catalog().servers().len(), 5);
    // The server that is cut off may have led the catalog.
    wait_until("a change", || match b.node.schema().create_db("meanwhile") {
        Err(AdminError::DbExists(_)) => true,
        changed => changed.is_ok(),
    });
    hub.heal();
    wait_until("the database on a", || a.node.catalog().database("meanwhile").is_some());
}

#[test]
fn a_server_that_is_connected_to_a_quorum_refuses_the_repair() {
    let hub = Arc::new(Hub::default());
    let [a, b, c, d, e] = five(&hub);
    create(&a, on(&[&[&a]]));
    (0..10).for_each(|n| write_until_done(&[&a], n));
    let before = b.node.catalog().servers().len();
    cut(&hub, &a, &[&c, &d, &e]);
    // The other server does not list its connections.
    hub.intercept(|response| (response.kind != Some(CONNECTED_SERVERS)).then_some(response.bytes));
    let silent = a.node.repair().repair_catalog().unwrap_err();
    assert!(matches!(&silent, AdminError::ServersSilent { servers } if servers == "`b`"), "{silent}");
    // The other server lists no further connections, although it has them.
    let own = Bytes::copy_from_slice(a.server().0.as_bytes());
    hub.intercept(move |response| {
        Some(if response.kind == Some(CONNECTED_SERVERS) { own.clone() } else { response.bytes })
    });
    let refused = a.node.repair().repair_catalog().unwrap_err();
    assert!(matches!(refused, AdminError::RepairBegun(_) | AdminError::Refused(_)), "{refused}");
    assert!(
        refused.to_string().contains("this server is connected to most voters of the group"),
        "{refused}"
    );
    assert_eq!(b.node.catalog().servers().len(), before);
}

#[test]
fn a_server_that_others_are_connected_to_is_not_removed() {
    let hub = Arc::new(Hub::default());
    let [a, _b, _c, d, _e] = five(&hub);
    hub.cut(a.server(), d.server());
    let refused = a.node.removal().remove_server(d.server()).unwrap_err();
    let AdminError::ServerConnectedElsewhere { server, by } = &refused else { panic!("{refused}") };
    assert_eq!((server.as_str(), by.as_str()), ("`d`", "`b`, `c`, `e`"));
    assert!(!a.node.catalog().is_removed(d.server()));
    let gone = d.server();
    d.kill();
    a.node.removal().remove_server(gone).unwrap();
}

#[test]
fn a_server_that_a_silent_server_may_be_connected_to_is_not_removed() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b, &c]]));
    a.wait_ready("t");
    hub.cut(a.server(), c.server());
    let hangs = b.server();
    hub.intercept(move |response| {
        (response.kind != Some(CONNECTED_SERVERS) || response.responder != hangs).then_some(response.bytes)
    });
    let refused = a.node.removal().remove_server(c.server()).unwrap_err();
    assert!(matches!(&refused, AdminError::ServersSilent { servers } if servers == "`b`"), "{refused}");
    assert!(!a.node.catalog().is_removed(c.server()));
    let gone = c.server();
    c.kill();
    hub.intercept(|response| Some(response.bytes));
    a.node.removal().remove_server(gone).unwrap();
}

#[test]
fn a_server_that_connects_to_others_during_its_removal_is_not_removed() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    create(&a, on(&[&[&a, &b, &c]]));
    a.wait_ready("t");
    let gone = c.server();
    cut(&hub, &c, &[&a, &b]);
    // The link between b and c is back before b responds with its log positions.
    let (weak, pair) = (Arc::downgrade(&hub), [b.server(), gone]);
    let asker = a.server();
    hub.intercept(move |response| {
        if response.sent_by == asker && response.kind == Some(LOG_POSITIONS) {
            weak.upgrade().unwrap().heal_between(pair);
        }
        Some(response.bytes)
    });
    let refused = a.node.removal().remove_server(gone).unwrap_err();
    assert!(matches!(&refused, AdminError::ServerConnectedElsewhere { by, .. } if by == "`b`"), "{refused}");
    assert!(!a.node.catalog().is_removed(gone));
}

#[test]
fn a_repair_waits_for_a_server_that_restarts() {
    let hub = Arc::new(Hub::default());
    let a = Machine::new("a").start(&hub, None);
    let machine = Machine::new("b");
    let b = machine.start(&hub, Some(&a));
    wait_until("two voters", || members(&a, GroupId(0)).voters.len() == 2);
    create(&a, on(&[&[&a, &b]]));
    a.wait_ready("t");
    let id = table(&a).config.id;
    a.node.repair().set_return_timeout(TEST_TIMEOUT);
    b.kill();
    // A plan waits for no server.
    assert_eq!(a.node.repair().plan_catalog_repair().unwrap().len(), 1);
    let node = Arc::clone(&a.node);
    let of_table = std::thread::spawn(move || {
        node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster)
    });
    let node = Arc::clone(&a.node);
    let of_catalog = std::thread::spawn(move || node.repair().repair_catalog());
    let b = machine.start(&hub, None);
    let repaired = of_catalog.join().unwrap();
    assert!(matches!(repaired, Err(AdminError::CatalogHasQuorum)), "{repaired:?}");
    let repaired = of_table.join().unwrap();
    assert!(matches!(repaired, Err(AdminError::NothingToRepair)), "{repaired:?}");
    (0..10).for_each(|n| write_until_done(&[&a, &b], n));
    assert_eq!(a.node.catalog().servers().len(), 2);
}

#[test]
fn a_repair_of_a_table_alone_removes_no_server() {
    let hub = Arc::new(Hub::default());
    let a = Machine::new("a").start(&hub, None);
    let b = Machine::new("b").start(&hub, Some(&a));
    wait_until("two voters", || members(&a, GroupId(0)).voters.len() == 2);
    create(&a, on(&[&[&a, &b]]));
    a.wait_ready("t");
    let (id, gone, before) = (table(&a).config.id, b.server(), table(&a).config.clone());
    b.kill();
    let (mode, scope) = (RepairMode::Rollback, RepairScope::Table);
    for refused in
        [a.node.repair().plan_repair(id, mode, scope), a.node.repair().emergency_repair(id, mode, scope)]
    {
        assert!(matches!(refused, Err(AdminError::CatalogFirst)), "{refused:?}");
    }
    // A rewrite of the configuration removes no server either.
    let (mode, scope) = (RepairMode::Recommit, RepairScope::Cluster);
    assert_eq!(a.node.repair().plan_repair(id, mode, scope).unwrap().table, before);
    // The leader may not have noticed yet.
    let refused = a.node.repair().emergency_repair(id, mode, scope);
    assert!(
        matches!(refused, Err(AdminError::CatalogNoQuorum { .. } | AdminError::InDoubt(_))),
        "{refused:?}"
    );
    assert!(!a.node.catalog().is_removed(gone));
}

#[test]
fn a_catalog_whose_leader_responds_has_no_outage() {
    let hub = Arc::new(Hub::default());
    let five = five(&hub);
    let leads = |node: &&Running| {
        matches!(node.node.log().group_status(GroupId(0)).unwrap().role, Role::Leader { .. })
    };
    let leader = five.iter().find(leads).unwrap();
    let [asked, witness, others @ ..] =
        &five.iter().filter(|node| node.server() != leader.server()).collect::<Vec<_>>()[..]
    else {
        panic!("there are five")
    };
    cut(&hub, asked, others);
    cut(&hub, asked, &[witness]);
    assert_eq!(asked.node.states().catalog_outage(), None);
    asked.node.schema().create_db("after").unwrap();
    // Only other servers are connected to the leader.
    hub.heal();
    cut(&hub, asked, others);
    cut(&hub, asked, &[leader]);
    let outage = asked.node.states().catalog_outage().unwrap();
    assert_eq!((outage.leader, outage.is_lost), (Some(leader.server()), false));
}

#[test]
fn the_check_for_an_outage_sends_all_requests_at_once() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, _b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    wait_until("four voters", || members(&a, GroupId(0)).voters.len() == 4);
    [c, d].into_iter().for_each(Running::kill);
    let (asker, states_asked, waits) =
        (a.server(), Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (states, waited) = (Arc::clone(&states_asked), Arc::clone(&waits));
    hub.intercept(move |response| {
        if response.sent_by == asker && response.kind == Some(STATES) {
            states.store(true, Ordering::Release);
        }
        if response.sent_by == asker && response.kind == Some(CONNECTED_SERVERS) {
            let until = Instant::now() + Duration::from_secs(5);
            while !states.load(Ordering::Acquire) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            waited.fetch_or(!states.load(Ordering::Acquire), Ordering::AcqRel);
        }
        Some(response.bytes)
    });
    // The leader may not have noticed yet.
    wait_until("the outage", || a.node.states().catalog_outage().is_some());
    assert!(
        states_asked.load(Ordering::Acquire) && !waits.load(Ordering::Acquire),
        "the leader is asked for later"
    );
}

#[test]
fn an_outage_names_a_server_that_was_lost_while_it_was_asked() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let d = Machine::new("d").start(&hub, Some(&a));
    wait_until("four voters", || members(&a, GroupId(0)).voters.len() == 4);
    let mut lost = [&b, &c, &d].map(Running::server);
    [c, d].into_iter().for_each(Running::kill);
    // The leader may not have noticed yet.
    let is_reported = || a.node.states().catalog_outage().is_some_and(|outage| outage.gone.len() == 2);
    wait_until("the outage", is_reported);
    let (asker, asked, between) = (a.server(), b.server(), Arc::downgrade(&hub));
    hub.intercept(move |response| {
        if response.sent_by == asker
            && response.kind == Some(STATES)
            && let Some(hub) = between.upgrade()
        {
            hub.cut(asker, asked);
        }
        Some(response.bytes)
    });
    let mut gone = a.node.states().catalog_outage().unwrap().gone;
    gone.sort();
    lost.sort();
    assert_eq!(gone, lost);
}
