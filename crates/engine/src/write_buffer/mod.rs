//! A write buffer before an engine: collects small batches and writes them to the engine together. Of a key that is
//! written repeatedly only the last value reaches the engine, and keys arrive in order.
//!
//! [`Engine::get`] finds buffered changes. They are flushed to the engine before any snapshot is taken and before they
//! count as durable. After the engine has failed, a snapshot is possible again once the engine accepts the changes that
//! were buffered before the failure. Why: `docs/decisions/0031-write-buffer-before-the-engine.md`.

mod buffers;

use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use io::task::{self, Condvar, Thread};
use parking_lot::{Mutex, MutexGuard};

use self::buffers::{BufferedChanges, Buffers, hash_of};
use crate::{
    Batch, DeletedKeys, Engine, EngineError, EngineStats, MemoryStats, PreFlushHook, RowRewriter, ScanRange,
    Snapshot, Space,
};

/// A batch larger than `bytes_max` divided by this is not buffered but written directly.
const LARGE_BATCH_DIVISOR: usize = 16;

/// The most buffered bytes that [`Engine::try_snapshot`] flushes rather than return `None`.
const SNAPSHOT_FLUSH_BYTES_MAX: usize = 16 << 10;

/// An engine with a write buffer. Dropping it flushes the buffer.
pub struct BufferedEngine {
    shared: Arc<Shared>,
    writer: Option<Thread>,
}

struct Shared {
    engine: Arc<dyn Engine>,
    bytes_max: usize,
    hash: RandomState,
    buffers: Mutex<Buffers>,
    // Notified when a flush ends, a buffer is sealed, a direct write ends, or the writer thread must stop.
    changed: Condvar,
}

impl BufferedEngine {
    /// Buffers up to about `bytes_max` bytes for `engine`. The write that exceeds them flushes the buffer before it
    /// returns.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, bytes_max: usize) -> BufferedEngine {
        let shared = Shared {
            engine,
            bytes_max,
            hash: RandomState::default(),
            buffers: Mutex::default(),
            changed: Condvar::new(),
        };
        BufferedEngine { shared: Arc::new(shared), writer: None }
    }

    /// As [`BufferedEngine::new`], with a thread that flushes; meanwhile another `bytes_max` bytes can be buffered.
    /// Fails if the system cannot start a thread.
    pub fn with_writer_thread(engine: Arc<dyn Engine>, bytes_max: usize) -> std::io::Result<BufferedEngine> {
        let mut engine = BufferedEngine::new(engine, bytes_max);
        let shared = Arc::clone(&engine.shared);
        engine.writer = Some(task::spawn("engine-writer", move || shared.flush_until_stopped())?);
        Ok(engine)
    }
}

impl Shared {
    /// The buffered change of `key`: `None` if there is none, `Some(None)` if the key is deleted.
    fn find(&self, space: Space, key: &[u8]) -> Option<Option<Bytes>> {
        self.buffers.lock().find(hash_of(&self.hash, space, key), space, key)
    }

    /// Returns when the engine has everything that was buffered before this call. Retries a write that the engine
    /// refused earlier: the disk may have room by now.
    fn flush_to_engine(&self) -> Result<(), EngineError> {
        let mut buffers = self.buffers.lock();
        let target = buffers.last_generation();
        while buffers.flushed() < target {
            buffers = self.step(buffers)?;
        }
        Ok(())
    }

    /// One step of a flush: writes the buffer that is due, or waits until another thread has made progress.
    fn step<'a>(
        &'a self,
        mut buffers: MutexGuard<'a, Buffers>,
    ) -> Result<MutexGuard<'a, Buffers>, EngineError> {
        let Some(flushing) = buffers.start_flush() else {
            self.changed.wait(&mut buffers);
            return Ok(buffers);
        };
        drop(buffers);
        self.flush_changes(&flushing)?;
        // Frees thousands of values, so not under the lock.
        drop(flushing);
        Ok(self.buffers.lock())
    }

    /// Writes the sealed buffer to the engine. Only for the thread that got it from [`Buffers::start_flush`].
    fn flush_changes(&self, flushing: &BufferedChanges) -> Result<(), EngineError> {
        let _fail_on_panic = FailOnPanic(self);
        io::failpoint("engine.buffer.flush");
        let written = self.engine.write(flushing.in_key_order());
        io::failpoint("engine.buffer.flushed");
        let flushed = self.buffers.lock().end_flush(written);
        self.changed.notify_all();
        flushed
    }

    /// Writes a batch directly, after everything buffered before it. Other writers wait. Readers do not: by then
    /// everything earlier is in the engine.
    fn write_through(&self, batch: Batch) -> Result<(), EngineError> {
        // The longer part of the flush, while other threads may still write.
        self.buffers.lock().check()?;
        self.flush_to_engine()?;
        let mut buffers = self.buffers.lock();
        while !buffers.begin_write_through()? {
            buffers = self.step(buffers)?;
        }
        drop(buffers);
        let _guard = WriteThroughGuard(self);
        self.flush_to_engine()?;
        self.buffers.lock().check()?;
        let written = self.engine.write(batch);
        self.buffers.lock().record_failure(&written);
        written
    }

    fn flush_until_stopped(&self) {
        let mut buffers = self.buffers.lock();
        loop {
            if let Some(flushing) = buffers.take_pending_flush() {
                drop(buffers);
                // If it fails, the next write returns the error.
                drop(self.flush_changes(&flushing));
                // Frees thousands of values, so not under the lock.
                drop(flushing);
                buffers = self.buffers.lock();
            } else if buffers.is_stopped() {
                drop(buffers);
                // If it fails, the log replays the changes after a restart.
                return drop(self.flush_to_engine());
            } else {
                self.changed.wait(&mut buffers);
            }
        }
    }
}

