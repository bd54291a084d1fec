//! The engine on disk: RocksDB without its own log, one instance per data directory.
//!
//! Why RocksDB, and the reasons for its options: `docs/decisions/0003-rocksdb-engine.md`. One of the two places where
//! `unsafe` is allowed; each use states its invariant.
#![allow(unsafe_code, reason = "the C interface of RocksDB")]

mod bounds;
mod flushes;
mod history;
mod options;
mod reclaim;
mod rewriting;
mod split_points;
mod stats;
mod view;

pub use options::EngineOptions;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocksdb::{
    Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBPinnableSlice, ReadOptions, ReadTier, WriteBatch,
    WriteOptions,
};

use self::flushes::WrittenBytes;
use self::reclaim::{DeletedRange, Reclaimer};
use self::view::{RocksSnapshot, Tier};
use crate::pre_flush::Hook;
use crate::row_rewriter::RewriterCell;
use crate::{
    Batch, Change, DeletedKeys, Engine, EngineError, EngineStats, MemoryStats, PreFlushHook, RowRewriter,
    ScanRange, Snapshot, Space,
};

/// An open RocksDB directory. Dropping it flushes and closes.
pub struct RocksEngine {
    // Dropped first: its thread uses the database.
    reclaimer: Reclaimer,
    db: Arc<DB>,
    cache: Cache,
    read: ReadOptions,
    // For reads that must not wait for the disk.
    read_in_memory: ReadOptions,
    hook: Arc<Hook>,
    rewriter: Arc<RewriterCell>,
    written: Arc<WrittenBytes>,
    history_bytes_max: u64,
}

impl RocksEngine {
    /// Opens the engine in `dir`, creating it if there is none.
    ///
    /// Fails with [`EngineError::Locked`] if another process has it open and with
    /// [`EngineError::Corrupt`] if its files contradict each other.
    pub fn open(dir: &Path, options: &EngineOptions) -> Result<RocksEngine, EngineError> {
        let cache = options::block_cache(options);
        let rewriter = Arc::<RewriterCell>::default();
        let spaces = Space::ALL.map(|space| {
            let mut column = options::for_space(space, options, &cache);
            if space == Space::Rows {
                rewriting::filter(&mut column, Arc::clone(&rewriter));
            }
            ColumnFamilyDescriptor::new(space.name(), column)
        });
        let hook = Arc::<Hook>::default();
        let mut database = options::for_database(options);
        let written = Arc::<WrittenBytes>::default();
        flushes::listen(&mut database, Arc::clone(&hook), Arc::clone(&written));
        let db = DB::open_cf_descriptors(&database, dir, spaces).map_err(|error| open_error(dir, error))?;
        let history_bytes_max = options.history_bytes_max;
        let (read, mut read_in_memory) = (ReadOptions::default(), ReadOptions::default());
        read_in_memory.set_read_tier(ReadTier::BlockCache);
        let db = Arc::new(db);
        let reclaimer = Reclaimer::start(&db, Arc::clone(&hook))
            .map_err(|cause| EngineError::Io { detail: format!("cannot start a thread: {cause}") })?;
        Ok(RocksEngine {
            reclaimer,
            db,
            cache,
            read,
            read_in_memory,
            hook,
            rewriter,
            written,
            history_bytes_max,
        })
    }

    /// Deletes the files of [`Space::History`] that were completed more than `age` ago. Reads nothing. May wait for work in the
    /// background. Must not be called by two threads at once.
    pub fn delete_old_history(&self, age: Duration) -> Result<(), EngineError> {
        history::delete_older(&self.db, age, self.history_bytes_max)
    }
}

