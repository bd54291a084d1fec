//! The engine on disk: RocksDB without its own log, one instance per data directory.
//!
//! Why RocksDB, and the reasons for its options: `docs/decisions/0003-rocksdb-engine.md`. One of the two places where
//! `unsafe` is allowed; each use states its invariant.
#![allow(unsafe_code, reason = "the C interface of RocksDB")]

mod bounds;
mod damage;
mod discard;
mod file_list;
mod flushes;
mod history;
mod offline;
mod options;
mod reclaim;
mod rewriting;
mod split_points;
mod stats;
mod view;

pub use offline::{EngineFile, missing_spaces};
pub use options::{EngineOptions, Tolerance};

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocksdb::{
    Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBPinnableSlice, ReadOptions, ReadTier, WriteBatch,
    WriteOptions,
};

use self::damage::Damage;
use self::flushes::WrittenBytes;
use self::reclaim::{DeletedRange, Reclaimer};
use self::rewriting::Rewriting;
use self::view::{RocksSnapshot, Tier};
use crate::full_disk::FullDisk;
use crate::pre_flush::Hook;
use crate::{
    Batch, Change, DamagedFiles, DeletedKeys, Engine, EngineError, EngineStats, FullDiskHook, MemoryStats,
    PreFlushHook, RowRewriter, ScanRange, Snapshot, Space,
};

/// An open RocksDB directory. Dropping it flushes and closes.
pub struct RocksEngine {
    // Dropped first: its thread uses the database. None in an engine that is only read.
    reclaimer: Option<Reclaimer>,
    db: Arc<DB>,
    cache: Cache,
    read: ReadOptions,
    // For reads that must not wait for the disk.
    read_in_memory: ReadOptions,
    hook: Arc<Hook>,
    rewriting: Arc<Rewriting>,
    full_disk: Arc<FullDisk>,
    written: Arc<WrittenBytes>,
    damage: Arc<Damage>,
    history_bytes_max: u64,
}

impl RocksEngine {
    /// Opens the engine in `dir`, creating it if there is none. The caller makes sure that no other process has it open.
    ///
    /// Fails with [`EngineError::Locked`] if another process has it open and with
    /// [`EngineError::Corrupt`] if its files contradict each other.
    pub fn open(dir: &Path, options: &EngineOptions) -> Result<RocksEngine, EngineError> {
        file_list::prepare(dir)?;
        let cache = options::block_cache(options);
        let rewriting = Arc::<Rewriting>::default();
        discard::remove_listed(dir, || {
            let spaces = Space::ALL.map(|space| {
                let mut column = options::for_space(space, options, &cache);
                column.set_disable_auto_compactions(true);
                ColumnFamilyDescriptor::new(space.name(), column)
            });
            let database = options::for_database(options);
            DB::open_cf_descriptors(&database, dir, spaces).map_err(|error| open_error(dir, error))
        })?;
        let spaces = Space::ALL.map(|space| {
            let mut column = options::for_space(space, options, &cache);
            if space == Space::Rows {
                rewriting::filter(&mut column, Arc::clone(&rewriting));
            }
            ColumnFamilyDescriptor::new(space.name(), column)
        });
        let hook = Arc::<Hook>::default();
        let mut database = options::for_database(options);
        let written = Arc::<WrittenBytes>::default();
        let damage = Arc::<Damage>::default();
        let full_disk = Arc::<FullDisk>::default();
        let (noted, full) = (Arc::clone(&damage), Arc::clone(&full_disk));
        flushes::listen(&mut database, Arc::clone(&hook), Arc::clone(&written), noted, full);
        let db = DB::open_cf_descriptors(&database, dir, spaces).map_err(|error| open_error(dir, error))?;
        let history_bytes_max = options.history_bytes_max;
        let db = Arc::new(db);
        let reclaimer = Reclaimer::start(&db, Arc::clone(&hook))
            .map_err(|cause| EngineError::Io { detail: format!("cannot start a thread: {cause}") })?;
        damage.watch(&db);
        let engine = RocksEngine::without_threads(db, cache, history_bytes_max);
        Ok(RocksEngine { reclaimer: Some(reclaimer), hook, rewriting, full_disk, written, damage, ..engine })
    }

