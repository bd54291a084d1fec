//! The contract of an engine towards `storage`: atomic writes, consistent snapshots, ordered scans.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    Batch, Direction, EngineError, EngineStats, MemoryStats, Pair, PreFlushHook, RowRewriter, ScanRange,
    Space,
};

/// Whether deleted keys may be written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletedKeys {
    /// Files that have only keys of the range are deleted, whatever is in them.
    NeverWrittenAgain,
    /// Files are merged with the deletion.
    MayBeWrittenAgain,
}

/// A sorted map from keys to values in a few separate [`Space`]s.
///
/// Keys are ordered by their bytes. All methods may be called from any number of threads at once.
pub trait Engine: Send + Sync {
    /// The newest value written under `key`. One point lookup; the returned bytes belong to the caller.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// As [`Engine::get`], for callers that must not wait for the disk: fails with [`EngineError::NotInMemory`] if only
    /// the disk has the answer. That a key was never written is nearly always known in memory.
    fn get_in_memory(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.get(space, key)
    }

    /// The newest values written under `keys`, in the order of `keys`. Each is what [`Engine::get`] would return at
    /// some moment of the call. Cheaper than single lookups, most of all when the keys ascend.
    fn get_many(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        keys.iter().map(|key| self.get(space, key)).collect()
    }

    /// The value that `key` would have after a power loss now, as far as the engine knows: `None` also if it does not know.
    /// Values of one batch become durable together. One point lookup.
    fn get_durable(&self, _space: Space, _key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(None)
    }

    /// One consistent view of all spaces: every batch written so far, nothing written later.
    ///
    /// Cheap (about a microsecond), except for an engine with a write buffer: that flushes the buffer first (16 MB take
    /// about 20 ms), or waits for the thread that is flushing it, and fails when the flush fails. A view keeps
    /// overwritten values alive as long as it is held.
    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError>;

    /// As [`Engine::snapshot`], for callers that must not block: `None` if more than some kilobytes would have to be
    /// flushed first. Reads and scans of the view fail with [`EngineError::NotInMemory`] rather than wait for the disk.
    fn try_snapshot(&self) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        self.snapshot().map(Some)
    }

    /// Applies `batch` atomically, in the order of its changes. Visible on return.
    ///
    /// Not durable until [`Engine::flush`] returns. But never torn and never reordered: after a crash the engine holds
    /// exactly the batches up to some point at or after the last flush.
    fn write(&self, batch: Batch) -> Result<(), EngineError>;

    /// Makes every batch written before this call durable. Costs disk writes and fsyncs. Fails, and makes nothing
    /// durable, when the hook of [`Engine::set_pre_flush_hook`] fails.
    fn flush(&self) -> Result<(), EngineError>;

    /// Sets the hook, replacing any earlier one, that runs before batches become durable: in [`Engine::flush`], and in
    /// flushes that the engine starts by itself. The hook is called after the last batch of the flush was written.
    ///
    /// The hook runs on the thread that flushes, on several threads at once if need be; that thread waits for it, while
    /// reads and writes go on. The hook may read, but must neither write nor flush. If it fails, a flush that the
    /// engine started by itself continues with a warning where it cannot be postponed (RocksDB). It costs the engine
    /// nothing but the wait. `docs/decisions/0040-log-durable-before-rows.md`.
    fn set_pre_flush_hook(&self, hook: PreFlushHook);

    /// Sets the rewriter of [`Space::Rows`], replacing any earlier one; `None` for none. When this returns, no call of the
    /// earlier one is running. An engine that never moves rows ignores it.
    fn set_rewriter(&self, _rewriter: Option<Arc<dyn RowRewriter>>) {}

    /// Rewrites the files with pairs of `range`, so that overwritten and deleted pairs no longer take space, and each row
    /// passes the rewriter. Costs disk writes, also for the pairs beside the range in the same files. Readers and writers
    /// do not wait for it. An engine without files only calls the rewriter.
    fn compact(&self, _space: Space, _range: ScanRange<'_>) -> Result<(), EngineError> {
        Ok(())
    }

    /// Ends running calls of [`Engine::compact`] soon, and lets later ones do nothing: before the engine is closed.
    fn cancel_compactions(&self) {}

    /// Gives the disk space of the keys from `start` up to `end`, which were deleted before this call, back in the
    /// background, sooner than merging would: once no snapshot is left that sees them. An engine without files ignores it.
    fn reclaim(&self, _space: Space, _start: &[u8], _end: &[u8], _keys: DeletedKeys) {}

    /// Sets the size of the cache for blocks read from disk, in bytes. An engine without such a cache ignores it.
    fn set_cache_bytes(&self, _bytes: usize) {}

    /// Sizes for the metrics page. May list all files; not for a hot path.
    fn stats(&self) -> EngineStats;

    /// The part of [`Engine::stats`] about memory, which lists no files.
    fn memory(&self) -> MemoryStats {
        self.stats().memory
    }
}

/// A read-only view of an engine at one moment.
pub trait Snapshot: Send + Sync {
    /// The value under `key` in this view. One point lookup.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// Scans `range` in the given direction. The scan keeps this view alive.
    ///
    /// Damage is reported by [`Scan::next`], not here.
    fn scan(self: Arc<Self>, space: Space, range: ScanRange<'_>, direction: Direction) -> Box<dyn Scan>;

    /// At most `parts - 1` existing keys, ascending, that split `range` into parts of roughly equal size in bytes. Each
    /// part begins with one of the returned keys.
    ///
    /// An estimate, for dividing work. A small range has fewer split points, or none.
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
    /// An error ends the scan: the pairs returned so far are correct, the rest is unknown.
    #[allow(clippy::should_implement_trait, reason = "the pair borrows the scan")]
    fn next(&mut self) -> Result<Option<Pair<'_>>, EngineError>;

    /// Whether the engine guarantees that values are as written, because it verifies a checksum of everything it reads
    /// from disk.
    fn is_verified(&self) -> bool {
        false
    }

    /// Hints that the caller will read the bytes at `offset` of each value, besides its beginning and its end, so that
    /// the engine can prefetch them.
    fn prefetch_value_at(&mut self, _offset: usize) {}

    /// Repositions the scan to `range`, which lies inside the range the scan was created for. The scan continues with
    /// the first pair of `range` in its direction. Cheaper than a new scan.
    fn restart(&mut self, range: ScanRange<'_>);
}
