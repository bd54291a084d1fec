//! A single node: databases, tables and rows, changed and read back after a restart over the same engine and log.

#![allow(clippy::unwrap_used)]

mod machine;

use datum::{Datum, Object, PrimaryKey, Text};
use log::Durability;
use machine::Machine;
use rekindle_cluster::{DbId, DesiredShards, Node, TableChange, TableOptions};
use shard::Decision;

fn row(n: i32) -> (PrimaryKey, Object) {
    let id = Datum::from(format!("{n:08x}"));
    let object = [(Text::from_static("id"), id.clone()), (Text::from_static("n"), n.into())];
    (PrimaryKey::encode(&id).unwrap(), object.into_iter().collect())
}

fn fill(node: &Node, rows: i32) {
    let catalog = node.catalog();
    let table = catalog.table("test", "t").unwrap();
    for n in 0..rows {
        let (key, object) = row(n * 0x0010_0000);
        table
            .shard(&key)
            .local()
            .unwrap()
            .write_rows(vec![(key, Decision::Put(object))], Durability::Soft)
            .wait()
            .unwrap();
    }
}

fn counts(node: &Node) -> Vec<u64> {
    let catalog = node.catalog();
    let table = catalog.table("test", "t").unwrap();
    table.shards().iter().map(|shard| shard.local().unwrap().snapshot().unwrap().count().unwrap()).collect()
}

#[test]
fn a_new_node_has_the_database_test_and_the_user_admin() {
    let machine = Machine::new();
    let node = machine.open();
    assert!(node.catalog().database("test").is_some());
    assert!(node.catalog().user("admin").is_some());
    let first = node.identity().clone();
    drop(node);
    assert_eq!(*machine.open().identity(), first);
}

#[test]
fn tables_and_rows_survive_a_restart() {
    let machine = Machine::new();
    let node = machine.open();
    let config = node.schema().create_table("test", "t", TableOptions::default()).unwrap();
    fill(&node, 20);
    drop(node);
    let node = machine.open();
    assert_eq!(node.catalog().table("test", "t").unwrap().config, config);
    assert_eq!(counts(&node), [20]);
}

#[test]
fn a_dropped_table_leaves_nothing_and_its_name_can_be_used_again() {
    let machine = Machine::new();
    let node = machine.open();
    node.schema().create_table("test", "t", TableOptions::default()).unwrap();
    fill(&node, 5);
    node.schema().drop_table("test", "t").unwrap();
    assert!(node.catalog().table("test", "t").is_none());
    node.schema().create_table("test", "t", TableOptions::default()).unwrap();
    assert_eq!(counts(&node), [0]);
    drop(node);
    assert_eq!(counts(&machine.open()), [0]);
}

#[test]
fn a_table_moves_to_another_database_with_its_rows() {
    let machine = Machine::new();
    let node = machine.open();
    let id = node.schema().create_table("test", "t", TableOptions::default()).unwrap().id;
    fill(&node, 5);
    let other = node.schema().create_db("other").unwrap();
    let home = node.catalog().database("test").unwrap().config.id;
    let to = |db, name: &str| TableChange { db: Some(db), name: Some(name.into()), ..TableChange::default() };
    node.schema().create_table("other", "taken", TableOptions::default()).unwrap();
    assert_eq!(
        node.resharder().change_table(id, &to(other.id, "taken")).unwrap_err().to_string(),
        "Can't rename table `test.t` to `other.taken` because table `other.taken` already exists."
    );
    assert!(node.resharder().change_table(id, &to(DbId(uuid::Uuid::nil()), "t")).is_err());
    assert_eq!(counts(&node), [5]);
    let (before, after) = node.resharder().change_table(id, &to(other.id, "u")).unwrap();
    assert_eq!((before.db, after.db, &*after.name), (home, other.id, "u"));
    assert_eq!(before.shards, after.shards);
    drop(node);
    let node = machine.open();
    assert!(node.catalog().table("test", "t").is_none());
    let moved = node.catalog().table("other", "u").unwrap().config.id;
    assert_eq!(moved, id);
    node.resharder().change_table(id, &to(home, "t")).unwrap();
    assert_eq!(counts(&node), [5]);
    // The drop of the other database does not affect the table, which has moved back.
    node.schema().drop_db("other").unwrap();
    assert_eq!(counts(&node), [5]);
}

