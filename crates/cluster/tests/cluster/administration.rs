//! Operations of administrators: repair, removal, settings, proxies, rebalancing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use datum::Text;
use log::GroupId;
use parking_lot::{Mutex, RwLock};
use rekindle_cluster::{
    AdminError, Catalog, DesiredShards, JoinOptions, OpenError, RepairMode, RepairScope, ShardPlaces,
    TableChange, TableOptions, Wiring, join, places_of,
};
use shard::Replicas;
use storage::TableId;

use crate::fixture::{STATES, three};
use crate::hub::{
    Endpoint, Hub, HubClient, Machine, Running, TEST_TIMEOUT, missing, replicated, row, wait_until,
    write_until_done,
};

#[test]
fn a_table_that_lost_its_quorum_is_repaired_with_every_row_of_the_survivor() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(2, 3), ..TableOptions::default() };
    let id = a.node.schema().create_table("test", "t", options).unwrap().id;
    a.wait_ready("t");
    let healthy = a.node.repair().plan_repair(id, RepairMode::Rollback, RepairScope::Cluster).unwrap_err();
    assert_eq!(healthy.to_string(), "This table doesn't need to be repaired.");
    for n in 0..200 {
        write_until_done(&[&a, &b, &c], n);
    }
    assert_eq!(missing(&c, 200), []);
    let lost = [a.server(), b.server()];
    a.kill();
    b.kill();
    // The catalog has lost its quorum too.
    let planned = c.node.repair().plan_repair(id, RepairMode::Rollback, RepairScope::Cluster).unwrap();
    assert_eq!(c.node.catalog().table_by_id(id).unwrap().config.shards[0].replicas.len(), 3);
    let repaired = c.node.repair().emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster).unwrap();
    assert_eq!(planned, repaired);
    assert!(
        repaired.table.shards.iter().all(|shard| shard.primary == c.server() && shard.replicas.len() == 1)
    );
    for n in 200..300 {
        write_until_done(&[&c], n);
    }
    assert_eq!(missing(&c, 300), []);
    for server in lost {
        assert!(c.node.catalog().is_removed(server), "{server} is still in the catalog");
    }
    // A removed server comes back: its replicas learn that they were removed, and no row is lost.
    let catalogs = |node: &Running| node.node.log().group_status(GroupId(0));
    let back = machines[0].start(&hub, None);
    wait_until("the old replica of the catalog leaves", || catalogs(&back).is_err());
    for n in 300..320 {
        write_until_done(&[&c], n);
    }
    assert_eq!(missing(&c, 320), []);
}

#[test]
fn a_shard_without_any_replica_is_only_erased_when_asked_to() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let places = vec![ShardPlaces { primary: c.server(), replicas: vec![(c.server(), true)] }];
    let options = TableOptions { shards: DesiredShards::Named(places), ..TableOptions::default() };
    let id = a.node.schema().create_table("test", "t", options).unwrap().id;
    a.wait_ready("t");
    write_until_done(&[&a, &b, &c], 1);
    c.kill();
    let refused = a
        .node
        .repair()
        .emergency_repair(id, RepairMode::Rollback, RepairScope::Cluster)
        .unwrap_err()
        .to_string();
    assert!(refused.starts_with("One or more shards of this table have no available replicas."), "{refused}");
    let repaired =
        a.node.repair().emergency_repair(id, RepairMode::RollbackOrErase, RepairScope::Cluster).unwrap();
    assert!([a.server(), b.server()].contains(&repaired.table.shards[0].primary));
    write_until_done(&[&a, &b], 2);
    let holder = if repaired.table.shards[0].primary == a.server() { &a } else { &b };
    let catalog = holder.node.catalog();
    let shard = &catalog.table_by_id(id).unwrap().shards()[0];
    assert_eq!(shard.local().map(|local| local.count()), Some(1), "only the new row is there");
}