impl Engine for RocksEngine {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self.db.get_pinned_cf_opt(column(&self.db, space), key, &self.read)?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn get_in_memory(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self.db.get_pinned_cf_opt(column(&self.db, space), key, &self.read_in_memory)?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn get_many(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        let ascending = keys.is_sorted();
        let column = column(&self.db, space);
        let found = self.db.batched_multi_get_cf_opt(column, keys.iter().copied(), ascending, &self.read);
        let copied = |value: DBPinnableSlice<'_>| Bytes::copy_from_slice(&value);
        found.into_iter().map(|value| Ok(value?.map(copied))).collect()
    }

    fn get_durable(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        // All spaces are flushed together, so this is never older or newer in one space than in another.
        let mut read = ReadOptions::default();
        read.set_read_tier(ReadTier::Persisted);
        let found = self.db.get_pinned_cf_opt(column(&self.db, space), key, &read)?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        Ok(Arc::new(RocksSnapshot::new(Arc::clone(&self.db), Tier::Disk)))
    }

    fn try_snapshot(&self) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        Ok(Some(Arc::new(RocksSnapshot::new(Arc::clone(&self.db), Tier::Memory))))
    }

    fn write(&self, batch: Batch) -> Result<(), EngineError> {
        let columns = Space::ALL.map(|space| column(&self.db, space));
        // Twelve bytes of header, and for each change a tag, the column and two lengths.
        let mut writes = WriteBatch::with_capacity_bytes(12 + batch.bytes() + 12 * batch.len());
        for change in batch.changes() {
            match change {
                Change::Put { space, key, value } => writes.put_cf(columns[space as usize], key, value),
                Change::Delete { space, key } => writes.delete_cf(columns[space as usize], key),
                Change::DeleteRange { space, start, end } => {
                    writes.delete_range_cf(columns[space as usize], start, end);
                }
            }
        }
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        Ok(self.db.write_opt(writes, &options)?)
    }

    fn flush(&self) -> Result<(), EngineError> {
        flushes::flush(&self.db, &self.hook)
    }

    fn set_pre_flush_hook(&self, hook: PreFlushHook) {
        self.hook.set(hook);
    }

    fn set_rewriter(&self, rewriter: Option<Arc<dyn RowRewriter>>) {
        self.rewriter.set(rewriter);
    }

    fn compact(&self, space: Space, range: ScanRange<'_>) -> Result<(), EngineError> {
        rewriting::compact(&self.db, space, range);
        Ok(())
    }

    fn cancel_compactions(&self) {
        rewriting::cancel(&self.db);
    }

    fn reclaim(&self, space: Space, start: &[u8], end: &[u8], keys: DeletedKeys) {
        let (start, end) = (start.to_vec(), end.to_vec());
        let deleted_at = self.db.latest_sequence_number();
        self.reclaimer.add(DeletedRange { space, start, end, keys, deleted_at });
    }

    fn set_cache_bytes(&self, bytes: usize) {
        // The clone is a handle to the same cache.
        self.cache.clone().set_capacity(bytes);
    }

    fn stats(&self) -> EngineStats {
        stats::collect(&self.db, &self.cache, &self.written)
    }

    fn memory(&self) -> MemoryStats {
        stats::memory(&self.db, &self.cache)
    }
}

fn column(db: &DB, space: Space) -> &ColumnFamily {
    db.cf_handle(space.name()).expect("invariant: every space's column family is opened")
}

fn open_error(dir: &Path, error: rocksdb::Error) -> EngineError {
    // RocksDB reports this only as text, which has not changed since the lock file exists.
    if error.as_ref().contains("While lock file") || error.as_ref().contains("lock hold by current process") {
        return EngineError::Locked { dir: dir.to_owned(), detail: error.into_string() };
    }
    error.into()
}

impl From<rocksdb::Error> for EngineError {
    fn from(error: rocksdb::Error) -> Self {
        let kind = error.kind();
        let detail = error.into_string();
        match kind {
            rocksdb::ErrorKind::Corruption => EngineError::Corrupt { detail },
            rocksdb::ErrorKind::Incomplete => EngineError::NotInMemory,
            _ if detail.contains("No space left on device") => EngineError::Full { detail },
            _ => EngineError::Io { detail },
        }
    }
}
