//! Servers that are alive while their disk is full or hangs.

use std::path::Path;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use io::Files;
use io::sim::{Hang, SimFiles};
use log::{Durability, LogError};
use rekindle_cluster::{DesiredShards, Readiness, Route, TableOptions, readiness};
use shard::{Decision, WriteTicket};

use crate::fixture::{create, group, on, table, wait_for_voters};
use crate::hub::{Hub, Machine, Running, change, missing, row, stored, wait_until, write_until_done};

pub fn check_health(nodes: &[&Running]) {
    nodes.iter().for_each(|node| node.node.stall_monitor().check());
}

/// The disk of a server. Dropping it ends the fault, so that the server, which is dropped later, can end.
pub struct Disk(pub SimFiles);

impl std::ops::Deref for Disk {
    type Target = SimFiles;

    fn deref(&self) -> &SimFiles {
        &self.0
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.hang(None);
        self.fill(false);
    }
}

/// Three voters of the catalog, and the disk of the first.
pub fn three_and_a_disk(hub: &Arc<Hub>) -> ([Running; 3], Disk) {
    let files = SimFiles::new(7);
    files.create_dir_all(Path::new("data")).unwrap();
    let first = Machine { files: Arc::new(files.clone()), ..Machine::new("a") };
    let a = first.start(hub, None);
    let (b, c) = (Machine::new("b").start(hub, Some(&a)), Machine::new("c").start(hub, Some(&a)));
    wait_for_voters(&a, 3);
    ([a, b, c], Disk(files))
}

/// The readiness of a table, according to a node.
pub fn ready(node: &Running, table: &str) -> Readiness {
    wait_until("the table", || node.node.catalog().table("test", table).is_some());
    readiness(&node.node.states().table_state(node.node.catalog().table("test", table).unwrap()))
}

/// Begins to write a row into the only shard of a table, which the node leads.
pub fn write_on(node: &Running, table: &str, n: u32) -> WriteTicket {
    let shard = node.node.catalog().table("test", table).unwrap().shards()[0].local().unwrap().clone();
    let (key, object) = row(n);
    shard.write_rows(vec![(key, Decision::Put(object))], Durability::Hard)
}

#[test]
fn other_servers_lead_the_shards_of_a_server_with_a_full_disk_and_are_found() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    let nodes = [&a, &b, &c];
    create(&a, on(&[&[&a, &b, &c]]));
    a.wait_ready("t");
    write_until_done(&nodes, 0);
    let handle = |node: &Running| node.node.catalog().table("test", "t").unwrap().shards()[0].clone();
    wait_until("a leads", || matches!(handle(&a).leader(), Some(Route::Local(_))));

    files.fill(true);
    // The write waits until there is space.
    let late = write_on(&a, "t", 1);
    wait_until("the stall is noticed", || {
        check_health(&nodes);
        a.node.stall_monitor().own_stall().is_some()
    });
    wait_until("another leader", || {
        check_health(&nodes);
        [&b, &c].iter().any(|node| handle(node).local().is_some_and(|local| local.is_leader()))
    });
    wait_until("the reports on both", || {
        check_health(&nodes);
        b.node.stall_monitor().is_stalled(a.server()) && c.node.stall_monitor().is_stalled(a.server())
    });
    write_until_done(&[&b, &c], 2);
    let there = handle(&a);
    assert!(!matches!(there.leader(), Some(Route::Local(_))), "the replica on a is out of date");
    assert!(!there.has_leader_contact(), "its log receives nothing");
    wait_until("the leader named by others", || {
        a.node.leaders().find_leaders(&[&there]);
        matches!(there.leader(), Some(Route::Remote(_)))
    });
    // The catalog was led there, too.
    b.node.schema().create_db("meanwhile").unwrap();

    files.fill(false);
    wait_until("there is space again", || {
        check_health(&nodes);
        a.node.stall_monitor().own_stall().is_none() && !b.node.stall_monitor().is_stalled(a.server())
    });
    wait_until("contact of a with the leader", || handle(&a).has_leader_contact());
    a.wait_ready("t");
    wait_until("the latest catalog on a", || a.node.catalog().database("meanwhile").is_some());
    match late.wait() {
        Ok(_) => nodes.iter().for_each(|node| assert_eq!(missing(node, 3), [], "a completed write is lost")),
        Err(error) if error.is_definite() => {
            let (key, _) = row(1);
            for node in nodes {
                let local = handle(node).local().unwrap().clone();
                assert!(local.get(&key).unwrap().is_none(), "it was refused: {error}");
            }
        }
        Err(_) => {}
    }
    write_until_done(&nodes, 1);
    for node in nodes {
        assert_eq!(missing(node, 3), [], "an acknowledged row is lost");
    }
    // The replica on a is the primary one.
    wait_until("a leads again", || {
        check_health(&nodes);
        matches!(handle(&a).leader(), Some(Route::Local(_)))
    });
}

