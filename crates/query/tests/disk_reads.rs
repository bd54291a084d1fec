//! Queries whose rows are on disk: they do not hold up others, and have the same results.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use datum::{Datum, PrimaryKey};
use engine::memory::MemoryEngine;
use engine::{Batch, Engine, EngineError, EngineStats, PreFlushHook, Snapshot, Space};
use parking_lot::{Condvar, Mutex};
use rekindle_query::PointAnswer;
use serde_json::{Map, Value, json};
use support::{Outcome, TestNode, block_on, query};

/// Some rows are on a disk that can be stopped.
#[derive(Clone, Default)]
struct Disk {
    rows: MemoryEngine,
    state: Arc<Mutex<DiskState>>,
    changed: Arc<Condvar>,
}

#[derive(Default)]
struct DiskState {
    /// The keys of the rows on disk; all others are in memory.
    keys: HashSet<Vec<u8>>,
    /// All rows with a key that ends in an even byte are on disk.
    has_even: bool,
    is_stopped: bool,
    reads: usize,
}

impl Disk {
    fn put(&self, keys: &[i32]) {
        self.state.lock().keys = keys.iter().map(|key| encoded(*key)).collect();
    }

    fn stop(&self, is_stopped: bool) {
        self.state.lock().is_stopped = is_stopped;
        self.changed.notify_all();
    }

    fn reads(&self) -> usize {
        self.state.lock().reads
    }

    fn has(&self, space: Space, key: &[u8]) -> bool {
        // Behind the id of the table. That of the catalog is zero.
        let (table, key) = key.split_at(key.len().min(16));
        let state = self.state.lock();
        let is_even = state.has_even && key.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) % 2 == 0;
        space == Space::Rows && table.iter().any(|byte| *byte != 0) && (is_even || state.keys.contains(key))
    }
}

fn encoded(key: i32) -> Vec<u8> {
    PrimaryKey::encode(&Datum::Number(f64::from(key))).unwrap().as_bytes().to_vec()
}

impl Engine for Disk {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        if self.has(space, key) {
            let mut state = self.state.lock();
            state.reads += 1;
            while state.is_stopped {
                self.changed.wait(&mut state);
            }
        }
        self.rows.get(space, key)
    }

    fn get_in_memory(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        if self.has(space, key) { Err(EngineError::NotInMemory) } else { self.rows.get(space, key) }
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        self.rows.snapshot()
    }

    fn write(&self, batch: Batch) -> Result<(), EngineError> {
        self.rows.write(batch)
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.rows.flush()
    }

    fn set_pre_flush_hook(&self, hook: PreFlushHook) {
        self.rows.set_pre_flush_hook(hook);
    }

    fn stats(&self) -> EngineStats {
        self.rows.stats()
    }
}

fn with_rows(test_node: TestNode) -> TestNode {
    test_node.run_slow_path(json!([60, ["t"]]), Map::new()).unwrap();
    let rows: Vec<Value> = (0..100).map(|id| json!({"id": id, "n": 0})).collect();
    test_node.run_slow_path(json!([56, [[15, ["t"]], [2, rows]]]), Map::new()).unwrap();
    test_node
}

fn get(key: i32) -> Value {
    json!([16, [[15, ["t"]], key]])
}

fn add(key: i32, n: i32) -> Value {
    let sum = json!([24, [[170, [[10, [1]], "n"]], n]]);
    json!([53, [get(key), [69, [[2, [1]], {"n": sum}]]]])
}

fn point(test_node: &TestNode, term: Value) -> PointAnswer {
    let answer = test_node.session("admin").point(&Arc::new(query(term, Map::new()).unwrap())).unwrap();
    test_node.service.flush();
    answer
}

fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

fn number(test_node: &TestNode, key: i32) -> f64 {
    match test_node.run("admin", json!([170, [get(key), "n"]]), Map::new()).unwrap() {
        Outcome::Atom(Datum::Number(n)) => n,
        _ => panic!("no number"),
    }
}

#[test]
fn a_read_that_waits_for_the_disk_holds_up_no_other_query() {
    for row_cache_bytes in [0, 16 << 20] {
        let disk = Disk::default();
        let test_node = with_rows(TestNode::with_engine(Arc::new(disk.clone()), row_cache_bytes));
        if row_cache_bytes > 0 {
            // Rows that were just written are cached.
            test_node.service.node().replicas().store().set_row_cache_bytes(0);
            test_node.service.node().replicas().store().set_row_cache_bytes(row_cache_bytes);
        }
        disk.put(&[1]);
        disk.stop(true);
        let PointAnswer::DiskRead(mut read) = point(&test_node, get(1)) else { panic!("not from disk") };
        let PointAnswer::Write(mut write) = point(&test_node, add(1, 5)) else { panic!("no write") };
        for other in 2..50 {
            assert!(matches!(point(&test_node, get(other)), PointAnswer::Read(Ok(Datum::Object(_)))));
            let PointAnswer::Write(write) = point(&test_node, add(other, 1)) else { panic!("no write") };
            block_on(write).unwrap();
        }
        assert!(is_pending(&mut read) && is_pending(&mut write));
        disk.stop(false);
        assert!(matches!(block_on(read), Ok(Datum::Object(_))));
        block_on(write).unwrap();
        assert_eq!((number(&test_node, 1), number(&test_node, 2)), (5.0, 1.0));
    }
}