#[test]
fn a_server_that_was_removed_is_not_admitted_again() {
    let hub = Arc::new(Hub::default());
    let (machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(1, 3), ..TableOptions::default() };
    a.node.schema().create_table("test", "t", options).unwrap();
    a.wait_ready("t");
    let gone = c.server();
    let still_there = a.node.removal().remove_server(gone).unwrap_err().to_string();
    assert_eq!(still_there, "Server `c` is connected; stop it before you remove it permanently.");
    c.kill();
    a.node.removal().remove_server(gone).unwrap();
    let members = |node: &Running| node.node.log().group_status(GroupId(0)).unwrap().members;
    wait_until("two voters", || members(&a).voters.len() == 2 || members(&b).voters.len() == 2);
    // The leader still knows of the removal after a restart.
    a.kill();
    let a = machines[0].start(&hub, None);
    wait_until("two voters again", || members(&a).voters.len() == 2);
    assert_eq!(members(&a).removed.len(), 1);
    let options = JoinOptions {
        server: gone,
        cluster: a.node.identity().cluster,
        name: Text::from_static("c"),
        tags: Vec::new(),
        cache_size_mb: None,
        addresses: Vec::new(),
        is_proxy: false,
    };
    let fresh = Machine::new("c");
    let wiring = Wiring::new(Replicas::new(fresh.engine.clone()).unwrap());
    wiring.peers.connect(Arc::new(HubClient { hub: hub.clone(), own: gone }));
    let end = Endpoint {
        wiring: wiring.clone(),
        log: a.node.log().clone(),
        rpc_server: RwLock::new(None),
        heartbeats: Mutex::default(),
    };
    hub.endpoints.write().insert(gone, Arc::new(end));
    let members = || Some(vec![a.server()]);
    let timeout = Some(Duration::from_millis(500));
    let removed = join(&options, &wiring, || None, &*fresh.files, &PathBuf::from("data"), None);
    assert!(matches!(removed, Err(OpenError::Removed)), "its links have reported it");
    let refused = join(&options, &wiring, members, &*fresh.files, &PathBuf::from("data"), timeout);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("removed from the cluster permanently"), "{refused}");
}

#[test]
fn a_node_that_has_not_learned_of_a_change_yet_catches_up_when_asked() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    for round in 0..20 {
        let name = format!("db{round}");
        nodes[round % 3].node.schema().create_db(&name).unwrap();
        for node in &nodes {
            let has = || node.node.catalog().database(&name).is_some();
            let found = has() || node.node.catch_up(TEST_TIMEOUT) && has() || has();
            assert!(found, "{name} is missing");
        }
    }
}

#[test]
fn a_change_made_through_one_node_is_shown_by_the_others_when_it_returns() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    let shown = |there: &dyn Fn(&Catalog) -> bool| nodes.iter().all(|node| there(&node.node.catalog()));
    for round in 0..40 {
        let node = &nodes[round % 3].node;
        let (name, other) = (format!("db{round}"), format!("other{round}"));
        node.schema().create_db(&name).unwrap();
        assert!(shown(&|catalog| catalog.database(&name).is_some()), "{name} is missing");
        node.schema().create_table(&name, "t", TableOptions::default()).unwrap();
        assert!(shown(&|catalog| catalog.table(&name, "t").is_some()), "{name}.t is missing");
        let id = node.catalog().table(&name, "t").unwrap().config.id;
        let change = TableChange { name: Some(Text::from(&*other)), ..TableChange::default() };
        node.resharder().change_table(id, &change).unwrap();
        assert!(shown(&|catalog| catalog.table(&name, &other).is_some()), "{name}.{other} is missing");
        node.schema().drop_db(&name).unwrap();
        assert!(shown(&|catalog| catalog.database(&name).is_none()), "{name} is still there");
    }
}

#[test]
fn the_heartbeat_is_a_setting_of_the_whole_cluster() {
    let hub = Arc::new(Hub::default());
    let (_machines, nodes) = three(&hub);
    assert_eq!(nodes[1].node.catalog().heartbeat_secs(), 10);
    let too_short = nodes[1].node.servers().set_heartbeat(1).unwrap_err().to_string();
    assert_eq!(too_short, "The heartbeat timeout must be at least two seconds");
    nodes[1].node.servers().set_heartbeat(3).unwrap();
    for node in &nodes {
        wait_until("the new setting", || node.node.catalog().heartbeat_secs() == 3);
    }
    let is_reported = |end: &Arc<Endpoint>| end.heartbeats.lock().last() == Some(&Duration::from_secs(3));
    wait_until("the setting of all links", || hub.endpoints.read().values().all(is_reported));
}

