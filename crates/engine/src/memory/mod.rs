//! An engine in memory, for tests and simulation. A simulated crash forgets everything since the last flush, so that a
//! shard's replay can be tested without a disk.

mod tree;
mod view;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use self::tree::Tree;
use self::view::MemorySnapshot;
use crate::pre_flush::Hook;
use crate::row_rewriter::{Occasion, RewriterCell};
use crate::{
    Batch, DamagedFiles, Engine, EngineError, EngineStats, MemoryStats, PreFlushHook, RowRewriter, ScanRange,
    Snapshot, Space,
};

/// Sorted maps behind one lock, with the versions that live snapshots need.
#[derive(Clone, Default)]
pub struct MemoryEngine {
    tree: Arc<RwLock<Tree>>,
    hook: Arc<Hook>,
    rewriter: Arc<RewriterCell>,
    damage: Arc<DamagedFiles>,
}

impl MemoryEngine {
    /// An empty engine.
    #[must_use]
    pub fn new() -> Self {
        MemoryEngine::default()
    }

    /// The state after a power loss and restart: that of the last flush, in a new engine without hooks.
    #[must_use]
    pub fn after_crash(&self) -> MemoryEngine {
        let survivor = self.tree.read().as_of_last_flush();
        MemoryEngine { tree: Arc::new(RwLock::new(survivor)), ..MemoryEngine::default() }
    }
}

impl Engine for MemoryEngine {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(self.tree.read().newest(space, key))
    }

    fn get_durable(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(self.tree.read().durable(space, key))
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        Ok(Arc::new(MemorySnapshot::new(Arc::clone(&self.tree))))
    }

    fn write(&self, batch: Batch) -> Result<(), EngineError> {
        self.tree.write().apply(&batch);
        Ok(())
    }

    fn flush(&self) -> Result<(), EngineError> {
        // Changes written while the hook runs are not in this flush.
        let view = MemorySnapshot::new(Arc::clone(&self.tree));
        self.hook.run()?;
        self.tree.write().flush(view.moment());
        Ok(())
    }

    fn set_pre_flush_hook(&self, hook: PreFlushHook) {
        self.hook.set(hook);
    }

    fn damage(&self) -> Option<Arc<DamagedFiles>> {
        Some(Arc::clone(&self.damage))
    }

    fn set_rewriter(&self, rewriter: Option<Arc<dyn RowRewriter>>) {
        self.rewriter.set(rewriter);
    }

    fn compact(&self, space: Space, range: ScanRange<'_>) -> Result<(), EngineError> {
        if space != Space::Rows {
            return Ok(());
        }
        let rows: Vec<(Bytes, Bytes)> = self.tree.read().newest_pairs(space, range);
        for (key, value) in rows {
            if let Some(rewritten) = self.rewriter.rewrite(&key, &value, Occasion::Requested) {
                self.tree.write().rewrite(space, &key, &value, rewritten);
            }
        }
        Ok(())
    }

    fn stats(&self) -> EngineStats {
        let tree = self.tree.read();
        EngineStats {
            memory: MemoryStats { memtables: tree.bytes(), ..MemoryStats::default() },
            keys_estimate: tree.keys(),
            snapshots: tree.readers(),
            ..EngineStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(engine: &MemoryEngine, key: &'static [u8], value: &'static [u8]) {
        let mut batch = Batch::new();
        batch.put(Space::Rows, key, Bytes::from_static(value));
        engine.write(batch).unwrap();
    }

    #[test]
    fn a_crash_forgets_what_was_not_flushed() {
        let engine = MemoryEngine::new();
        put(&engine, b"kept", b"1");
        put(&engine, b"overwritten", b"old");
        engine.flush().unwrap();
        put(&engine, b"overwritten", b"new");
        put(&engine, b"lost", b"1");
        let survivor = engine.after_crash();
        let get = |key: &[u8]| survivor.get(Space::Rows, key).unwrap();
        assert_eq!(get(b"kept").unwrap(), "1");
        assert_eq!(get(b"overwritten").unwrap(), "old");
        assert_eq!(get(b"lost"), None);
    }

    #[test]
    fn rows_are_not_durable_before_the_hook_has_run_well() {
        let engine = MemoryEngine::new();
        let written_meanwhile = engine.clone();
        put(&engine, b"key", b"1");
        engine.set_pre_flush_hook(Arc::new(|| Err(std::io::Error::other("the log is not durable"))));
        engine.flush().unwrap_err();
        assert_eq!(engine.after_crash().get(Space::Rows, b"key").unwrap(), None);
        engine.set_pre_flush_hook(Arc::new(move || {
            put(&written_meanwhile, b"key", b"2");
            Ok(())
        }));
        engine.flush().unwrap();
        // A row that was written after the hook began is not made durable.
        assert_eq!(engine.after_crash().get(Space::Rows, b"key").unwrap().unwrap(), "1");
        assert_eq!(engine.get(Space::Rows, b"key").unwrap().unwrap(), "2");
    }

    #[test]
    fn versions_nobody_can_see_are_dropped() {
        let engine = MemoryEngine::new();
        put(&engine, b"key", b"first");
        let snapshot = engine.snapshot().unwrap();
        let mut batch = Batch::new();
        batch.delete(Space::Rows, b"key");
        engine.write(batch).unwrap();
        assert_eq!(snapshot.get(Space::Rows, b"key").unwrap().unwrap(), "first");
        assert_eq!(engine.stats().keys_estimate, 1);
        drop(snapshot);
        assert_eq!(engine.stats().keys_estimate, 0);
        assert_eq!(engine.stats().memory.memtables, 0);
    }
}
