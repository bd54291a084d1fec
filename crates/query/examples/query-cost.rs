//! The cost of queries above the shard: point reads and writes, streams, map-reduce.
//!
//! `cargo run --release -p rekindle-query --example query-cost`

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::sync::Arc;

use cluster::ShardHandle;
use datum::{Datum, Object, PrimaryKey, Text};
use log::Durability;
use rekindle_query::{Answer, PointAnswer, Query};
use reql::Cancel;
use shard::{Decision, Shard};
use support::TestNode;

const ROWS: u64 = 50_000;

fn name(number: u64) -> String {
    format!("user{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn document(number: u64) -> Object {
    let field = |index: u64| {
        let text = format!("{:x}.", number.wrapping_mul(31).wrapping_add(index)).repeat(100);
        (Text::from(format!("field{index}")), Datum::from(&text[..100]))
    };
    let mut row: Object = (0..10).map(field).collect();
    let mut with_key = row.to_builder();
    with_key.insert(Text::from_static("id"), name(number).into());
    row = with_key.build();
    row
}

fn parsed(term: &str) -> Arc<Query> {
    Arc::new(Query::parse(format!("[1,{term},{{\"db\":[14,[\"test\"]]}}]").into()).expect("a query"))
}

/// The processor time of this thread, so that a busy machine does not distort the figures.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn measure(what: &str, operations: u64, mut work: impl FnMut()) {
    let start = cpu_ns();
    work();
    let each = (cpu_ns() - start) as f64 / operations as f64;
    println!("  {what:<56} {each:>8.0} ns");
}

fn fill(test_node: &TestNode) {
    test_node
        .service
        .node()
        .schema()
        .create_table("test", "t", cluster::TableOptions::default())
        .expect("a new table");
    let catalog = test_node.service.node().catalog();
    let table = catalog.table("test", "t").expect("the table");
    for start in (0..ROWS).step_by(100) {
        let rows = (start..start + 100).map(|n| {
            let key = PrimaryKey::encode(&name(n).into()).expect("text is a key");
            (key, Decision::Put(document(n)))
        });
        let rows: Vec<_> = rows.collect();
        near(&table.shards()[0]).write_rows(rows, Durability::Soft).wait().expect("written");
    }
}

/// The replica in this process, which is the only one.
fn near(shard: &ShardHandle) -> &Shard {
    shard.local().expect("a house has one node")
}

fn points(test_node: &TestNode) {
    let session = test_node.session("admin");
    let gets: Vec<Arc<Query>> =
        (0..ROWS).map(|n| parsed(&format!("[16,[[15,[\"t\"]],\"{}\"]]", name(n)))).collect();
    measure("wire::parse_query of a get", ROWS, || {
        (0..ROWS).for_each(|n| {
            black_box(parsed(&format!("[16,[[15,[\"t\"]],\"{}\"]]", name(n))));
        });
    });
    let catalog = test_node.service.node().catalog();
    let table = catalog.table("test", "t").expect("the table");
    let keys: Vec<_> = (0..ROWS).map(|n| PrimaryKey::encode(&name(n).into()).expect("a key")).collect();
    measure("shard.get", ROWS, || {
        for key in &keys {
            black_box(near(table.shard(key)).get(key)).expect("read");
        }
    });
    measure("Session::point get, shard.get included", ROWS, || {
        for query in &gets {
            let Some(PointAnswer::Read(answer)) = session.point(query) else { panic!("not the fast path") };
            black_box(answer).expect("read");
        }
    });
    let update = |n: u64| {
        let value = "x".repeat(100);
        parsed(&format!("[53,[[16,[[15,[\"t\"]],\"{}\"]],{{\"field3\":\"{value}\"}}]]", name(n)))
    };
    let updates: Vec<Arc<Query>> = (0..ROWS).map(update).collect();
    measure("shard.write of a row that is at hand", ROWS, || {
        for key in &keys {
            let decide = |old: Option<&Object>| {
                (old.map_or(Decision::Unchanged, |old| Decision::Put(old.clone())), ())
            };
            let (_, ticket) = near(table.shard(key)).write(key, Durability::Soft, decide).expect("proposed");
            ticket.wait().expect("written");
        }
    });
    measure("Session::point update, everything included", ROWS, || {
        for query in &updates {
            let Some(PointAnswer::Write(write)) = session.point(query) else { panic!("not the fast path") };
            support::block_on(write).expect("written");
        }
    });
}

/// Point queries with another service: both sides on this thread, without a link.
fn remote_points(test_node: &TestNode) {
    let session = test_node.session("admin");
    let gets: Vec<Arc<Query>> =
        (0..ROWS).map(|n| parsed(&format!("[16,[[15,[\"t\"]],\"{}\"]]", name(n)))).collect();
    measure("Session::point get, asked of another service", ROWS, || {
        for query in &gets {
            let Some(PointAnswer::RemoteRead(read)) = session.point(query) else { panic!("not remote") };
            test_node.service.flush();
            black_box(support::block_on(read)).expect("read");
        }
    });
    let value = "x".repeat(100);
    let update =
        |n: u64| parsed(&format!("[53,[[16,[[15,[\"t\"]],\"{}\"]],{{\"field3\":\"{value}\"}}]]", name(n)));
    let updates: Vec<Arc<Query>> = (0..ROWS).map(update).collect();
    measure("Session::point update, asked of another service", ROWS, || {
        for query in &updates {
            let Some(PointAnswer::Write(write)) = session.point(query) else { panic!("not the fast path") };
            test_node.service.flush();
            support::block_on(write).expect("written");
        }
    });
}

fn scans(test_node: &TestNode) {
    let session = test_node.session("admin");
    let stream = parsed("[15,[\"t\"]]");
    measure("a row of table, streamed", ROWS, || {
        let answer = session.run(&stream, Arc::new(Cancel::new())).expect("runs").answer;
        let Answer::Stream(mut cursor) = answer else { panic!("a stream") };
        while !black_box(cursor.next_batch()).expect("read").done {}
    });
    let sum =
        parsed("[145,[[38,[[15,[\"t\"]],[69,[[2,[1]],[43,[[149,[[170,[[10,[1]],\"field0\"]],\".\"]]]]]]]]]]");
    let start = std::time::Instant::now();
    session.run(&sum, Arc::new(Cancel::new())).expect("runs");
    let each = start.elapsed().as_nanos() as f64 / ROWS as f64;
    println!("  {:<56} {each:>8.0} ns", "a row of map(field0.split('.').count()).sum(), elapsed");
}

fn main() {
    let test_node = TestNode::new();
    println!("memory engine, memory log, {ROWS} rows of 1 KB");
    fill(&test_node);
    points(&test_node);
    scans(&test_node);
    let remote = TestNode::remote(None);
    println!("the same through requests to another service of the process");
    fill(&remote);
    remote_points(&remote);
    scans(&remote);
}
