//! Sizes of an engine, for metrics and for the memory accountant.

/// Sizes of an engine, on disk and in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// Files and bytes of each level of the tree, over all spaces, level 0 first.
    pub levels: Vec<LevelStats>,
    /// Bytes of separately stored large values, live or not yet collected.
    pub large_value_bytes: u64,
    /// Bytes of memory by owner.
    pub memory: MemoryStats,
    /// Entries, including overwritten ones that are not merged away yet.
    pub keys_estimate: u64,
    /// Bytes that background merging still has to rewrite.
    pub compaction_pending_bytes: u64,
    /// Flushes and merges running now.
    pub background_running: u64,
    /// Whether writes are throttled until merging catches up.
    pub writes_stalled: bool,
    /// Snapshots alive now.
    pub snapshots: u64,
    /// Rows compressed since the start; all zero in an engine that compresses none.
    pub compression: CompressionStats,
    /// Bytes written to disk since the start.
    pub written: WrittenStats,
}

/// Bytes by the reason for which an engine wrote them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenStats {
    /// New files of flushed memtables.
    pub flush: u64,
    /// Files that compaction wrote anew.
    pub compaction: u64,
    /// Separately stored large values, when they are first written.
    pub large_values: u64,
}

/// Counters since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionStats {
    /// How many, also those that then were stored as they were because too little was saved.
    pub rows: u64,
    /// Their bytes before.
    pub row_bytes: u64,
    /// The same after compression.
    pub stored_bytes: u64,
    /// Trained dictionaries, whether they were used or not.
    pub trainings: u64,
    /// Dictionaries that were stored and used.
    pub dictionaries: u64,
    /// Rows that were compressed again after they had settled.
    pub settled_rows: u64,
    /// Their bytes on disk before.
    pub settled_bytes_before: u64,
    /// The same afterwards.
    pub settled_bytes_after: u64,
    /// Tables whose rows are yet to be compressed again: now, or when little is written to them.
    pub unsettled_tables: u64,
}

/// One level of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelStats {
    pub files: u64,
    /// Their sizes together.
    pub bytes: u64,
}

/// Memory by owner, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Cached blocks of files, with their pinned indexes and filters.
    pub block_cache: u64,
    /// Of which pinned, and so not evictable.
    pub block_cache_pinned: u64,
    /// Written pairs that are not flushed yet, and those being flushed.
    pub memtables: u64,
    /// Indexes and filters held outside the cache.
    pub table_readers: u64,
    /// Dictionaries of compressed rows, and the samples that they are trained from.
    pub compression: u64,
}

impl EngineStats {
    /// Bytes on disk, levels and large values together.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum::<u64>() + self.large_value_bytes
    }
}
