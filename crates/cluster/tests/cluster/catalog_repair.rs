//! Repair of a catalog that has lost its quorum permanently.

use std::sync::Arc;

use log::{GroupId, Members};
use rekindle_cluster::{AdminError, RepairMode, RepairScope, Repaired, ServerId, TableOptions};

use crate::fixture::{create, on, table, three, voters, wait_for_voters};
use crate::hub::{Hub, Machine, Running, missing, wait_until, write_until_done};

/// Two voters of the catalog.
fn two(hub: &Arc<Hub>) -> [Running; 2] {
    let a = Machine::new("a").start(hub, None);
    let b = Machine::new("b").start(hub, Some(&a));
    wait_for_voters(&a, 2);
    [a, b]
}

#[test]
fn a_catalog_without_a_quorum_is_repaired_where_there_is_no_table() {
    let hub = Arc::new(Hub::default());
    let [a, b] = two(&hub);
    for healthy in [a.node.repair().plan_catalog_repair(), a.node.repair().repair_catalog()] {
        assert!(matches!(healthy, Err(AdminError::CatalogHasQuorum)), "{healthy:?}");
    }
    let gone = b.server();
    b.kill();
    let refused = a.node.removal().remove_server(gone).unwrap_err();
    assert!(matches!(&refused, AdminError::CatalogNoQuorum { servers } if servers == "`b`"), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("`emergency_repair` on the database `rethinkdb`"), "{text}");
    let is_reported = || a.node.states().catalog_outage().is_some_and(|outage| outage.is_lost);
    wait_until("the outage", is_reported);
    assert_eq!(a.node.repair().plan_catalog_repair().unwrap(), [gone]);
    assert!(!a.node.catalog().is_removed(gone), "it was only planned");
    assert_eq!(a.node.repair().repair_catalog().unwrap(), [gone]);
    assert!(a.node.catalog().is_removed(gone));
    a.node.schema().create_db("after").unwrap();
    assert!(matches!(a.node.repair().repair_catalog(), Err(AdminError::CatalogHasQuorum)));
}

#[test]
fn a_catalog_without_a_quorum_is_repaired_beside_a_table_that_has_one() {
    for mode in [RepairMode::Rollback, RepairMode::RollbackOrErase] {
        let hub = Arc::new(Hub::default());
        let [a, b] = two(&hub);
        create(&a, on(&[&[&a]]));
        (0..10).for_each(|n| write_until_done(&[&a], n));
        let (id, before, gone) = (table(&a).config.id, table(&a).config.clone(), b.server());
        assert!(matches!(
            a.node.repair().emergency_repair(id, mode, RepairScope::Cluster),
            Err(AdminError::NothingToRepair)
        ));
        b.kill();
        let expected = Repaired { table: before, removed: vec![gone] };
        assert_eq!(a.node.repair().plan_repair(id, mode, RepairScope::Cluster).unwrap(), expected);
        assert!(!a.node.catalog().is_removed(gone), "it was only planned");
        assert_eq!(a.node.repair().emergency_repair(id, mode, RepairScope::Cluster).unwrap(), expected);
        assert!(a.node.catalog().is_removed(gone));
        assert_eq!(a.node.catalog().server_name(gone).map(AsRef::as_ref), Some("b"));
        a.node.schema().create_table("test", "after", TableOptions::default()).unwrap();
        assert_eq!(missing(&a, 10), []);
        assert!(matches!(
            a.node.repair().emergency_repair(id, mode, RepairScope::Cluster),
            Err(AdminError::NothingToRepair)
        ));
    }
}