#[test]
fn a_table_only_on_a_server_with_a_full_or_hung_disk_takes_no_writes() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    create(&a, on(&[&[&a]]));
    a.wait_ready("t");
    write_until_done(&[&a], 0);
    for hangs in [false, true] {
        let stop = |is_stopped: bool| match hangs {
            true => files.hang(is_stopped.then_some(Hang::Everything)),
            false => files.fill(is_stopped),
        };
        assert!(ready(&a, "t").writes && ready(&b, "t").all_replicas);
        stop(true);
        let late = write_on(&a, "t", 1);
        wait_until("the stall is noticed", || {
            check_health(&[&a, &b, &c]);
            a.node.stall_monitor().own_stall().is_some()
        });
        for node in [&a, &b] {
            let begun = Instant::now();
            let readiness = ready(node, "t");
            let what = format!("{readiness:?}, hangs: {hangs}, after {:?}", begun.elapsed());
            assert!(readiness.reads && !readiness.writes && !readiness.all_replicas, "{what}");
            assert!(begun.elapsed() < Duration::from_millis(800), "{what}");
        }
        stop(false);
        late.wait().unwrap();
        wait_until("all is well", || {
            check_health(&[&a, &b, &c]);
            a.node.stall_monitor().own_stall().is_none() && ready(&b, "t").all_replicas
        });
    }
}

#[test]
fn the_only_voter_keeps_leading_although_the_catalog_wants_others() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    create(&a, on(&[&[&a]]));
    a.wait_ready("t");
    write_until_done(&[&a], 0);
    let (id, group) = (table(&a).config.id, table(&a).shards()[0].group());
    // The other replicas receive nothing and stay learners.
    [&b, &c].iter().for_each(|node| hub.drop_messages(node.server(), group));
    change(&a, id, on(&[&[&a, &b, &c]])).unwrap();
    wait_until("two learners", || a.node.log().group_status(group).unwrap().members.learners.len() == 2);
    files.fill(true);
    let late = write_on(&a, "t", 1);
    wait_until("the stall is noticed", || {
        check_health(&[&a, &b, &c]);
        a.node.stall_monitor().own_stall().is_some()
    });
    for _ in 0..20 {
        check_health(&[&a, &b, &c]);
        assert!(a.node.shard_of(group).unwrap().is_leader(), "no other server can lead it");
    }
    assert!(ready(&b, "t").reads);
    files.fill(false);
    late.wait().unwrap();
}

#[test]
fn an_fsync_that_hangs_is_reported_without_a_step_down() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    create(&a, on(&[&[&a, &b, &c]]));
    let options = TableOptions { shards: on(&[&[&a]]), ..TableOptions::default() };
    a.node.schema().create_table("test", "alone", options).unwrap();
    ["t", "alone"].iter().for_each(|table| a.wait_ready(table));
    files.hang(Some(Hang::Syncs));
    let late = write_on(&a, "alone", 1);
    wait_until("the stall is noticed", || {
        check_health(&[&a, &b, &c]);
        a.node.stall_monitor().hung_sync().is_some()
    });
    let hangs = a.node.clock().now().since(a.node.stall_monitor().hung_sync().unwrap());
    assert!(hangs >= Duration::from_secs(4), "{hangs:?}");
    assert!(a.node.stall_monitor().own_stall().is_none() && !b.node.stall_monitor().is_stalled(a.server()));
    write_on(&a, "t", 2).wait().unwrap();
    assert!(ready(&b, "t").writes, "two other servers have durable disks");
    assert!(ready(&b, "alone").reads && !ready(&b, "alone").writes);
    files.hang(None);
    late.wait().unwrap();
    wait_until("all is well", || {
        check_health(&[&a, &b, &c]);
        a.node.stall_monitor().hung_sync().is_none() && ready(&b, "alone").all_replicas
    });
}

