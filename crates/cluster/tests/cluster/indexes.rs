//! Indexes of a table with several replicas, one of which learns of them late.

use std::sync::Arc;

use datum::Text;
use log::GroupId;
use rekindle_cluster::{BuildStep, IndexWork, TableChange, TableOptions};
use reql::StoredFunc;
use shard::{Bounds, IndexBuild, IndexId, IndexKind, IndexQuery, RowOrder, Shard};

use crate::fixture::{on, three};
use crate::hub::{Hub, Running, missing, wait_until, write_until_done};

const ROWS: u32 = 60;

/// The replica of the only shard of table "t" on a node.
fn shard(node: &Running) -> Arc<Shard> {
    let catalog = node.node.catalog();
    Arc::clone(catalog.table("test", "t").unwrap().shards()[0].local().unwrap())
}

/// Creates an index of the primary key.
fn create(node: &Running, name: &'static str) -> IndexId {
    let function = StoredFunc::parse(r#"[69,[[2,[1]],[170,[[10,[1]],"id"]]]]"#.into()).unwrap();
    let id = node.node.catalog().table("test", "t").unwrap().config.id;
    node.node.indexes().create_index(id, &Text::from_static(name), function, IndexKind::One).unwrap();
    index(node, name).unwrap()
}

fn index(node: &Running, name: &str) -> Option<IndexId> {
    node.node.catalog().table("test", "t")?.config.indexes.find(name).map(|index| index.id)
}

/// Builds the indexes of the shards that a node leads.
fn build(node: &Running) {
    let mut work = IndexWork::new(node.node.indexes(), node.node.clock().clone());
    while work.step() != BuildStep::Nothing {}
}

/// The rows that a node finds by an index.
fn found(node: &Running, index: IndexId) -> u64 {
    let query = IndexQuery::of(index, [(Bounds::all(), 1)].into(), RowOrder::Any, 10);
    shard(node).read_index(&query).unwrap().count().unwrap()
}

#[test]
fn the_entries_of_an_index_that_arrive_before_the_catalog_are_kept() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, c]) = three(&hub);
    let options = TableOptions { shards: on(&[&[&a, &b, &c]]), ..TableOptions::default() };
    a.node.schema().create_table("test", "t", options).unwrap();
    a.wait_ready("t");
    (0..ROWS).for_each(|n| write_until_done(&[&a], n));
    hub.drop_messages(c.server(), GroupId(0));
    let of_a = create(&a, "x");
    build(&a);
    wait_until("the entries", || shard(&c).index_build(of_a) == IndexBuild::Ready);
    assert_eq!(index(&c, "x"), None, "its catalog does not have the index yet");
    c.node.sweep_left_behind().unwrap();
    hub.deliver_messages();
    wait_until("the index", || index(&c, "x").is_some());
    assert_eq!([&a, &b, &c].map(|node| found(node, of_a)), [u64::from(ROWS); 3]);
}

#[test]
fn an_index_that_was_dropped_during_its_build_does_not_prevent_a_copy() {
    let hub = Arc::new(Hub::default());
    let (_machines, [a, b, _c]) = three(&hub);
    let options = TableOptions { shards: on(&[&[&a]]), ..TableOptions::default() };
    let table = a.node.schema().create_table("test", "t", options).unwrap().id;
    a.wait_ready("t");
    (0..ROWS).for_each(|n| write_until_done(&[&a], n));
    let (gone, stays) = (create(&a, "gone"), create(&a, "stays"));
    build(&a);
    a.node.indexes().drop_index(table, &Text::from_static("gone")).unwrap();
    // This entry was on its way to the log when the index was dropped.
    shard(&a).set_built(gone).wait().unwrap();
    let change = TableChange { shards: Some(on(&[&[&a, &b]])), ..TableChange::default() };
    a.node.resharder().change_table(table, &change).unwrap();
    b.wait_ready("t");
    assert_eq!(missing(&b, ROWS), []);
    assert_eq!(found(&b, stays), u64::from(ROWS));
    let noted = |node: &Running| shard(node).builds().unwrap().into_iter().map(|(index, _)| index);
    assert_eq!(noted(&a).collect::<Vec<_>>(), [gone, stays]);
    assert_eq!(noted(&b).collect::<Vec<_>>(), [stays]);
    a.node.sweep_left_behind().unwrap();
    assert_eq!(noted(&a).collect::<Vec<_>>(), [stays], "swept away");
}