#[test]
fn tables_that_keep_their_quorum_have_no_replicas_on_servers_that_a_repair_removes() {
    for scope in [None, Some(RepairScope::Cluster)] {
        let hub = Arc::new(Hub::default());
        let (_machines, [a, b, c]) = three(&hub);
        let d = Machine::new("d").start(&hub, Some(&a));
        wait_until("four voters", || voters(&a) == 4);
        create(&a, on(&[&[&b, &a, &d], &[&a, &b]]));
        a.wait_ready("t");
        (0..20).for_each(|n| write_until_done(&[&a, &b], n));
        wait_until("the table on d", || d.node.catalog().table("test", "t").is_some());
        let (id, before, gone) = (table(&d).config.id, table(&d).config.clone(), [b.server(), c.server()]);
        [b, c].into_iter().for_each(Running::kill);
        let mode = RepairMode::Rollback;
        match scope {
            None => assert_eq!(d.node.repair().repair_catalog().unwrap(), gone),
            Some(scope) => {
                let planned = d.node.repair().plan_repair(id, mode, scope).unwrap();
                assert_eq!(d.node.repair().emergency_repair(id, mode, scope).unwrap(), planned);
            }
        }
        let servers = |nth: usize| {
            let shard = table(&d).config.shards[nth].clone();
            shard.replicas.iter().map(|replica| replica.server).collect::<Vec<_>>()
        };
        assert_eq!(servers(0), [a.server(), d.server()]);
        match scope {
            None => assert_eq!(table(&d).config.shards[1], before.shards[1], "it has no majority"),
            Some(_) => assert_eq!(servers(1), [a.server()]),
        }
        drop(d.node.repair().emergency_repair(id, mode, RepairScope::Table));
        (20..40).for_each(|n| write_until_done(&[&a, &d], n));
        assert_eq!(missing(&a, 40), []);
        assert_eq!(table(&d).config.shards[0].primary, servers(0)[0]);
    }
}

#[test]
fn an_interrupted_repair_is_finished_although_the_removed_servers_are_back() {
    let hub = Arc::new(Hub::default());
    let a = Machine::new("a").start(&hub, None);
    let second = Machine::new("b");
    let b = second.start(&hub, Some(&a));
    wait_for_voters(&a, 2);
    let peer = |node: &Running| node.node.log().group_status(GroupId(0)).unwrap().own;
    let (gone, removed) = (b.server(), vec![peer(&b)]);
    b.kill();
    // The first step of a repair.
    let alone = Members { voters: vec![peer(&a)], removed, ..Members::default() };
    a.node.log().reset_members(GroupId(0), alone).unwrap();
    let _back = second.start_without_catalog(&hub, None);
    wait_until("the link", || a.node.connected_servers() == [gone]);
    assert_eq!(a.node.repair().plan_catalog_repair().unwrap(), [gone]);
    assert_eq!(a.node.repair().repair_catalog().unwrap(), [gone]);
    assert!(a.node.catalog().is_removed(gone));
    assert!(matches!(a.node.repair().repair_catalog(), Err(AdminError::CatalogHasQuorum)));
}

#[test]
fn a_learner_of_the_catalog_does_not_count_for_the_quorum() {
    let hub = Arc::new(Hub::default());
    let [a, b] = two(&hub);
    let third = Machine::new("c");
    let server = ServerId(uuid::Uuid::from_u128(u128::from(b'c')));
    hub.drop_messages(server, GroupId(0));
    let c = third.start_without_catalog(&hub, Some(&a));
    assert_eq!((a.node.catalog().servers().len(), voters(&a)), (3, 2));
    let gone = b.server();
    b.kill();
    assert_eq!(a.node.repair().plan_catalog_repair().unwrap(), [gone]);
    hub.deliver_messages();
    wait_until("the repair", || a.node.repair().repair_catalog().is_ok());
    a.node.schema().create_db("after").unwrap();
    wait_until("the new database", || c.node.catalog().database("after").is_some());
}

#[test]
fn a_disconnected_learner_is_neither_needed_nor_removed() {
    let hub = Arc::new(Hub::default());
    let a = Machine::new("a").start(&hub, None);
    let servers = ["b", "c"].map(|name| ServerId(uuid::Uuid::from_u128(u128::from(name.as_bytes()[0]))));
    servers.into_iter().for_each(|server| hub.drop_messages(server, GroupId(0)));
    let others = ["b", "c"].map(|name| Machine::new(name).start_without_catalog(&hub, Some(&a)));
    create(&a, on(&[&[&a]]));
    let id = table(&a).config.id;
    others.into_iter().for_each(Running::kill);
    assert_eq!((a.node.catalog().servers().len(), voters(&a)), (3, 1));
    assert!(matches!(a.node.repair().repair_catalog(), Err(AdminError::CatalogHasQuorum)));
    let refused = a.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster);
    assert!(matches!(refused, Err(AdminError::NothingToRepair)), "{refused:?}");
    servers.into_iter().for_each(|server| a.node.removal().remove_server(server).unwrap());
    assert_eq!(a.node.catalog().servers().len(), 1);
}