fn panicked() -> EngineError {
    EngineError::Io { detail: "a write to the engine panicked".to_owned() }
}

/// Records a failure when a flush panics, so that no thread waits for it forever.
struct FailOnPanic<'a>(&'a Shared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic itself is reported; this error only unblocks the waiting threads.
            drop(self.0.buffers.lock().end_flush(Err(panicked())));
            self.0.changed.notify_all();
        }
    }
}

/// Blocks other writers during a direct write, until dropped.
struct WriteThroughGuard<'a>(&'a Shared);

impl Drop for WriteThroughGuard<'_> {
    fn drop(&mut self) {
        let mut buffers = self.0.buffers.lock();
        if std::thread::panicking() {
            buffers.record_failure(&Err(panicked()));
        }
        buffers.end_write_through();
        drop(buffers);
        self.0.changed.notify_all();
    }
}

impl Engine for BufferedEngine {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        match self.shared.find(space, key) {
            // Copied: a value may be a slice of something much larger.
            Some(known) => Ok(known.map(|value| Bytes::copy_from_slice(&value))),
            None => self.shared.engine.get(space, key),
        }
    }

    fn get_in_memory(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        match self.shared.find(space, key) {
            Some(known) => Ok(known.map(|value| Bytes::copy_from_slice(&value))),
            None => self.shared.engine.get_in_memory(space, key),
        }
    }

    fn get_many(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        // The buffers are read first: changes flushed in between are in the engine by then.
        let known: Vec<_> = keys.iter().map(|key| self.shared.find(space, key)).collect();
        let mut values = self.shared.engine.get_many(space, keys)?;
        for (value, known) in values.iter_mut().zip(known) {
            if let Some(known) = known {
                *value = known.map(|known| Bytes::copy_from_slice(&known));
            }
        }
        Ok(values)
    }

    fn get_durable(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.shared.engine.get_durable(space, key)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        self.shared.flush_to_engine()?;
        self.shared.engine.snapshot()
    }

    fn try_snapshot(&self) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        let buffers = self.shared.buffers.lock();
        if buffers.is_flushing() || buffers.bytes() > SNAPSHOT_FLUSH_BYTES_MAX {
            return Ok(None);
        }
        drop(buffers);
        self.shared.flush_to_engine()?;
        self.shared.engine.try_snapshot()
    }

    fn write(&self, batch: Batch) -> Result<(), EngineError> {
        let shared = &*self.shared;
        if batch.deletes_ranges() || batch.bytes() > shared.bytes_max / LARGE_BATCH_DIVISOR {
            return shared.write_through(batch);
        }
        let mut buffers = shared.buffers.lock();
        while !buffers.has_room(shared.bytes_max)? {
            buffers = shared.step(buffers)?;
        }
        buffers.add(&batch, &shared.hash);
        if buffers.bytes() <= shared.bytes_max || buffers.is_flushing() {
            return Ok(());
        }
        if self.writer.is_none() {
            drop(buffers);
            return shared.flush_to_engine();
        }
        buffers.seal_filling();
        shared.changed.notify_all();
        Ok(())
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.shared.flush_to_engine()?;
        self.shared.buffers.lock().check()?;
        self.shared.engine.flush()
    }

    fn set_pre_flush_hook(&self, hook: PreFlushHook) {
        // Buffered changes become durable only after they are in the engine, which calls the hook.
        self.shared.engine.set_pre_flush_hook(hook);
    }

    fn set_rewriter(&self, rewriter: Option<Arc<dyn RowRewriter>>) {
        self.shared.engine.set_rewriter(rewriter);
    }

    fn compact(&self, space: Space, range: ScanRange<'_>) -> Result<(), EngineError> {
        self.shared.flush_to_engine()?;
        self.shared.engine.compact(space, range)
    }

    fn cancel_compactions(&self) {
        self.shared.engine.cancel_compactions();
    }

    fn reclaim(&self, space: Space, start: &[u8], end: &[u8], keys: DeletedKeys) {
        // Deletions of ranges are never buffered.
        self.shared.engine.reclaim(space, start, end, keys);
    }

    fn set_cache_bytes(&self, bytes: usize) {
        self.shared.engine.set_cache_bytes(bytes);
    }

    fn stats(&self) -> EngineStats {
        EngineStats { memory: self.memory(), ..self.shared.engine.stats() }
    }

    fn memory(&self) -> MemoryStats {
        let mut memory = self.shared.engine.memory();
        memory.memtables += self.shared.buffers.lock().total_bytes() as u64;
        memory
    }
}

impl Drop for BufferedEngine {
    fn drop(&mut self) {
        let Some(writer) = self.writer.take() else {
            // If it fails, the log replays the changes after a restart.
            return drop(self.shared.flush_to_engine());
        };
        self.shared.buffers.lock().stop();
        self.shared.changed.notify_all();
        writer.join();
    }
}
