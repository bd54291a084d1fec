//! A slow engine does not delay unrelated work.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::memory::MemoryEngine;
use engine::{
    Batch, Direction, Engine, EngineError, EngineStats, PreFlushHook, Scan, ScanRange, Snapshot, Space,
};
use rekindle_cluster::{DesiredShards, ShardPlaces, TableChange, TableOptions};

use crate::hub::{Hub, Machine, TEST_TIMEOUT, missing, wait_until, write_until_done};

/// While the flag is set, scans of rows of tables wait. Counts those scans.
#[derive(Clone, Default)]
struct Halt(Arc<parking_lot::Mutex<bool>>, Arc<AtomicU64>);

struct Slow(MemoryEngine, Halt);
struct SlowView(Arc<dyn Snapshot>, Halt);

impl Engine for Slow {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.0.get(space, key)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        Ok(Arc::new(SlowView(self.0.snapshot()?, self.1.clone())))
    }

    fn write(&self, batch: Batch) -> Result<(), EngineError> {
        self.0.write(batch)
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.0.flush()
    }

    fn set_pre_flush_hook(&self, hook: PreFlushHook) {
        self.0.set_pre_flush_hook(hook);
    }

    fn stats(&self) -> EngineStats {
        self.0.stats()
    }
}

impl Snapshot for SlowView {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.0.get(space, key)
    }

    fn scan(self: Arc<Self>, space: Space, range: ScanRange<'_>, direction: Direction) -> Box<dyn Scan> {
        let start = match range.0 {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        // The table id of the catalog's rows is all zeros.
        if space == Space::Rows && start.iter().take(16).any(|byte| *byte != 0) && *self.1.0.lock() {
            self.1.1.fetch_add(1, Ordering::AcqRel);
            let deadline = Instant::now() + TEST_TIMEOUT;
            while *self.1.0.lock() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Arc::clone(&self.0).scan(space, range, direction)
    }

    fn split_points(
        &self,
        space: Space,
        range: ScanRange<'_>,
        parts: usize,
    ) -> Result<Vec<Bytes>, EngineError> {
        self.0.split_points(space, range, parts)
    }

    fn bytes_in(&self, space: Space, range: ScanRange<'_>) -> Result<u64, EngineError> {
        self.0.bytes_in(space, range)
    }
}

#[test]
fn other_tables_do_not_wait_while_the_rows_of_a_new_shard_are_counted() {
    let (hub, halt) = (Arc::new(Hub::default()), Halt::default());
    let slow = Slow(MemoryEngine::new(), halt.clone());
    let machine = Machine { engine: Arc::new(slow), ..Machine::new("a") };
    let a = machine.start(&hub, None);
    let here = ShardPlaces { primary: a.server(), replicas: vec![(a.server(), true)] };
    let named = |shards: usize| DesiredShards::Named(vec![here.clone(); shards]);
    let options = TableOptions { shards: named(1), ..TableOptions::default() };
    let table = a.node.schema().create_table("test", "t", options.clone()).unwrap().id;
    a.node.schema().create_table("test", "other", options).unwrap();
    (0..40).for_each(|n| write_until_done(&[&a], n));
    let other = a.node.catalog().table("test", "other").unwrap().shards()[0].group();
    std::thread::scope(|threads| {
        let node = &a.node;
        *halt.0.lock() = true;
        let change = TableChange { shards: Some(named(2)), ..TableChange::default() };
        let divided = threads.spawn(move || node.resharder().change_table(table, &change));
        wait_until("the count of rows", || halt.1.load(Ordering::Acquire) > 0);
        let begun = Instant::now();
        let found = threads.spawn(move || node.shard_of(other).is_some());
        while !found.is_finished() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let waits = !found.is_finished();
        *halt.0.lock() = false;
        assert!(!waits, "another table waits for the count");
        divided.join().unwrap().unwrap();
    });
    assert_eq!(missing(&a, 40), []);
}