#[test]
fn a_proxy_has_only_the_catalog_and_is_deleted_when_it_leaves() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let proxy = Machine::new("proxy").start(&hub, Some(&a));
    let options = TableOptions { shards: replicated(2, 3), ..TableOptions::default() };
    proxy.node.schema().create_table("test", "t", options).unwrap();
    proxy.wait_ready("t");
    for n in 0..50 {
        write_until_done(&[&a, &b, &c], n);
    }
    assert_eq!((proxy.node.is_proxy(), a.node.is_proxy()), (true, false));
    let catalog = proxy.node.catalog();
    assert!(catalog.table("test", "t").unwrap().shards().iter().all(|shard| shard.local().is_none()));
    let four = proxy.node.schema().create_table(
        "test",
        "four",
        TableOptions { shards: replicated(1, 4), ..TableOptions::default() },
    );
    assert!(four.unwrap_err().to_string().starts_with("Can't put 4 replicas"), "a proxy holds nothing");
    let voters = catalog.servers().iter().filter(|server| server.catalog.voting).count();
    assert_eq!((catalog.servers().len(), voters), (4, 3));
    proxy.node.servers().leave().unwrap();
    wait_until("the proxy is forgotten", || a.node.catalog().servers().len() == 3);
}

/// Creates table `t` with two shards on the last two nodes, each of which leads one.
fn table_on_two([a, b, c]: [&Running; 3]) -> (TableId, Vec<ShardPlaces>) {
    let place = |first: &Running, second: &Running| {
        let replicas = vec![(first.server(), true), (second.server(), true)];
        ShardPlaces { primary: first.server(), replicas }
    };
    let places = vec![place(b, c), place(c, b)];
    let options = TableOptions { shards: DesiredShards::Named(places.clone()), ..TableOptions::default() };
    let id = a.node.schema().create_table("test", "t", options).unwrap().id;
    a.wait_ready("t");
    (id, places)
}

fn wait_for_places(node: &Running, id: TableId, places: &[ShardPlaces]) {
    wait_until("exactly the earlier replicas", || {
        let catalog = node.node.catalog();
        let shards = &catalog.table_by_id(id).unwrap().config.shards;
        places_of(shards) == places && shards.iter().all(|shard| shard.leaving.is_empty())
    });
}

#[test]
fn rebalanced_shards_have_the_same_replicas_as_before() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let (id, places) = table_on_two([&a, &b, &c]);
    for n in 0..200 {
        write_until_done(&[&a, &b, &c], n);
    }
    // A rebalance may add temporary replicas. It fails if leadership moves meanwhile, and is tried again then.
    wait_until("a reshard", || matches!(a.node.resharder().rebalance(id, &|| true), Ok(true)));
    wait_for_places(&a, id, &places);
    assert_eq!(missing(&b, 200), []);
}

/// Creates the table of [`table_on_two`] with one row in each shard, and waits until each is led by its primary.
fn one_row_in_each([a, b, c]: [&Running; 3]) -> TableId {
    let (id, _) = table_on_two([a, b, c]);
    let shard_of = |n: u32| {
        let catalog = a.node.catalog();
        catalog.table_by_id(id).unwrap().shard(&row(n).0).group()
    };
    let other = (1..100).find(|n| shard_of(*n) != shard_of(0)).unwrap();
    [0, other].into_iter().for_each(|n| write_until_done(&[a, b, c], n));
    wait_until("the leaders", || {
        [b, c].iter().enumerate().all(|(at, node)| {
            let catalog = node.node.catalog();
            catalog.table_by_id(id).unwrap().shards()[at].local().is_some_and(|local| local.leads())
        })
    });
    id
}

