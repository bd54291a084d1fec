//! The engine on disk: RocksDB without its own log, one instance per data directory.
//!
//! Why RocksDB, and the reasons for its options: `docs/decisions/0003-rocksdb-engine.md`. One of the two places where
//! `unsafe` is allowed; each use states its invariant.
#![allow(unsafe_code, reason = "the C interface of RocksDB")]

mod bounds;
mod damage;
mod flushes;
mod history;
mod offline;
mod options;
mod split_points;
mod stats;
mod view;

pub use offline::{EngineFile, lists_spaces};
pub use options::{EngineOptions, Tolerance};

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocksdb::{
    Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBPinnableSlice, FlushOptions, ReadOptions, WriteBatch,
    WriteOptions,
};

use self::damage::Damage;
use self::flushes::WrittenBytes;
use self::view::RocksSnapshot;
use crate::pre_flush::Hook;
use crate::{Batch, Change, DamagedFiles, Engine, EngineError, EngineStats, PreFlushHook, Snapshot, Space};

/// An open RocksDB directory. Dropping it flushes and closes.
pub struct RocksEngine {
    db: Arc<DB>,
    cache: Cache,
    read: ReadOptions,
    hook: Arc<Hook>,
    written: Arc<WrittenBytes>,
    damage: Arc<Damage>,
    history_bytes_max: u64,
}

impl RocksEngine {
    /// Opens the engine in `dir`, creating it if there is none.
    ///
    /// Fails with [`EngineError::Locked`] if another process has it open and with
    /// [`EngineError::Corrupt`] if its files contradict each other.
    pub fn open(dir: &Path, options: &EngineOptions) -> Result<RocksEngine, EngineError> {
        let cache = options::block_cache(options);
        let spaces = Space::ALL.map(|space| {
            ColumnFamilyDescriptor::new(space.name(), options::for_space(space, options, &cache))
        });
        let hook = Arc::<Hook>::default();
        let mut database = options::for_database(options);
        let written = Arc::<WrittenBytes>::default();
        let damage = Arc::<Damage>::default();
        flushes::listen(&mut database, Arc::clone(&hook), Arc::clone(&written), Arc::clone(&damage));
        let db = DB::open_cf_descriptors(&database, dir, spaces).map_err(|error| open_error(dir, error))?;
        let history_bytes_max = options.history_bytes_max;
        let (db, read) = (Arc::new(db), ReadOptions::default());
        damage.watch(&db);
        Ok(RocksEngine { db, cache, read, hook, written, damage, history_bytes_max })
    }

    /// An engine over `db`, without a listener.
    fn of(db: Arc<DB>, cache: Cache, history_bytes_max: u64) -> RocksEngine {
        let (hook, written, damage) = (Arc::default(), Arc::default(), Arc::<Damage>::default());
        damage.watch(&db);
        RocksEngine { db, cache, read: ReadOptions::default(), hook, written, damage, history_bytes_max }
    }

    /// The files in which reads and merges have met damage.
    #[must_use]
    pub fn damaged_files(&self) -> Arc<DamagedFiles> {
        Arc::clone(self.damage.files())
    }

    /// Pauses the merging of files for a while if it has met damage, so that the same merge is not tried every second, and
    /// forgets damaged files that no longer exist. To be called about once a minute.
    pub fn pause_failed_merges(&self) -> Result<(), EngineError> {
        self.damage.pause_merges(&self.db)
    }

    /// Deletes the files of [`Space::History`] that were completed more than `age` ago. Reads nothing. May wait for work in the
    /// background. Must not be called by two threads at once.
    pub fn delete_old_history(&self, age: Duration) -> Result<(), EngineError> {
        history::delete_older(&self.db, age, self.history_bytes_max)
    }
}

impl Engine for RocksEngine {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self.db.get_pinned_cf_opt(column(&self.db, space), key, &self.read);
        let found = found.map_err(|error| self.damage.failed(error))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn get_many(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        let ascending = keys.is_sorted();
        let column = column(&self.db, space);
        let found = self.db.batched_multi_get_cf_opt(column, keys.iter().copied(), ascending, &self.read);
        let copied = |value: DBPinnableSlice<'_>| Bytes::copy_from_slice(&value);
        let checked = |value: Result<Option<_>, _>| value.map_err(|error| self.damage.failed(error));
        found.into_iter().map(|value| Ok(checked(value)?.map(copied))).collect()
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        Ok(Arc::new(RocksSnapshot::new(Arc::clone(&self.db), Arc::clone(&self.damage))))
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
        // RocksDB's listener runs the hook again, for batches written in between; but there a failure could not stop
        // the flush.
        self.hook.run()?;
        let columns = Space::ALL.map(|space| column(&self.db, space));
        let mut options = FlushOptions::default();
        options.set_wait(true);
        Ok(self.db.flush_cfs_opt(&columns, &options)?)
    }

    fn set_pre_flush_hook(&self, hook: PreFlushHook) {
        self.hook.set(hook);
    }

    fn set_cache_bytes(&self, bytes: usize) {
        // The clone is a handle to the same cache.
        self.cache.clone().set_capacity(bytes);
    }

    fn stats(&self) -> EngineStats {
        stats::collect(&self.db, &self.cache, &self.written)
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
            _ if detail.contains("No space left on device") => EngineError::Full { detail },
            _ => EngineError::Io { detail },
        }
    }
}
