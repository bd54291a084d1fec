//! A cache of recently read or written rows, decoded and verified: a hit costs no engine lookup, no copy and no
//! checksum.
//!
//! The cache never returns a row that the engine does not have. After a miss, a reader may insert the row it then reads
//! only if no change in the same partition began or ended meanwhile. A change hides the row before the engine is
//! written, and invalidates readers' permits again afterwards ([`RowCache::begin_change`], [`RowCache::end_change`]).
//!
//! A written row is cached only if there is free space: it evicts no other row. A row that is read evicts others only
//! if it was missed before, not long ago (`admission`): rows that are read once do not.

mod admission;
mod partition;

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};

use datum::Object;
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::layout::RowKey;
use partition::Partition;

/// Independent partitions, so that threads rarely contend for a lock, and a change rarely invalidates the permits of
/// unrelated rows.
const PARTITIONS: usize = 128;
/// Memory of a cached row besides its key and bytes: its slot, its place in a chain, and allocations.
const ROW_OVERHEAD_BYTES: usize = 160;
/// The largest row that is read under the lock; a larger one is referenced and read after unlocking.
const LOCKED_READ_BYTES_MAX: usize = 16 << 10;
/// A row may take at most one in this many bytes of a partition; a larger one would evict too many others.
const ROW_SHARE_MAX: usize = 8;

/// A cache of rows by their engine keys, bounded in bytes.
pub(crate) struct RowCache {
    partitions: Vec<Mutex<Partition>>,
    partition_bytes_max: AtomicUsize,
    hash: RandomState,
}

/// Statistics of the row cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCacheStats {
    /// Reads served from the cache.
    pub hits: u64,
    /// Reads left to the engine.
    pub misses: u64,
    /// Cached rows.
    pub rows: u64,
    /// Bytes of cached rows, including keys and overhead.
    pub bytes: u64,
}

/// The result of a lookup.
pub(crate) enum CacheLookup {
    Row(Object),
    /// Not cached. The permit allows the caller to cache the row that it reads from the engine.
    Missing(FillPermit),
}

/// The result of a lookup in a batch of lookups.
pub(crate) enum BatchLookup {
    /// Probably cached: the hash of its key, and its slot.
    Cached { hash: u64, slot: usize },
    /// Not cached. The permit allows the caller to cache the row that it reads from the engine.
    Missing(FillPermit),
}

/// Permission to cache a row that is being read from the engine; invalid once a change begins or ends in the partition.
pub(crate) struct FillPermit {
    hash: u64,
    epoch: u64,
}

/// A change of a row that has begun and must be ended.
#[must_use]
pub(crate) struct PendingChange {
    partition: usize,
    // The slot of the new row, if it has one.
    slot: Option<usize>,
}

impl RowCache {
    /// A cache of about `bytes_max` bytes. With zero it stores nothing.
    pub(crate) fn new(bytes_max: usize) -> RowCache {
        let partitions = (0..PARTITIONS).map(|_| Mutex::default()).collect();
        RowCache {
            partitions,
            partition_bytes_max: AtomicUsize::new(bytes_max / PARTITIONS),
            hash: RandomState::default(),
        }
    }

    /// Resizes the cache to about `bytes_max` bytes, evicting rows if it shrinks.
    pub(crate) fn resize(&self, bytes_max: usize) {
        self.partition_bytes_max.store(bytes_max / PARTITIONS, Ordering::Relaxed);
        for partition in &self.partitions {
            partition.lock().shrink_to(bytes_max / PARTITIONS);
        }
    }

    /// Removes all rows. Rows that are being read now are not cached.
    pub(crate) fn clear(&self) {
        for partition in &self.partitions {
            let mut partition = partition.lock();
            partition.epoch += 1;
            partition.shrink_to(0);
        }
    }

    /// Whether the cache is off, so that lookups can be skipped.
    pub(crate) fn is_off(&self) -> bool {
        self.partition_bytes_max() == 0
    }