#[test]
fn new_tables_go_to_servers_that_can_write() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    let nodes = [&a, &b, &c];
    let made = |name: &str, shards: DesiredShards| {
        let options = TableOptions { shards, ..TableOptions::default() };
        b.node.schema().create_table("test", name, options).unwrap().shards[0].primary
    };
    create(&a, on(&[&[&a]]));
    made("on_b", on(&[&[&b], &[&b]]));
    made("on_c", on(&[&[&c], &[&c]]));
    // The server with the fewest replicas is the one whose disk becomes full.
    assert_eq!(made("before", DesiredShards::count(1)), a.server());
    b.node.schema().drop_table("test", "before").unwrap();
    files.fill(true);
    let late = write_on(&a, "t", 1);
    wait_until("the reports on both", || {
        check_health(&nodes);
        b.node.stall_monitor().is_stalled(a.server()) && c.node.stall_monitor().is_stalled(a.server())
    });
    assert_ne!(made("meanwhile", DesiredShards::count(1)), a.server());
    assert_eq!(made("named", on(&[&[&a]])), a.server(), "a named server is used");
    files.fill(false);
    wait_until("there is space again", || {
        check_health(&nodes);
        !b.node.stall_monitor().is_stalled(a.server()) && !c.node.stall_monitor().is_stalled(a.server())
    });
    late.wait().unwrap();
    b.node.schema().drop_table("test", "named").unwrap();
    assert_eq!(made("after", DesiredShards::count(1)), a.server());
}

#[test]
fn the_data_of_a_removed_replica_is_kept_until_a_full_disk_has_space_for_its_tombstone() {
    let hub = Arc::new(Hub::default());
    let ([a, b, c], files) = three_and_a_disk(&hub);
    let nodes = [&a, &b, &c];
    create(&a, on(&[&[&b, &a, &c]]));
    a.wait_ready("t");
    write_until_done(&nodes, 0);
    assert_eq!(missing(&a, 1), []);
    let group = group(&a);
    // It learns of the removal only from the catalog, and the disk becomes full just before it discards the replica.
    hub.drop_messages(a.server(), group);
    let (disk, own, once) = (files.clone(), a.server(), Once::new());
    a.node.watch_catalog(Box::new(move |catalog| {
        let config = catalog.table("test", "t").map(|table| table.config.clone());
        let mut named = config
            .iter()
            .flat_map(|config| config.shards[0].replicas.iter().chain(&config.shards[0].leaving));
        if !named.any(|replica| replica.server == own) {
            once.call_once(|| disk.fill(true));
        }
    }));
    change(&b, table(&b).config.id, on(&[&[&b, &c]])).unwrap();
    wait_until("the replica is closed", || a.node.log().group_status(group).is_err());
    assert!(matches!(a.node.log().leave_group(group), Err(LogError::TombstonePending(_))));
    wait_until("the full disk is noticed", || {
        check_health(&nodes);
        a.node.stall_monitor().own_stall().is_some()
    });
    let position = || storage::Applied::read(&**a.node.engine(), group).unwrap();
    assert!(position().is_some(), "a power loss would bring the replica back without its rows");
    assert_eq!(stored(&a).len(), 1);

    files.fill(false);
    wait_until("deletion when there is space", || position().is_none() && stored(&a).is_empty());
    hub.deliver_messages();
    wait_until("a new replica on a", || {
        check_health(&nodes);
        change(&b, table(&b).config.id, on(&[&[&b, &c, &a]])).is_ok()
    });
    a.wait_ready("t");
    assert_eq!(missing(&a, 1), []);
}
