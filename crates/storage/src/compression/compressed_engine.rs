//! An engine whose rows are compressed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use engine::{Batch, Engine, EngineError, EngineStats, PreFlushHook, Snapshot, Space};
use io::task::{self, Receiver, Sender, Thread};

use super::compressed_row::CorruptCompression;
use super::tables::{Compression, RowError, Training, is_compressed, named};
use super::view::CompressedSnapshot;

/// Limits of the compression in an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionOptions {
    /// Bytes of memory for dictionaries and for samples of rows.
    pub memory_bytes: usize,
    /// A table gets its first dictionary when this many bytes of rows were written to it.
    pub first_training_bytes: u64,
}

impl Default for CompressionOptions {
    fn default() -> Self {
        CompressionOptions { memory_bytes: 16 << 20, first_training_bytes: 256 << 10 }
    }
}

/// An engine that compresses the rows of another one. All other pairs are passed on as they are.
///
/// Values in [`Space::Rows`] must be rows (docs/formats/row.md) under keys that begin with their table. A value under a
/// key that is too short for a table is passed on as it is.
pub struct CompressedEngine {
    compression: Arc<Compression>,
    trainer: Option<Trainer>,
}

/// The thread that trains dictionaries.
struct Trainer {
    trainings: Option<Sender<Training>>,
    stops: Arc<AtomicBool>,
    thread: Option<Thread>,
}

/// Of the cache for blocks, dictionaries and samples get this share.
const CACHE_SHARE: usize = 8;

impl CompressedEngine {
    /// Compresses the rows of `engine`. Trains dictionaries in the write that completes their sample: for tests and
    /// for the simulation.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, options: CompressionOptions) -> CompressedEngine {
        let CompressionOptions { memory_bytes, first_training_bytes } = options;
        let compression = Arc::new(Compression::new(engine, memory_bytes, first_training_bytes));
        CompressedEngine { compression, trainer: None }
    }

    /// As [`CompressedEngine::new`], with a thread that trains dictionaries, so that no write waits for one. Fails if
    /// the system cannot start a thread.
    pub fn with_training_thread(
        engine: Arc<dyn Engine>,
        options: CompressionOptions,
    ) -> std::io::Result<CompressedEngine> {
        let mut engine = CompressedEngine::new(engine, options);
        engine.trainer = Some(Trainer::start(&engine.compression)?);
        Ok(engine)
    }

    /// Divides the memory for cached blocks: the part for blocks, and the part for dictionaries and samples.
    #[must_use]
    pub fn divide_cache(cache_bytes: usize) -> (usize, usize) {
        let compression = cache_bytes / CACHE_SHARE;
        (cache_bytes - compression, compression)
    }

    fn inner(&self) -> &dyn Engine {
        &*self.compression.engine
    }

    /// The row in `stored`, the value of `key` a moment ago. `None` if it was deleted since. Fails with
    /// [`EngineError::Corrupt`], which names the row, if it or its dictionary is damaged.
    pub fn decode(&self, key: &[u8], stored: Bytes) -> Result<Option<Bytes>, EngineError> {
        if !is_compressed(key, &stored) {
            return Ok(Some(stored));
        }
        let meta = |key: &[u8]| self.inner().get(Space::Meta, key);
        match self.compression.decode(key, &stored, &meta) {
            Ok(row) => Ok(Some(row)),
            // The table may have been dropped with its dictionaries since the row was read.
            Err(RowError::Corrupt(CorruptCompression::NoDictionary { .. }))
                if self.inner().get(Space::Rows, key)?.is_none() =>
            {
                Ok(None)
            }
            Err(error) => Err(named(key, error)),
        }
    }

    fn view(&self, view: Arc<dyn Snapshot>) -> Arc<dyn Snapshot> {
        Arc::new(CompressedSnapshot { view, compression: Arc::clone(&self.compression) })
    }
}

impl Engine for CompressedEngine {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        match self.inner().get(space, key)? {
            Some(stored) if space == Space::Rows => self.decode(key, stored),
            value => Ok(value),
        }
    }

    fn get_many(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        let values = self.inner().get_many(space, keys)?;
        if space != Space::Rows {
            return Ok(values);
        }
        let decoded = |(key, stored): (&&[u8], Option<Bytes>)| match stored {
            Some(stored) => self.decode(key, stored),
            None => Ok(None),
        };
        keys.iter().zip(values).map(decoded).collect()
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        Ok(self.view(self.inner().snapshot()?))
    }

    fn try_snapshot(&self) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        Ok(self.inner().try_snapshot()?.map(|view| self.view(view)))
    }

    fn write(&self, batch: Batch) -> Result<(), EngineError> {
        for training in self.compression.write(batch)? {
            match &self.trainer {
                Some(trainer) => trainer.send(training),
                // The order of batches is enough: no later batch is durable without this one.
                None => self.compression.run(training, || Ok(())),
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.inner().flush()
    }

    fn set_pre_flush_hook(&self, hook: PreFlushHook) {
        self.inner().set_pre_flush_hook(hook);
    }

    fn set_cache_bytes(&self, bytes: usize) {
        let (blocks, compression) = CompressedEngine::divide_cache(bytes);
        self.inner().set_cache_bytes(blocks);
        self.compression.set_memory_bytes(compression);
    }

    fn stats(&self) -> EngineStats {
        let mut stats = self.inner().stats();
        stats.memory.compression += self.compression.memory_bytes() as u64;
        stats.compression = self.compression.stats();
        stats
    }
}

impl Trainer {
    fn start(compression: &Arc<Compression>) -> std::io::Result<Trainer> {
        let (sender, receiver) = task::channel();
        let (compression, stops) = (Arc::clone(compression), Arc::new(AtomicBool::new(false)));
        let stopping = Arc::clone(&stops);
        let thread = task::spawn("compression", move || run(&compression, &receiver, &stopping))?;
        Ok(Trainer { trainings: Some(sender), stops, thread: Some(thread) })
    }

    fn send(&self, training: Training) {
        if let Some(trainings) = &self.trainings {
            // The thread ends only when this sender is dropped.
            drop(trainings.send(training));
        }
    }
}

impl Drop for Trainer {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        self.trainings = None;
        self.thread.take().into_iter().for_each(Thread::join);
    }
}

fn run(compression: &Compression, trainings: &Receiver<Training>, stops: &AtomicBool) {
    while let Ok(training) = trainings.recv() {
        if stops.load(Relaxed) {
            return;
        }
        compression.run(training, || compression.engine.flush());
    }
}