#[test]
fn rows_of_shards_that_other_servers_lead_are_counted() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let id = one_row_in_each([&a, &b, &c]);
    for node in [&a, &b, &c] {
        assert!(node.node.resharder().rebalance(id, &|| true).unwrap(), "there are as many rows as shards");
    }
}

#[test]
fn few_rows_are_spread_evenly() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(8, 3), ..TableOptions::default() };
    let id = a.node.schema().create_table("test", "t", options).unwrap().id;
    (0..100).for_each(|n| write_until_done(&[&a, &b, &c], n));
    wait_until("a reshard", || matches!(a.node.resharder().rebalance(id, &|| true), Ok(true)));
    let (catalog, mut sizes) = (a.node.catalog(), Vec::new());
    let divided = catalog.table_by_id(id).unwrap();
    wait_until("all rows of all shards", || {
        let local = divided.shards().iter().map(|shard| shard.local().map_or(0, |local| local.count()));
        sizes = local.collect();
        sizes.iter().sum::<u64>() == 100
    });
    assert!(sizes.iter().all(|rows| (11..=14).contains(rows)), "{sizes:?}");
}

#[test]
fn a_shard_whose_leader_is_silent_is_waited_for() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let id = one_row_in_each([&a, &b, &c]);
    let is_silent = silence(&hub, &c);
    is_silent.store(true, Ordering::Release);
    let rounds = AtomicUsize::new(0);
    let done = a.node.resharder().rebalance(id, &|| {
        let is_third = rounds.fetch_add(1, Ordering::AcqRel) == 2;
        is_silent.fetch_and(!is_third, Ordering::AcqRel);
        true
    });
    assert!(!matches!(done, Ok(false)), "a shard whose leader is silent does not count as empty");
    assert!(rounds.load(Ordering::Acquire) > 2);
}

#[test]
fn a_rebalance_has_one_deadline() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let id = one_row_in_each([&a, &b, &c]);
    let is_silent = silence(&hub, &c);
    let rounds = AtomicUsize::new(0);
    // The leader falls silent after the rows were counted.
    let done = a.node.resharder().rebalance_until(id, Instant::now() + Duration::from_secs(1), &|| {
        is_silent.store(rounds.fetch_add(1, Ordering::AcqRel) > 0, Ordering::Release);
        true
    });
    assert!(matches!(done, Err(AdminError::ReplicasNotReady)), "{done:?}");
    // Each round after the first takes longer than the deadline.
    assert!(rounds.load(Ordering::Acquire) <= 3, "{rounds:?}");
}

#[test]
fn the_error_for_a_missing_quorum_names_the_disconnected_servers() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: replicated(2, 3), ..TableOptions::default() };
    let id = a.node.schema().create_table("test", "t", options).unwrap().id;
    a.wait_ready("t");
    let names = [b.node.name().to_string(), c.node.name().to_string()];
    [b, c].into_iter().for_each(Running::kill);
    let Err(AdminError::NoQuorum { servers }) = a.node.resharder().rebalance(id, &|| true) else {
        panic!("two of three are disconnected")
    };
    assert!(names.iter().all(|name| servers.contains(&format!("`{name}`"))), "{servers}");
}

/// While the returned flag is set, a node's responses about the states of its groups are lost.
fn silence(hub: &Hub, node: &Running) -> Arc<AtomicBool> {
    let is_silent = Arc::new(AtomicBool::new(false));
    let (server, says_nothing) = (node.server(), Arc::clone(&is_silent));
    hub.intercept(move |response| {
        let is_state = response.responder == server && response.kind == Some(STATES);
        (!is_state || !says_nothing.load(Ordering::Acquire)).then_some(response.bytes)
    });
    is_silent
}

#[test]
fn shards_too_small_to_be_rebalanced_have_the_same_replicas_as_before() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let (id, places) = table_on_two([&a, &b, &c]);
    wait_until("too few rows to reshard", || matches!(a.node.resharder().rebalance(id, &|| true), Ok(false)));
    wait_for_places(&a, id, &places);
}