    /// The row under `key`, if it is cached.
    pub(crate) fn find(&self, key: &[u8]) -> CacheLookup {
        let hash = self.hash.hash_one(key);
        let mut partition = self.partition(hash).lock();
        match partition.use_row(hash, key) {
            Some(row) => CacheLookup::Row(row.clone()),
            None => {
                partition.misses += 1;
                CacheLookup::Missing(FillPermit { hash, epoch: partition.epoch })
            }
        }
    }

    /// If the row under `key` is cached, calls `read_row` with it, perhaps under a lock. Cheaper than
    /// [`RowCache::find`], which counts a reference. Otherwise returns `read_row`.
    pub(crate) fn with_row<R, T: FnOnce(Option<&Object>) -> R>(
        &self,
        key: &[u8],
        read_row: T,
    ) -> Result<R, (FillPermit, T)> {
        let hash = self.hash.hash_one(key);
        let mut partition = self.partition(hash).lock();
        match partition.use_row(hash, key) {
            Some(row) if row.json_size() <= LOCKED_READ_BYTES_MAX => Ok(read_row(Some(row))),
            Some(row) => {
                let row = row.clone();
                drop(partition);
                Ok(read_row(Some(&row)))
            }
            None => {
                partition.misses += 1;
                Err((FillPermit { hash, epoch: partition.epoch }, read_row))
            }
        }
    }

    /// Looks up the rows under `keys`, which are to be [read](RowCache::with_cached_row) soon. Much of a lookup's cost
    /// is waiting for memory. So each step is done for all keys before the next step, and the waits overlap.
    pub(crate) fn look_up_many(&self, keys: &[RowKey]) -> Vec<BatchLookup> {
        let counted = u64::from(!self.is_off());
        let hash = |key: &RowKey| self.hash.hash_one(key.as_bytes());
        let hashes: Vec<u64> = keys.iter().map(hash).collect();
        hashes.iter().for_each(|hash| self.partition(*hash).lock().prefetch_chain(*hash));
        hashes.iter().for_each(|hash| self.partition(*hash).lock().prefetch_slot(*hash));
        let look = |(key, hash): (&RowKey, u64)| {
            let mut partition = self.partition(hash).lock();
            match partition.slot(hash, key.as_bytes()) {
                Some(slot) => BatchLookup::Cached { hash, slot },
                None => {
                    partition.misses += counted;
                    BatchLookup::Missing(FillPermit { hash, epoch: partition.epoch })
                }
            }
        };
        keys.iter().zip(hashes).map(look).collect()
    }

    /// Prefetches the row that a lookup found.
    pub(crate) fn prefetch_entry(&self, lookup: &BatchLookup) {
        if let BatchLookup::Cached { hash, slot } = lookup {
            self.partition(*hash).lock().prefetch_row(*slot);
        }
    }

    /// Calls `read_row` with the row under `key`, which a lookup found, perhaps under a lock. Returns `false` if it has
    /// been evicted since.
    pub(crate) fn with_cached_row(&self, hash: u64, key: &RowKey, read_row: impl FnOnce(&Object)) -> bool {
        let mut partition = self.partition(hash).lock();
        match partition.use_row(hash, key.as_bytes()) {
            Some(row) if row.json_size() <= LOCKED_READ_BYTES_MAX => read_row(row),
            Some(row) => {
                let row = row.clone();
                drop(partition);
                read_row(&row);
            }
            None => {
                partition.misses += 1;
                return false;
            }
        }
        true
    }

    /// The permit for a row that the caller is about to read. It is no lookup and is not counted as one.
    pub(crate) fn permit(&self, key: &[u8]) -> FillPermit {
        let hash = self.hash.hash_one(key);
        FillPermit { hash, epoch: self.partition(hash).lock().epoch }
    }

    /// Whether no change has begun or ended in the partition since `permit` was given, and none was under way then.
    pub(crate) fn is_unchanged(&self, permit: &FillPermit) -> bool {
        self.partition(permit.hash).lock().is_unchanged_since(permit.epoch)
    }

    /// A read that followed a missed lookup has failed: the lookup will be repeated and counted then.
    pub(crate) fn uncount_miss(&self, permit: &FillPermit) {
        let mut partition = self.partition(permit.hash).lock();
        partition.misses = partition.misses.saturating_sub(1);
    }