#[test]
fn a_reshard_keeps_all_rows_and_spreads_them_evenly() {
    let machine = Machine::new();
    let node = machine.open();
    let id = node.schema().create_table("test", "t", TableOptions::default()).unwrap().id;
    fill(&node, 40);
    let (_, after) = node
        .resharder()
        .change_table(id, &TableChange { shards: Some(DesiredShards::count(4)), ..TableChange::default() })
        .unwrap();
    assert_eq!(after.shards.len(), 4);
    assert_eq!(counts(&node).iter().sum::<u64>(), 40);
    assert!(counts(&node).iter().all(|count| *count > 0), "{:?}", counts(&node));
    node.resharder()
        .change_table(id, &TableChange { shards: Some(DesiredShards::count(3)), ..TableChange::default() })
        .unwrap();
    assert!(counts(&node).iter().all(|count| *count > 8), "evenly: {:?}", counts(&node));
    fill(&node, 41);
    drop(node);
    let node = machine.open();
    assert_eq!(counts(&node).iter().sum::<u64>(), 41);
    let (_, after) = node
        .resharder()
        .change_table(id, &TableChange { shards: Some(DesiredShards::count(1)), ..TableChange::default() })
        .unwrap();
    assert_eq!(after.shards.len(), 1);
    assert_eq!(counts(&node), [41]);
}

#[test]
fn names_are_unique_and_missing_ones_are_named() {
    let node = Machine::new().open();
    node.schema().create_db("d").unwrap();
    assert_eq!(node.schema().create_db("d").unwrap_err().to_string(), "Database `d` already exists.");
    assert_eq!(node.schema().drop_db("e").unwrap_err().to_string(), "Database `e` does not exist.");
    node.schema().create_table("d", "t", TableOptions::default()).unwrap();
    let again = node.schema().create_table("d", "t", TableOptions::default());
    assert_eq!(again.unwrap_err().to_string(), "Table `d.t` already exists.");
    let (_, tables) = node.schema().drop_db("d").unwrap();
    assert_eq!(tables.len(), 1);
}

#[test]
fn a_server_row_that_could_not_be_read_back_is_refused() {
    let machine = Machine::new();
    let node = machine.open();
    let own = node.identity().server;
    let size = |node: &Node, mb| node.servers().change_server(own, &Text::from_static("here"), &[], mb);
    for mb in [1 << 53, 1_000_000_000_000_000_000, u64::MAX] {
        let refused = size(&node, Some(mb)).unwrap_err().to_string();
        assert!(refused.contains("is not a count"), "{refused}");
    }
    size(&node, Some(4096)).unwrap();
    node.schema().create_db("d").unwrap();
    drop(node);
    let node = machine.open();
    assert_eq!(node.catalog().server(own).unwrap().cache_size_mb, Some(4096));
    assert!(node.catalog().database("d").is_some());
}

#[test]
fn rows_of_an_unknown_table_are_deleted_at_the_start() {
    let machine = Machine::new();
    let stray = storage::TableId::from_uuid(uuid::Uuid::from_u128(42));
    drop(machine.open());
    let mut batch = engine::Batch::new();
    let key = [stray.as_bytes(), &b"key"[..]].concat();
    batch.put(engine::Space::Rows, &key, datum::Bytes::from_static(b"row"));
    machine.engine.write(batch).unwrap();
    let present = || storage::tables_present(&machine.engine.snapshot().unwrap()).unwrap();
    assert!(present().contains(&stray));
    drop(machine.open());
    assert!(!present().contains(&stray));
}
