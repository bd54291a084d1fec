//! Which data a single node keeps and discards.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use datum::{Bytes, Datum, Object, PrimaryKey, Text};
use engine::memory::MemoryEngine;
use io::Files;
use io::sim::{SimClock, SimFiles, SimRandom};
use log::Durability;
use log::file::{FileLog, FileLogOptions};
use shard::{Decision, Replicas};

use super::*;
use crate::catalog::placement::places_of;
use crate::catalog::row::CatalogRow;
use crate::catalog::{Catalog, ShardPlacer, TableOptions};
use crate::config::CATALOG_GROUP;

fn open(engine: MemoryEngine, files: &Arc<dyn Files>) -> Arc<Node> {
    let replicas = Replicas::new(Arc::new(engine)).unwrap();
    let (clock, wiring) = (Arc::new(SimClock::new()), Wiring::new(replicas.clone()));
    let dir = PathBuf::from("data");
    let options = FileLogOptions {
        transport: wiring.transport.clone(),
        observer: wiring.leadership.clone(),
        ..FileLogOptions::default()
    };
    let log = FileLog::open(files.clone(), clock.clone(), &dir.join("log"), replicas.clone(), options);
    Node::open(NodeOptions {
        dir,
        server_name: Text::from_static("test"),
        server_tags: vec![Text::from_static("default")],
        replicas,
        log: Arc::new(log.unwrap()),
        wiring,
        cache_size_mb: None,
        addresses: Vec::new(),
        clock,
        files: files.clone(),
        random: Arc::new(SimRandom::new(7)),
        feed_retention: Duration::from_secs(3600),
        admin_password: (Object::default(), false),
    })
    .unwrap()
}

#[test]
fn rows_that_a_shard_applied_survive_a_crash_after_the_log_of_its_group_was_deleted() {
    let (engine, files) = (MemoryEngine::new(), Arc::new(SimFiles::new(7)));
    let files: Arc<dyn Files> = files;
    files.create_dir_all(&PathBuf::from("data")).unwrap();
    let node = open(engine.clone(), &files);
    let id = node.schema().create_table("test", "t", TableOptions::default()).unwrap().id;
    let shard = |node: &Node| node.catalog().table("test", "t").unwrap().shards()[0].clone();
    let handle = shard(&node);
    let key = PrimaryKey::encode(&Datum::from("kept")).unwrap();
    let row: Object = [(Text::from_static("id"), Datum::from("kept"))].into_iter().collect();
    let put = vec![(key.clone(), Decision::Put(row))];
    handle.local().unwrap().write_rows(put, Durability::Hard).wait().unwrap();
    let old = handle.group();
    drop(handle);
    // A new shard replaces the old one without a copy or a handover of its rows.
    let placer = ShardPlacer::new(node.identity.server, node.peers.clone(), Arc::default(), node.ids.clone());
    node.catalog
        .change(|catalog, draft| {
            let mut config = catalog.table_by_id(id).unwrap().config.clone();
            config.shards = placer.founded(draft, vec![Bytes::new()], &places_of(&config.shards));
            draft.put(CatalogRow::Table(config));
            Ok(())
        })
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while node.log().group_status(old).is_ok() {
        assert!(Instant::now() < deadline, "the old group was not removed");
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(node);
    let node = open(engine.after_crash(), &files);
    assert_ne!(shard(&node).group(), old);
    assert!(shard(&node).local().unwrap().get(&key).unwrap().is_some(), "an acknowledged row is lost");
}

#[test]
fn a_catalog_that_is_being_copied_is_not_acted_on() {
    let files: Arc<dyn Files> = Arc::new(SimFiles::new(7));
    files.create_dir_all(&PathBuf::from("data")).unwrap();
    let node = open(MemoryEngine::new(), &files);
    node.schema().create_table("test", "t", TableOptions::default()).unwrap();
    let group = node.catalog().table("test", "t").unwrap().shards()[0].group();
    // The state at the beginning of a copy: the old rows are deleted, and the copied ones have not arrived.
    node.replicas().mark_recovering(CATALOG_GROUP);
    shard::clear_rows(&node.shard_of(CATALOG_GROUP).unwrap(), &datum::KeyRange::all()).unwrap();
    node.publisher.publish().unwrap();
    assert!(node.catalog().table("test", "t").is_some(), "missing rows were treated as deleted ones");
    assert!(node.log().group_status(group).is_ok());
}

#[test]
fn a_replica_of_a_later_catalog_is_not_discarded_because_of_an_earlier_one() {
    let files: Arc<dyn Files> = Arc::new(SimFiles::new(7));
    files.create_dir_all(&PathBuf::from("data")).unwrap();
    let node = open(MemoryEngine::new(), &files);
    node.schema().create_table("test", "t", TableOptions::default()).unwrap();
    let group = node.catalog().table("test", "t").unwrap().shards()[0].group();
    // The state after a restart with an older catalog, which does not place the replica here.
    node.publisher.restart.set_caught_up(false);
    node.local.lock().get_mut(&group).unwrap().is_named = false;
    let without = Catalog::default();
    node.publisher.host.discard_strays(&without).unwrap();
    assert!(node.log().group_status(group).is_ok(), "the replica left its group");
    node.publisher.restart.set_caught_up(true);
    node.publisher.host.discard_strays(&without).unwrap();
    node.log().group_status(group).unwrap_err();
}