#[test]
fn writes_of_a_row_on_disk_keep_their_order() {
    let disk = Disk::default();
    let test_node = with_rows(TestNode::with_engine(Arc::new(disk.clone()), 0));
    disk.put(&[1]);
    disk.stop(true);
    let set = |n: i32| json!([53, [get(1), {"n": n}]]);
    let PointAnswer::Write(first) = point(&test_node, set(10)) else { panic!("no write") };
    // The row is in memory from now on, but this write must not overtake the first one.
    disk.put(&[]);
    let PointAnswer::Write(mut second) = point(&test_node, add(1, 7)) else { panic!("no write") };
    let PointAnswer::Write(third) = point(&test_node, add(1, 100)) else { panic!("no write") };
    assert!(is_pending(&mut second));
    disk.stop(false);
    for write in [first, second, third] {
        block_on(write).unwrap();
    }
    assert_eq!(number(&test_node, 1), 117.0);
}

#[test]
fn an_insert_of_a_new_row_reads_nothing() {
    let disk = Disk::default();
    let test_node = with_rows(TestNode::with_engine(Arc::new(disk.clone()), 0));
    let reads = disk.reads();
    disk.stop(true);
    for id in 1000..1100 {
        let insert = json!([56, [[15, ["t"]], {"id": id, "n": 1}]]);
        let PointAnswer::Write(write) = point(&test_node, insert) else { panic!("no write") };
        block_on(write).unwrap();
    }
    assert_eq!(disk.reads(), reads);
}

#[test]
fn several_rows_are_read_together() {
    let disk = Disk::default();
    let test_node = with_rows(TestNode::with_engine(Arc::new(disk.clone()), 0));
    let keys: Vec<i32> = (0..20).map(|key| 3 * key).collect();
    let mut args = vec![json!([15, ["t"]])];
    args.extend(keys.iter().map(|key| json!(key)));
    let get_all = || json!([78, args]);
    let texts = |test_node: &TestNode| match test_node.run("admin", get_all(), Map::new()).unwrap() {
        Outcome::Stream(batches) => Datum::from(batches.concat()).to_json_string(),
        Outcome::Atom(_) => panic!("no stream"),
    };
    let in_memory = texts(&test_node);
    assert!(matches!(point(&test_node, get_all()), PointAnswer::Rows(_)));
    disk.put(&keys[2..]);
    assert!(matches!(point(&test_node, get_all()), PointAnswer::RowsOnDisk));
    let reads = disk.reads();
    assert_eq!(texts(&test_node), in_memory);
    assert_eq!(disk.reads() - reads, 18);
}

#[test]
fn rows_of_another_server_that_are_on_disk_hold_up_no_other_query() {
    let disk = Disk::default();
    let test_node = with_rows(TestNode::remote_with_engine(Arc::new(disk.clone())));
    disk.put(&[1]);
    disk.stop(true);
    let PointAnswer::RemoteRead(mut read) = point(&test_node, get(1)) else { panic!("not remote") };
    let PointAnswer::Write(mut write) = point(&test_node, add(1, 5)) else { panic!("no write") };
    for other in 2..50 {
        let PointAnswer::RemoteRead(read) = point(&test_node, get(other)) else { panic!("not remote") };
        assert!(matches!(block_on(read), Ok(Datum::Object(_))));
        let PointAnswer::Write(write) = point(&test_node, add(other, 1)) else { panic!("no write") };
        block_on(write).unwrap();
    }
    assert!(is_pending(&mut read) && is_pending(&mut write));
    disk.stop(false);
    assert!(matches!(block_on(read), Ok(Datum::Object(_))));
    block_on(write).unwrap();
    assert_eq!(number(&test_node, 1), 5.0);
}

#[test]
fn results_do_not_depend_on_where_the_rows_are() {
    let disk = Disk::default();
    let test_node = with_rows(TestNode::with_engine(Arc::new(disk.clone()), 1 << 20));
    let in_memory = with_rows(TestNode::new());
    disk.state.lock().has_even = true;
    let seed = 11_u64;
    println!("seed {seed}");
    let mut random = seed;
    for _ in 0..3000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (kind, key) = ((random >> 40) % 7, ((random >> 48) % 120) as i32);
        let term = match kind {
            0 | 1 => get(key),
            2 => add(key, 1),
            3 => json!([54, [get(key)]]),
            4 => json!([56, [[15, ["t"]], {"id": key, "n": kind}]]),
            5 => json!([56, [[15, ["t"]], {"id": key, "n": 7}], {"conflict": "update"}]),
            _ => json!([78, [[15, ["t"]], key, key + 1, key + 2, key + 40, key]]),
        };
        let [from_disk, expected] = [&test_node, &in_memory].map(|test_node| {
            match test_node.run("admin", term.clone(), Map::new()) {
                Ok(Outcome::Atom(datum)) => datum.to_json_string(),
                Ok(Outcome::Stream(batches)) => {
                    let mut rows: Vec<_> = batches.concat().iter().map(Datum::to_json_string).collect();
                    rows.sort();
                    rows.join(",")
                }
                Err(error) => format!("{error:?}"),
            }
        });
        assert_eq!(from_disk, expected, "{term}");
    }
    assert!(disk.reads() > 500, "{} reads", disk.reads());
}
