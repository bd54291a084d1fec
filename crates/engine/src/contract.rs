//! What every engine promises to `storage`: atomic writes, consistent snapshots, ordered scans.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Batch, Direction, EngineError, EngineStats, Pair, PreFlushHook, ScanRange, Space};

/// Sorted keys to values in a few separate [`Space`]s.
///
/// Keys order by their bytes. All methods may be called from any thread at once.
pub trait Engine: Send + Sync {
    /// The newest written value under `key`. One point lookup; the bytes are the caller's own.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// The newest written values under `keys`, in their order, each as [`Engine::get`] would answer it
    /// at some moment of the call. Cheaper than asking for one after the other, most of all when the keys
    /// ascend.
    fn get_many(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        keys.iter().map(|key| self.get(space, key)).collect()
    }

    /// One consistent view of all spaces: every batch written so far, nothing later.
    ///
    /// Cheap (about a microsecond), except from an engine that gathers batches: it writes them first (16 MB take
    /// some 20 ms), or waits for who does, and fails when they cannot be written. A view held for long keeps
    /// overwritten values alive.
    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError>;

    /// As [`Engine::snapshot`], for who cannot wait: `None` where more than some kilobytes would have to be
    /// written first.
    fn try_snapshot(&self) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        self.snapshot().map(Some)
    }

    /// Carries out `batch` in the order of its changes, all or nothing, visible on return.
    ///
    /// Not durable until [`Engine::flush`] returns, but never torn and never out of order: after
    /// a crash the engine holds exactly the batches up to some point at or after the last flush.
    fn write(&self, batch: Batch) -> Result<(), EngineError>;

    /// Makes every batch written before this call durable. Costs disk writes and fsyncs. Fails, and makes nothing
    /// durable, when the hook of [`Engine::set_pre_flush_hook`] does.
    fn flush(&self) -> Result<(), EngineError>;

    /// From now on `hook` has run, in place of any before it, when batches become durable: those of [`Engine::flush`],
    /// and those that the engine makes durable because it likes to. It begins after the last of them was written.
    ///
    /// It runs on whatever thread flushes, on several at once if need be, and that waits for it, while reads and
    /// writes go on; it may read, but must neither write nor flush. When it fails, a flush that the engine began by
    /// itself goes on all the same, with a warning, where it cannot be put off (RocksDB). Costs the engine nothing but
    /// that wait. `docs/decisions/0040-log-durable-before-rows.md`.
    fn set_pre_flush_hook(&self, hook: PreFlushHook);

    /// How many bytes blocks that were read may take from now on. An engine that caches none does nothing.
    fn set_cache_bytes(&self, _bytes: usize) {}

    /// Sizes for the metrics page. May walk the list of files; not for a hot path.
    fn stats(&self) -> EngineStats;
}

/// A read-only view of an engine at one moment.
pub trait Snapshot: Send + Sync {
    /// The value under `key` in this view. One point lookup.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// The pairs of `range` in the order of `direction`. The scan keeps this view alive.
    ///
    /// Damage is reported by [`Scan::next`], not here.
    fn scan(self: Arc<Self>, space: Space, range: ScanRange<'_>, direction: Direction) -> Box<dyn Scan>;

    /// At most `parts - 1` ascending existing keys of `range` that cut it into parts of roughly
    /// equal size in bytes, each part beginning with the key that is returned.
    ///
    /// An estimate, for dividing work; a small span comes back with fewer cuts, or none.
    fn split_points(
        &self,
        space: Space,
        range: ScanRange<'_>,
        parts: usize,
    ) -> Result<Vec<Bytes>, EngineError>;

    /// About how many bytes `range` occupies. An estimate, for planning and metrics.
    fn bytes_in(&self, space: Space, range: ScanRange<'_>) -> Result<u64, EngineError>;
}

/// A walk over sorted pairs.
pub trait Scan: Send {
    /// The next pair, or `None` at the end. The slices are valid until the next call.
    ///
    /// An error ends the scan: the pairs seen so far are right, the rest is unknown.
    #[allow(clippy::should_implement_trait, reason = "the pair borrows the scan")]
    fn next(&mut self) -> Result<Option<Pair<'_>>, EngineError>;

    /// Whether values come with the engine's word that they are what was written: it verifies a checksum
    /// of its own of all that it reads from the disk.
    fn is_verified(&self) -> bool {
        false
    }

    /// Says that of each value the bytes at `offset` will be looked at, besides its beginning and its end: a hint
    /// to an engine that can fetch them ahead.
    fn prefetch_value_at(&mut self, _offset: usize) {}

    /// Goes on with the pairs of `range`, which lies inside the one the scan was made for, from its
    /// first pair in the scan's direction. Cheaper than another scan.
    fn restart(&mut self, range: ScanRange<'_>);
}