    /// Caches `row`, which the engine had when `permit` was given or later.
    pub(crate) fn keep(&self, permit: &FillPermit, key: &[u8], row: &Object, row_bytes: usize) {
        let bytes_max = self.partition_bytes_max();
        let bytes = bytes_of(key.len(), row_bytes);
        let mut partition = self.partition(permit.hash).lock();
        // Another reader may have cached it already.
        if partition.is_unchanged_since(permit.epoch)
            && fits(bytes, bytes_max)
            && partition.slot(permit.hash, key).is_none()
            && (partition.bytes + bytes <= bytes_max || partition.admits(permit.hash))
        {
            partition.shrink_to(bytes_max.saturating_sub(bytes));
            partition.insert(permit.hash, key, Some(row.clone()), bytes);
        }
    }

    /// Begins a change of the row, to one of `row_bytes` bytes or to a deletion. Hides the row, and blocks inserts in
    /// its partition until [`RowCache::end_change`] is called.
    pub(crate) fn begin_change(&self, key: &[u8], row_bytes: Option<usize>) -> PendingChange {
        let hash = self.hash.hash_one(key);
        let mut partition = self.partition(hash).lock();
        partition.epoch += 1;
        partition.changing += 1;
        let mut slot = partition.slot(hash, key);
        if let Some(entry) = slot.and_then(|slot| partition.entry(slot)) {
            entry.row = None;
            entry.changing += 1;
        } else if let Some(row_bytes) = row_bytes {
            let (bytes, bytes_max) = (bytes_of(key.len(), row_bytes), self.partition_bytes_max());
            if fits(bytes, bytes_max) && partition.bytes + bytes <= bytes_max {
                slot = Some(partition.insert(hash, key, None, bytes));
            }
        }
        PendingChange { partition: partition_of(hash), slot }
    }

    /// Ends a change: the engine now has the row that `row` returns with its size, or has deleted it, or has failed. If
    /// changes of one row overlap, the one that ends last must be the one that the engine applied last.
    pub(crate) fn end_change(&self, changing: &PendingChange, row: impl FnOnce() -> Option<(Object, usize)>) {
        // Called before locking, because it copies.
        let row = changing.slot.and_then(|_| row());
        let mut partition = self.partitions[changing.partition].lock();
        let partition = &mut *partition;
        partition.epoch += 1;
        partition.changing -= 1;
        let Some(slot) = changing.slot else { return };
        let Some(entry) = partition.entry(slot) else { return };
        entry.changing -= 1;
        if entry.changing > 0 {
            return;
        }
        let (key_len, bytes_max) = (entry.key_len(), self.partition_bytes_max());
        let row = row.map(|(row, row_bytes)| (row, bytes_of(key_len, row_bytes)));
        match row.filter(|(_, bytes)| fits(*bytes, bytes_max)) {
            Some((row, bytes)) => {
                partition.put(slot, row, bytes);
                partition.shrink_to(bytes_max);
            }
            None => partition.remove(slot),
        }
    }

    pub(crate) fn stats(&self) -> RowCacheStats {
        let mut stats = RowCacheStats::default();
        for partition in &self.partitions {
            let partition = partition.lock();
            stats.hits += partition.hits;
            stats.misses += partition.misses;
            stats.rows += partition.len() as u64;
            stats.bytes += partition.bytes as u64;
        }
        stats
    }

    fn partition(&self, hash: u64) -> &Mutex<Partition> {
        &self.partitions[partition_of(hash)]
    }

    fn partition_bytes_max(&self) -> usize {
        self.partition_bytes_max.load(Ordering::Relaxed)
    }
}

fn partition_of(hash: u64) -> usize {
    // Other bits than the lowest, which choose the chain inside a partition.
    (hash >> 32) as usize % PARTITIONS
}

fn bytes_of(key_len: usize, row_bytes: usize) -> usize {
    key_len + row_bytes + ROW_OVERHEAD_BYTES
}

fn fits(bytes: usize, partition_bytes_max: usize) -> bool {
    bytes <= partition_bytes_max / ROW_SHARE_MAX
}

#[cfg(test)]
mod tests;
