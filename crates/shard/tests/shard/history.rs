//! The history of a group, and what reads show of it.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use engine::memory::MemoryEngine;
use engine::{Batch, Engine, EngineError, EngineStats, PreFlushHook, Snapshot, Space};
use log::memory::{MemoryEntries, MemoryLog};
use log::{InitialConfig, Log};
use parking_lot::Mutex;
use rekindle_shard::{HistoryPosition, Replicas, Shard};

use crate::bed::{GROUP, TABLE, put, read};

type AfterWrite = Box<dyn FnOnce() + Send>;

/// An engine in memory that calls a function between its next write and the return of that write.
#[derive(Default)]
struct Hooked {
    memory: MemoryEngine,
    after_write: Mutex<Option<AfterWrite>>,
}

impl Engine for Hooked {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.memory.get(space, key)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        self.memory.snapshot()
    }

    fn write(&self, batch: Batch) -> Result<(), EngineError> {
        self.memory.write(batch)?;
        let after_write = self.after_write.lock().take();
        after_write.into_iter().for_each(|after_write| after_write());
        Ok(())
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.memory.flush()
    }

    fn set_pre_flush_hook(&self, hook: PreFlushHook) {
        self.memory.set_pre_flush_hook(hook);
    }

    fn stats(&self) -> EngineStats {
        self.memory.stats()
    }
}

#[test]
fn a_row_that_can_be_read_is_before_the_shown_end_of_the_history() {
    let engine = Arc::new(Hooked::default());
    let replicas = Replicas::with_row_cache(Arc::clone(&engine) as _, 1 << 20).unwrap();
    let log: Arc<dyn Log> = Arc::new(MemoryLog::open(MemoryEntries::default(), Arc::clone(&replicas) as _));
    let all = datum::KeyRange::all();
    let shard = Shard::open(&replicas, log, TABLE, GROUP, all, InitialConfig::Single).unwrap();
    assert_eq!(shard.shown_history_end().unwrap(), None, "the history is off");
    shard.switch_history_on().wait().unwrap();
    let before = shard.shown_history_end().unwrap();
    assert_eq!(before, shard.history_end());

    let (sender, receiver) = mpsc::channel::<(Option<f64>, Option<HistoryPosition>)>();
    let reader = Arc::clone(&shard);
    let look = move || {
        let seen = (read(&reader, "a"), reader.shown_history_end().unwrap());
        sender.send(seen).unwrap();
    };
    *engine.after_write.lock() = Some(Box::new(look));
    put(&shard, "a", 1.0).1.wait().unwrap();

    let (row, shown) = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(row, Some(1.0), "reads show the row before its entry counts as applied");
    assert!(shown > before);
    assert_eq!(shown, shard.history_end(), "the position of the row's entry");
}