    /// An engine over `db` that gives no space back, and has no listener.
    fn without_threads(db: Arc<DB>, cache: Cache, history_bytes_max: u64) -> RocksEngine {
        let damage = Arc::<Damage>::default();
        damage.watch(&db);
        let (read, mut read_in_memory) = (ReadOptions::default(), ReadOptions::default());
        read_in_memory.set_read_tier(ReadTier::BlockCache);
        RocksEngine {
            reclaimer: None,
            db,
            cache,
            read,
            read_in_memory,
            hook: Arc::default(),
            rewriting: Arc::default(),
            full_disk: Arc::default(),
            written: Arc::default(),
            damage,
            history_bytes_max,
        }
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

    fn view(&self, tier: Tier) -> RocksSnapshot {
        RocksSnapshot::new(Arc::clone(&self.db), Arc::clone(&self.damage), tier)
    }

    /// Sets the hook that is asked when the disk has no space for a write or a flush: before the engine is used. Without it,
    /// they fail with [`EngineError::Full`].
    pub fn set_full_disk_hook(&self, hook: FullDiskHook) {
        self.full_disk.set(hook);
    }

    /// Whether a flush or a merge has found no space since the last call.
    pub fn has_lacked_space(&self) -> bool {
        self.full_disk.take_failed()
    }

    /// Ends flushes, merges and stalled writes: before the engine is closed on a full disk. What is not durable yet stays in
    /// the log.
    pub fn give_up(&self) {
        self.db.cancel_all_background_work(false);
    }

    fn write_once(&self, batch: &Batch) -> Result<(), EngineError> {
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
}

impl Engine for RocksEngine {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self.db.get_pinned_cf_opt(column(&self.db, space), key, &self.read);
        let found = found.map_err(|error| self.damage.failed(error, space, (key, key)))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn get_in_memory(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self.db.get_pinned_cf_opt(column(&self.db, space), key, &self.read_in_memory);
        let found = found.map_err(|error| self.damage.failed(error, space, (key, key)))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn get_many(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        let ascending = keys.is_sorted();
        let column = column(&self.db, space);
        let found = self.db.batched_multi_get_cf_opt(column, keys.iter().copied(), ascending, &self.read);
        let copied = |value: DBPinnableSlice<'_>| Bytes::copy_from_slice(&value);
        let checked = |(value, key): (Result<Option<_>, _>, &&[u8])| {
            value.map_err(|error| self.damage.failed(error, space, (key, key)))
        };
        found.into_iter().zip(keys).map(|read| Ok(checked(read)?.map(copied))).collect()
    }

    fn get_durable(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        // All spaces are flushed together, so this is never older or newer in one space than in another.
        let mut read = ReadOptions::default();
        read.set_read_tier(ReadTier::Persisted);
        let found = self.db.get_pinned_cf_opt(column(&self.db, space), key, &read);
        let found = found.map_err(|error| self.damage.failed(error, space, (key, key)))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        Ok(Arc::new(self.view(Tier::Disk)))
    }

    fn try_snapshot(&self) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        Ok(Some(Arc::new(self.view(Tier::Memory))))
    }

    fn write(&self, batch: Batch) -> Result<(), EngineError> {
        self.full_disk.retry(|| self.write_once(&batch))
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.full_disk.retry(|| flushes::flush(&self.db, &self.hook))
    }

    fn set_pre_flush_hook(&self, hook: PreFlushHook) {
        self.hook.set(hook);
    }

    fn set_rewriter(&self, rewriter: Option<Arc<dyn RowRewriter>>) {
        self.rewriting.rewriter.set(rewriter);
    }

    fn compact(&self, space: Space, range: ScanRange<'_>) -> Result<(), EngineError> {
        self.rewriting.compact(&self.db, space, range);
        Ok(())
    }

    fn cancel_compactions(&self) {
        rewriting::cancel(&self.db);
    }

    fn reclaim(&self, space: Space, start: &[u8], end: &[u8], keys: DeletedKeys) {
        let (start, end) = (start.to_vec(), end.to_vec());
        let deleted_at = self.db.latest_sequence_number();
        if let Some(reclaimer) = &self.reclaimer {
            reclaimer.add(DeletedRange { space, start, end, keys, deleted_at });
        }
    }

    fn damage(&self) -> Option<Arc<DamagedFiles>> {
        if let Err(error) = self.damage.find_keys(&self.db) {
            tracing::warn!("could not find the keys of damaged files: {error}");
        }
        Some(self.damaged_files())
    }

    fn discard_file(&self, name: &str) -> Result<(), EngineError> {
        if damage::may_have_large_values(name) {
            let listed = self.damage.files().list().into_iter().find(|file| file.name == name);
            let space = listed.and_then(|file| file.space).unwrap_or(Space::Rows);
            rewriting::rewrite_large_values(&self.db, space)?;
            discard::await_end(&self.db.path().join(name));
            self.damage.forget_unknown();
        } else if !self.damage.delete_file(&self.db, name)? {
            discard::list(self.db.path(), name)?;
            self.damage.files().update(name, |file| file.is_discarded = true);
        }
        self.damage.refresh(&self.db)
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

/// Whether an error of RocksDB says that the disk is full. There is no other sign of it.
fn is_full(detail: &str) -> bool {
    detail.contains("No space left on device")
}

impl From<rocksdb::Error> for EngineError {
    fn from(error: rocksdb::Error) -> Self {
        let kind = error.kind();
        let detail = error.into_string();
        match kind {
            rocksdb::ErrorKind::Corruption => EngineError::Corrupt { detail },
            rocksdb::ErrorKind::Incomplete => EngineError::NotInMemory,
            _ if is_full(&detail) => EngineError::Full { detail },
            _ => EngineError::Io { detail },
        }
    }
}
