//! An engine whose rows are compressed.

use std::sync::Arc;

use bytes::Bytes;
use engine::{
    Batch, DeletedKeys, Engine, EngineError, EngineStats, MemoryStats, PreFlushHook, RowRewriter, ScanRange,
    Snapshot, Space,
};

use super::background::Background;
use super::compressed_row::CorruptCompression;
use super::settling::{IsArchive, Settling};
use super::tables::{Compression, RowError, is_compressed, named};
use super::view::CompressedSnapshot;
use crate::history_value::HistoryCompression;

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

/// An engine that compresses the rows of another one, and the records of histories. All other pairs are passed on as they are,
/// and the records are read by [`HistoryRecord::read`](crate::HistoryRecord::read) alone.
///
/// Values in [`Space::Rows`] must be rows (docs/formats/row.md) under keys that begin with their table. A value under a
/// key that is too short for a table is passed on as it is.
pub struct CompressedEngine {
    compression: Arc<Compression>,
    settling: Arc<Settling>,
    background: Option<Background>,
    history: HistoryCompression,
}

/// Of the cache for blocks, dictionaries and samples get this share.
const CACHE_SHARE: usize = 8;
/// They get at least this much, up to half of the cache: a dictionary that does not fit is prepared again for each row.
const COMPRESSION_BYTES_LEAST: usize = 4 << 20;

impl CompressedEngine {
    /// Compresses the rows of `engine`. Trains dictionaries in the write that completes their sample, and settles rows
    /// only in [`CompressedEngine::settle`]: for tests and for the simulation.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, options: CompressionOptions) -> CompressedEngine {
        let CompressionOptions { memory_bytes, first_training_bytes } = options;
        let compression = Arc::new(Compression::new(engine, memory_bytes, first_training_bytes));
        compression.engine.set_rewriter(Some(Arc::clone(&compression) as Arc<dyn RowRewriter>));
        let settling = Arc::new(Settling::new(Arc::clone(&compression)));
        CompressedEngine { compression, settling, background: None, history: HistoryCompression::default() }
    }

    /// As [`CompressedEngine::new`], with a thread that trains dictionaries, so that no write waits for one, and a thread
    /// that settles the rows of tables to which little is being written. Fails if the system cannot start a thread.
    pub fn with_threads(
        engine: Arc<dyn Engine>,
        options: CompressionOptions,
    ) -> std::io::Result<CompressedEngine> {
        let mut engine = CompressedEngine::new(engine, options);
        engine.background = Some(Background::start(&engine.compression, &engine.settling)?);
        Ok(engine)
    }

    /// Sets the function that says which tables are archives; before, none is one. When this returns, no call of the
    /// earlier function is running.
    pub fn set_is_archive(&self, is_archive: IsArchive) {
        self.settling.set_is_archive(is_archive);
    }

    /// Compresses rows that have settled again: one dictionary, or one range of some megabytes, for each table. Returns
    /// whether there may be more to do.
    pub fn settle(&self) -> Result<bool, EngineError> {
        let mut is_more = false;
        for table in self.settling.tables()? {
            is_more |= self.settling.step(table, || self.inner().flush())?;
        }
        Ok(is_more)
    }

    /// Divides the memory for cached blocks: the part for blocks, and the part for dictionaries and samples.
    #[must_use]
    pub fn divide_cache(cache_bytes: usize) -> (usize, usize) {
        let compression = (cache_bytes / CACHE_SHARE).max(COMPRESSION_BYTES_LEAST.min(cache_bytes / 2));
        (cache_bytes - compression, compression)
    }

    fn inner(&self) -> &dyn Engine {
        &*self.compression.engine
    }

    /// The row in `stored`, the value of `key` a moment ago. `None` if it was deleted since.
    fn decode(&self, key: &[u8], stored: Bytes) -> Result<Option<Bytes>, EngineError> {
        self.decode_with(key, stored, |space, key| self.inner().get(space, key))
    }

    /// As `decode`, with `get` as the lookup in the engine.
    fn decode_with(
        &self,
        key: &[u8],
        stored: Bytes,
        get: impl Fn(Space, &[u8]) -> Result<Option<Bytes>, EngineError>,
    ) -> Result<Option<Bytes>, EngineError> {
        if !is_compressed(key, &stored) {
            return Ok(Some(stored));
        }
        let meta = |key: &[u8]| get(Space::Meta, key);
        match self.compression.decode(key, &stored, &meta) {
            Ok(row) => Ok(Some(row)),
            // The table may have been dropped with its dictionaries since the row was read.
            Err(RowError::Corrupt(CorruptCompression::NoDictionary { .. }))
                if get(Space::Rows, key)?.is_none() =>
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

    fn get_in_memory(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let get = |space, key: &[u8]| self.inner().get_in_memory(space, key);
        match get(space, key)? {
            Some(stored) if space == Space::Rows => self.decode_with(key, stored, get),
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

    fn get_durable(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        match self.inner().get_durable(space, key)? {
            Some(stored) if space == Space::Rows => self.decode(key, stored),
            value => Ok(value),
        }
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        Ok(self.view(self.inner().snapshot()?))
    }

    fn try_snapshot(&self) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        Ok(self.inner().try_snapshot()?.map(|view| self.view(view)))
    }

    fn write(&self, mut batch: Batch) -> Result<(), EngineError> {
        self.history.compress(&mut batch);
        for training in self.compression.write(batch)? {
            match &self.background {
                Some(background) => background.train(training),
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

    fn compact(&self, space: Space, range: ScanRange<'_>) -> Result<(), EngineError> {
        self.inner().compact(space, range)
    }

    fn cancel_compactions(&self) {
        self.inner().cancel_compactions();
    }

    fn reclaim(&self, space: Space, start: &[u8], end: &[u8], keys: DeletedKeys) {
        self.inner().reclaim(space, start, end, keys);
    }

    fn set_cache_bytes(&self, bytes: usize) {
        let (blocks, compression) = CompressedEngine::divide_cache(bytes);
        self.inner().set_cache_bytes(blocks);
        self.compression.set_memory_bytes(compression);
    }

    fn stats(&self) -> EngineStats {
        let compression = self.compression.stats();
        EngineStats { memory: self.memory(), compression, ..self.inner().stats() }
    }

    fn memory(&self) -> MemoryStats {
        let mut memory = self.inner().memory();
        memory.compression += self.compression.memory_bytes() as u64;
        memory
    }
}

impl Drop for CompressedEngine {
    fn drop(&mut self) {
        if let Some(background) = self.background.take() {
            background.stop();
            // The thread may wait for one.
            self.inner().cancel_compactions();
            background.join();
        }
        // The engine and its rewriter own each other until now.
        self.inner().set_rewriter(None);
    }
}
