//! A cache of recently read or written rows, decoded and verified: a hit costs no engine lookup, no copy and no
//! checksum.
//!
//! The cache never returns a row that the engine does not have. After a miss, a reader may insert the row it then reads
//! only if no change in the same partition began or ended meanwhile. A change hides the row before the engine is
//! written, and invalidates readers' permits again afterwards ([`RowCache::begin_change`], [`RowCache::end_change`]).
//!
//! A written row is cached only if there is free space: it evicts no other row.

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

    /// Caches `row`, which the engine had when `permit` was given or later.
    pub(crate) fn keep(&self, permit: &FillPermit, key: &[u8], row: &Object, row_bytes: usize) {
        let bytes_max = self.partition_bytes_max();
        let bytes = bytes_of(key.len(), row_bytes);
        let mut partition = self.partition(permit.hash).lock();
        let is_true = partition.changing == 0 && partition.epoch == permit.epoch;
        // Another reader may have cached it already.
        if is_true && fits(bytes, bytes_max) && partition.slot(permit.hash, key).is_none() {
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
mod tests {
    use super::*;
    use datum::{Datum, Text};

    fn row(n: f64) -> Object {
        [(Text::from("n"), Datum::Number(n))].into_iter().collect()
    }

    fn found(cache: &RowCache, key: &[u8]) -> Option<Object> {
        match cache.find(key) {
            CacheLookup::Row(row) => Some(row),
            CacheLookup::Missing(_) => None,
        }
    }

    fn permit(cache: &RowCache, key: &[u8]) -> FillPermit {
        match cache.find(key) {
            CacheLookup::Row(_) => panic!("the row is there already"),
            CacheLookup::Missing(permit) => permit,
        }
    }

    #[test]
    fn a_row_is_kept_until_it_changes() {
        let cache = RowCache::new(1 << 20);
        cache.keep(&permit(&cache, b"k"), b"k", &row(1.0), 20);
        assert_eq!(found(&cache, b"k"), Some(row(1.0)));
        let changing = cache.begin_change(b"k", Some(20));
        assert_eq!(found(&cache, b"k"), None);
        cache.end_change(&changing, || Some((row(2.0), 20)));
        assert_eq!(found(&cache, b"k"), Some(row(2.0)));
        let changing = cache.begin_change(b"k", None);
        cache.end_change(&changing, || None);
        assert_eq!(found(&cache, b"k"), None);
        assert_eq!((cache.stats().rows, cache.stats().bytes), (0, 0));
    }

    #[test]
    fn a_row_that_is_found_is_shown() {
        let cache = RowCache::new(64 << 20);
        let large: Object = [(Text::from("t"), Datum::String(Text::from("x".repeat(LOCKED_READ_BYTES_MAX))))]
            .into_iter()
            .collect();
        for (key, row) in [(b"k", row(1.0)), (b"l", large)] {
            let Err((permit, read_row)) = cache.with_row(key, |row| row.cloned()) else {
                panic!("nothing is here")
            };
            assert_eq!(read_row(None), None);
            cache.keep(&permit, key, &row, row.json_size());
            assert_eq!(cache.with_row(key, |row| row.cloned()).ok(), Some(Some(row)));
        }
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (2, 2));
    }

    #[test]
    fn a_row_that_is_written_is_kept_where_there_is_room() {
        let cache = RowCache::new(4 << 20);
        let mut before = cache.stats();
        for n in 0..50_000_u32 {
            let changing = cache.begin_change(&n.to_be_bytes(), Some(1000));
            assert_eq!(found(&cache, &n.to_be_bytes()), None);
            cache.end_change(&changing, || Some((row(f64::from(n)), 1000)));
            let after = cache.stats();
            assert!(after.rows >= before.rows, "row {n} took the place of another");
            before = after;
        }
        assert!(before.bytes <= 4 << 20 && before.bytes > 3 << 20, "{before:?}");
        assert_eq!(found(&cache, &0_u32.to_be_bytes()), Some(row(0.0)));
        assert_eq!(found(&cache, &49_999_u32.to_be_bytes()), None);
    }

    #[test]
    fn of_changes_together_the_last_is_shown_and_none_before() {
        let cache = RowCache::new(1 << 20);
        let new = |n| move || Some((row(n), 20));
        let (first, second) = (cache.begin_change(b"k", Some(20)), cache.begin_change(b"k", Some(20)));
        cache.end_change(&first, new(1.0));
        assert_eq!(found(&cache, b"k"), None, "the engine has the second already");
        cache.end_change(&second, new(2.0));
        assert_eq!(found(&cache, b"k"), Some(row(2.0)));

        let (put, delete) = (cache.begin_change(b"k", Some(20)), cache.begin_change(b"k", None));
        cache.end_change(&put, new(3.0));
        cache.end_change(&delete, || None);
        assert_eq!(found(&cache, b"k"), None);

        let (delete, put) = (cache.begin_change(b"k", None), cache.begin_change(b"k", Some(20)));
        cache.end_change(&delete, || None);
        assert_eq!(found(&cache, b"k"), None);
        cache.end_change(&put, new(4.0));
        assert_eq!(found(&cache, b"k"), Some(row(4.0)));
    }

    #[test]
    fn a_row_that_changes_keeps_its_place_while_others_go() {
        let cache = RowCache::new(1 << 20);
        let changing = cache.begin_change(b"k", Some(20));
        cache.resize(0);
        cache.resize(1 << 20);
        for n in 0..10_000_u32 {
            let other = cache.begin_change(&n.to_be_bytes(), Some(500));
            cache.end_change(&other, || Some((row(0.0), 500)));
        }
        cache.end_change(&changing, || Some((row(1.0), 20)));
        assert_eq!(found(&cache, b"k"), Some(row(1.0)));
        // A failed change leaves nothing in the cache.
        let failed = cache.begin_change(b"k", Some(20));
        cache.end_change(&failed, || None);
        assert_eq!(found(&cache, b"k"), None);
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after() {
        let cache = RowCache::new(1 << 20);
        let before = permit(&cache, b"k");
        let changing = cache.begin_change(b"k", None);
        let during = permit(&cache, b"k");
        cache.keep(&before, b"k", &row(1.0), 20);
        // The old row, read while others may already read the new one.
        cache.keep(&during, b"k", &row(1.0), 20);
        assert_eq!(found(&cache, b"k"), None);
        cache.end_change(&changing, || None);
        cache.keep(&during, b"k", &row(1.0), 20);
        assert_eq!(found(&cache, b"k"), None);
        cache.keep(&permit(&cache, b"k"), b"k", &row(2.0), 20);
        assert_eq!(found(&cache, b"k"), Some(row(2.0)));
    }

    #[test]
    fn used_rows_stay_and_the_bound_holds() {
        let cache = RowCache::new(4 << 20);
        let name = |n: u32| n.to_be_bytes();
        for n in 0..50_000_u32 {
            cache.keep(&permit(&cache, &name(n)), &name(n), &row(0.0), 1000);
            // A few rows are read all the time.
            for hot in 0..n.min(5) {
                found(&cache, &name(hot));
            }
        }
        let stats = cache.stats();
        assert!(stats.bytes <= 4 << 20 && stats.bytes > 3 << 20, "{stats:?}");
        assert!((2000..4200).contains(&stats.rows), "{stats:?}");
        for hot in 0..5 {
            assert!(found(&cache, &name(hot)).is_some(), "row {hot} was used and went");
        }
        for partition in &cache.partitions {
            assert!(partition.lock().is_sound());
        }
    }

    #[test]
    fn a_huge_row_is_not_kept() {
        let cache = RowCache::new(1 << 20);
        cache.keep(&permit(&cache, b"k"), b"k", &row(1.0), 1 << 20);
        assert_eq!(found(&cache, b"k"), None);
    }

    #[test]
    fn a_cache_grows_and_shrinks() {
        let cache = RowCache::new(0);
        let fill = || {
            for n in 0..10_000_u32 {
                if let CacheLookup::Missing(permit) = cache.find(&n.to_be_bytes()) {
                    cache.keep(&permit, &n.to_be_bytes(), &row(0.0), 1000);
                }
            }
            cache.stats().bytes
        };
        assert!(cache.is_off());
        assert_eq!(fill(), 0);
        cache.resize(8 << 20);
        assert!(fill() > 7 << 20);
        cache.resize(4 << 20);
        let left = cache.stats();
        assert!(left.bytes <= 4 << 20 && left.bytes > 3 << 20, "{left:?}");
        cache.resize(0);
        assert_eq!((cache.stats().bytes, cache.stats().rows), (0, 0));
        assert_eq!(fill(), 0);
    }
}
