//! Secondary indexes of a single node: builds in steps, restarts, reshards, renames and drops.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod machine;

use std::ops::Bound;
use std::sync::Arc;

use datum::{Datum, PrimaryKey, Text};
use engine::{Batch, Direction, Space};
use log::Durability;
use machine::Machine;
use rekindle_cluster::{
    BuildStep, DesiredShards, IndexProgress, IndexWork, Node, Overwrite, TableChange, TableHandle,
    TableOptions,
};
use reql::StoredFunc;
use shard::{Bounds, Decision, IndexId, IndexKind, IndexQuery, RowOrder};
use storage::TableId;

/// The number of entries of all indexes.
fn entries(machine: &Machine) -> usize {
    let view = machine.engine.snapshot().unwrap();
    let mut scan = view.scan(Space::Index, (Bound::Unbounded, Bound::Unbounded), Direction::Ascending);
    let mut count = 0;
    while scan.next().unwrap().is_some() {
        count += 1;
    }
    count
}

fn table(node: &Node) -> Arc<TableHandle> {
    node.catalog().table("test", "t").unwrap().clone()
}

fn fill(node: &Node, rows: i32) {
    let table = table(node);
    for n in 0..rows {
        let id = Datum::from(format!("{n:08}"));
        let fields = [(Text::from_static("id"), id.clone()), (Text::from_static("a"), (n % 7).into())];
        let (key, row) = (PrimaryKey::encode(&id).unwrap(), fields.into_iter().collect());
        table
            .shard(&key)
            .local()
            .unwrap()
            .write_rows(vec![(key, Decision::Put(row))], Durability::Soft)
            .wait()
            .unwrap();
    }
}

fn create(node: &Node, name: &'static str) {
    let function = StoredFunc::parse(r#"[69,[[2,[1]],[170,[[10,[1]],"a"]]]]"#.into()).unwrap();
    node.indexes()
        .create_index(table(node).config.id, &Text::from_static(name), function, IndexKind::One)
        .unwrap();
}

fn build(node: &Arc<Node>) {
    let mut work = IndexWork::new(node.indexes(), node.clock().clone());
    while work.step() != BuildStep::Nothing {}
}

fn progress(node: &Node, name: &str) -> IndexProgress {
    let table = table(node);
    table.index_progress(table.config.indexes.find(name).unwrap().id)
}

/// The number of rows with `a` = 3, read from an index.
fn threes(node: &Node, name: &str) -> u64 {
    let table = table(node);
    let index = table.config.indexes.find(name).unwrap().id;
    let wanted = [(Bounds::one(3.into()), 1)].into();
    let query = IndexQuery::of(index, wanted, RowOrder::Any, 10);
    table
        .shards()
        .iter()
        .map(|shard| shard.local().unwrap().read_index(&query).unwrap().count().unwrap())
        .sum()
}

#[test]
fn an_index_build_continues_and_survives_restarts() {
    let machine = Machine::new();
    let node = machine.open();
    node.schema()
        .create_table(
            "test",
            "t",
            TableOptions { shards: DesiredShards::count(2), ..TableOptions::default() },
        )
        .unwrap();
    fill(&node, 1400);
    create(&node, "a");
    assert!(matches!(progress(&node, "a"), IndexProgress::Under(_)));
    IndexWork::new(node.indexes(), node.clock().clone()).step();
    let table = table(&node);
    let index = table.config.indexes.find("a").unwrap().id;
    assert!(node.indexes().build_started(table.config.id, index).is_some());
    drop((table, node));

    let node = machine.open();
    let IndexProgress::Under(share) = progress(&node, "a") else { panic!("it cannot be ready yet") };
    assert!(share > 0.1 && share < 1.0, "the build continues after a restart: {share}");
    build(&node);
    assert_eq!(node.indexes().build_started(self::table(&node).config.id, index), None);
    assert_eq!(threes(&node, "a"), 200);
    drop(node);

    let node = machine.open();
    assert_eq!(progress(&node, "a"), IndexProgress::Ready);
    assert_eq!(threes(&node, "a"), 200);
}

#[test]
fn a_recovering_replica_does_not_count_as_an_index_build() {
    let machine = Machine::new();
    let node = machine.open();
    node.schema().create_table("test", "t", TableOptions::default()).unwrap();
    fill(&node, 700);
    create(&node, "a");
    assert!(matches!(progress(&node, "a"), IndexProgress::Under(_)));
    node.replicas().mark_recovering(table(&node).shards()[0].group());
    assert_eq!(progress(&node, "a"), IndexProgress::Ready);
}

#[test]
fn a_reshard_keeps_index_entries() {
    let machine = Machine::new();
    let node = machine.open();
    node.schema().create_table("test", "t", TableOptions::default()).unwrap();
    fill(&node, 700);
    create(&node, "a");
    build(&node);
    let change = TableChange { shards: Some(DesiredShards::count(3)), ..TableChange::default() };
    node.resharder().change_table(table(&node).config.id, &change).unwrap();
    assert_eq!(progress(&node, "a"), IndexProgress::Ready);
    assert_eq!(threes(&node, "a"), 100);
    fill(&node, 1400);
    assert_eq!(threes(&node, "a"), 200);
}

#[test]
fn a_dropped_index_leaves_no_entries() {
    let machine = Machine::new();
    let node = machine.open();
    node.schema().create_table("test", "t", TableOptions::default()).unwrap();
    fill(&node, 50);
    for name in ["a", "b", "c"] {
        create(&node, name);
    }
    build(&node);
    assert_eq!(entries(&machine), 150);
    let id = table(&node).config.id;
    node.indexes().drop_index(id, &"a".into()).unwrap();
    assert_eq!(entries(&machine), 100);
    node.indexes().rename_index(id, &"b".into(), &"c".into(), Overwrite::Yes).unwrap();
    assert_eq!(entries(&machine), 50);
    assert_eq!(threes(&node, "c"), 7);
    create(&node, "d");
    build(&node);
    let numbers: Vec<IndexId> = table(&node).config.indexes.all().iter().map(|index| index.id).collect();
    assert_eq!(numbers, [IndexId(2), IndexId(4)], "ids are not reused");
}

#[test]
fn an_interrupted_index_drop_is_completed_at_the_next_start() {
    let machine = Machine::new();
    let node = machine.open();
    node.schema().create_table("test", "t", TableOptions::default()).unwrap();
    fill(&node, 50);
    create(&node, "a");
    build(&node);
    let id: TableId = table(&node).config.id;
    create(&node, "gone");
    let gone = table(&node).config.indexes.find("gone").unwrap().id;
    node.indexes().drop_index(id, &"gone".into()).unwrap();
    drop(node);
    // Entries of a dropped index, and of an index that the catalog does not list yet.
    let mut batch = Batch::new();
    for index in [gone, IndexId(gone.0 + 1)] {
        let key = [id.as_bytes(), &index.0.to_be_bytes()[..], b"key"].concat();
        batch.put(Space::Index, &key, bytes::Bytes::from_static(&[1, 0, 0]));
    }
    machine.engine.write(batch).unwrap();
    assert_eq!(entries(&machine), 52);
    let node = machine.open();
    assert_eq!(entries(&machine), 51);
    assert_eq!(threes(&node, "a"), 7);
}
